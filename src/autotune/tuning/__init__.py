"""The tuning loop: options, tasks, the tuner and its events, results, resuming."""
