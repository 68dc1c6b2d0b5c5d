"""Strategies against recorded spaces, on a virtual clock: no device, many runs a second."""

from __future__ import annotations

from autotune.evaluation.replay.contestants import Contestant
from autotune.evaluation.replay.recorded import (
    Evaluation,
    OutcomeTable,
    RecordedSpace,
    make_space,
    table_of,
)
from autotune.evaluation.replay.runs import (
    Budget,
    Replay,
    RunScore,
    Step,
    Yardstick,
    score_run,
    yardstick,
)
from autotune.evaluation.replay.study import LeftOut, Study, load, run_study
from autotune.evaluation.replay.summary import Summary, compare, summarize

__all__ = [
    "Budget",
    "Contestant",
    "Evaluation",
    "LeftOut",
    "OutcomeTable",
    "RecordedSpace",
    "Replay",
    "RunScore",
    "Step",
    "Study",
    "Summary",
    "Yardstick",
    "compare",
    "load",
    "make_space",
    "run_study",
    "score_run",
    "summarize",
    "table_of",
    "yardstick",
]
