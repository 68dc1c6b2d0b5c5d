"""The trace space: schedules by TVM's own rules, whose sampling decisions are the parameters."""
