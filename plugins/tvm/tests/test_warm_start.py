"""What was learned with a real compiler pays in the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.tuning.events import TrialFinished


@pytest.mark.slow
def test_the_next_run_begins_with_the_best_of_this_one_and_a_like_task_with_its_schedule(
    tmp_path: Path,
) -> None:
    first_trials: list[Any] = []

    def tune(m: int, trials: int, seed: int) -> autotune.Result:
        events: list[Any] = []
        result = autotune.tune(
            autotune.workloads.gemm(m=m, n=64, k=64),
            backend="tvm",
            threads=1,
            trials=trials,
            seed=seed,
            database=tmp_path / "records.db",
            listeners=[events.append],
        )
        first_trials.append(next(it for it in events if isinstance(it, TrialFinished)))
        return result

    cold = tune(64, 6, 1)
    again = tune(64, 1, 2)
    assert cold.fastest is not None and again.fastest is not None
    assert again.fastest.candidate == cold.fastest.candidate and again.cached == 1
    other = tune(128, 1, 1)
    (source,) = other.warm_start
    assert source.used_as == ("seed", "training") and source.record == cold.fastest.name
    moved = first_trials[-1].candidate
    assert moved.digest == source.candidate and first_trials[-1].outcome.ok
    # The rows are twice as many: the outermost tile of theirs has twice as many steps.
    grown = {
        name
        for name, value in moved.config.items()
        if value != cold.fastest.candidate.config[name]
    }
    assert grown <= {"C.i.0", "C.i.extent"} and "C.i.0" in grown
    assert moved.sketch.name == cold.fastest.candidate.sketch.name
