"""What tuning returns, and its versioned JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.records import Outcome, Record
from autotune.targets import Target
from autotune.workloads import Workload

if TYPE_CHECKING:
    from collections.abc import Callable

RESULT_SCHEMA = 1

SECONDS_KEYS = ("startup", "search", "model", "build", "run", "other")


@frozen
class HistoryPoint:
    """State after one trial: seconds since the run began and best latency so far (or None)."""

    trial: int
    elapsed: float
    best: float | None


@frozen(eq=False)
class Result:
    """The outcome of tuning one task.

    Attributes:
        run_id: The run, as stored in the database.
        workload: What was tuned.
        target: What it was tuned for.
        backend: Name of the backend that built it.
        strategy: Name of the strategy.
        seed: Seed of the run.
        trials: Number of trials, cached ones included.
        outcomes: Number of trials by outcome status.
        cached: How many trials were answered from records.
        seconds: Wall seconds by activity, the keys of ``SECONDS_KEYS``.
        baseline: Outcome of the untuned program, if it was measured.
        best: Record of the fastest valid candidate; None when there is none.
        history: One point per trial.
        database: Where the records are.
        program: The imported program's text, when one was imported.
        from_records: True when nothing was searched.
        reason: Why the run ended.
    """

    run_id: str
    workload: Workload
    target: Target
    backend: str
    threads: int
    strategy: str
    seed: int
    trials: int
    outcomes: Mapping[str, int]
    cached: int
    seconds: Mapping[str, float]
    baseline: Outcome | None
    best: Record | None
    history: tuple[HistoryPoint, ...]
    database: str
    program: str | None = None
    from_records: bool = False
    reason: str = ""
    failures: Mapping[str, str] = field(factory=dict)

    def build(self) -> Callable[..., NDArray[Any] | list[NDArray[np.generic]]]:
        """Compile the best schedule in this process; returns a callable on numpy arrays.

        The callable takes the workload's inputs in order and returns its output, or a list of
        outputs when there are several.

        Raises:
            NoValidCandidate: no candidate was valid; says what happened to them.
        """
        raise NotImplementedError
