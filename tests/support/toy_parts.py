"""Parts for tests of tuning as a whole: named by import string, or measured in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

import autotune
from autotune.ir.workloads import Workload, gemm
from autotune.measure import Collecting, LoadedProgram, Measurer
from autotune.measure.measurer import OnKnown
from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees
from autotune.models.pruning import PruningModel
from autotune.plugins.options import check_known
from autotune.sketches import Candidate, CandidateBatch
from autotune.spaces import SpaceContext
from autotune.store.records import Outcome
from autotune.testing.reference_backend import REFERENCE_BACKEND, virtual_latency
from autotune.testing.toy_space import ToySpace, toy_features, toy_latencies

__all__ = [
    "REFERENCE_BACKEND",
    "TOY_DRAFT",
    "TOY_SPACE",
    "TOY_TREES",
    "InProcessMeasurer",
    "KnowingDraft",
    "ToyDraft",
    "toy_space",
    "toy_trees",
    "tune_toy",
    "valid_outcome",
]

TOY_SPACE = "toy_parts:toy_space"
"""Import string of :func:`toy_space`."""

TOY_DRAFT = "toy_parts:ToyDraft"
"""Import string of :class:`ToyDraft`."""

TOY_TREES = "toy_parts:toy_trees"
"""Import string of :func:`toy_trees`."""


def toy_space(context: SpaceContext) -> ToySpace:
    """The toy space of a square matrix product, made like any other space."""
    return ToySpace(context.workload.parameters["m"])


class ToyDraft(PruningModel):
    """A pruning model that prefers candidates of the toy space by the sum of their logarithms.

    Its option ``prefers`` is ``"small"`` or ``"large"``.
    """

    name = "toy draft"

    def __init__(self, context: ModelContext) -> None:
        check_known(f"pruning model {self.name!r}", context.options, ["prefers"])
        self._sign = 1.0 if context.options.get("prefers") == "large" else -1.0

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]."""
        return np.asarray(self._sign * toy_features(batch)[:, :5].sum(axis=1))


class KnowingDraft(PruningModel):
    """A pruning model that knows the answer."""

    name = "knowing draft"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]."""
        return 1.0 / toy_latencies(batch)


def toy_trees(context: ModelContext) -> GradientBoostedTrees:
    """Trees over the features of the toy space, which has no loop nest to read others from."""
    return GradientBoostedTrees(context, toy_features, "toy")


def tune_toy(
    database: Path,
    program: object = None,
    *,
    parts: Mapping[str, object] | None = None,
    **given: Any,
) -> autotune.Result:
    """Tune a small product, or another program, with parts that need no compiler.

    Args:
        database: Where to record.
        program: The program.
        parts: Parts beside or in place of the usual ones.
        given: Options in place of the usual ones: eight trials on one thread.
    """
    usual = {"search_space": TOY_SPACE, "cost_model": "random", "pruning_model": None}
    options: dict[str, Any] = {"backend": REFERENCE_BACKEND, "trials": 8, "threads": 1, **given}
    return autotune.tune(
        gemm(m=8, n=8, k=8) if program is None else program,
        parts={**usual, **(parts or {})},
        database=database,
        **options,
    )


def valid_outcome(candidate: Candidate) -> Outcome:
    """The reference backend's latency of ``candidate``, without running anything."""
    latency = virtual_latency(candidate.sketch.workload, candidate)
    return Outcome("ok", latency, (latency,) * 3, {"run": 0.0})


@frozen(eq=False)
class _HeldOutcome(LoadedProgram):
    """A call of constant duration."""

    outcome: Outcome

    @property
    def failure(self) -> Outcome | None:
        return None if self.outcome.ok else self.outcome

    def turn(self, placement: int) -> float | None:
        return self.outcome.latency


class InProcessMeasurer(Measurer):
    """Gives outcomes at once, by a function.

    Args:
        workload: What candidates compute.
        outcome: The outcome of a candidate; by default the reference backend's latency.
        tick: Called before every outcome, such as to advance a clock.
        again: The outcome of a candidate in a rematch; by default the reference backend's latency.
        lanes: How many machines it pretends to have: with several, outcomes become known in an
            order that only the candidates decide.
    """

    def __init__(
        self,
        workload: Workload,
        outcome: Callable[[Candidate], Outcome] = valid_outcome,
        tick: Callable[[], None] = lambda: None,
        again: Callable[[Candidate], Outcome] = valid_outcome,
        lanes: int = 1,
    ) -> None:
        self._workload = workload
        self._outcome = outcome
        self._tick = tick
        self._again = again
        self._lanes = lanes
        self.baselines = 0
        self.beside: list[float | None] = []
        self.is_open = False
        self._submitted: deque[list[Candidate]] = deque()

    def start(self) -> None:
        """Opens it."""
        self.is_open = True

    def wait_ready(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def submit(self, candidates: Sequence[Candidate]) -> None:
        """Keeps the candidates for later."""
        self._submitted.append(list(candidates))

    def collect(self, collecting: Collecting) -> list[Outcome]:
        """Outcomes by the function, one after the other."""
        outcomes: list[Outcome] = []
        leader = collecting.leader
        if leader is not None and leader.latency is None and collecting.on_leader_timed:
            seconds = self._again(leader.candidate).latency
            if seconds is not None:
                collecting.on_leader_timed(seconds)
        for position, candidate in enumerate(self._submitted.popleft()):
            if collecting.enough():
                break
            self._tick()
            outcomes.append(self._outcome(candidate))
            if collecting.on_outcome is not None:
                try:
                    collecting.on_outcome(position, outcomes[-1])
                except KeyboardInterrupt:
                    # As every measurer: it may not have been taken in.
                    collecting.on_outcome(position, outcomes[-1])
                    raise
        return outcomes

    @property
    def lanes(self) -> int:
        """Return as many as it was made with."""
        return self._lanes

    def collect_known(self, collecting: Collecting, count: int, on_known: OnKnown) -> int:
        """Outcomes by the function; that of whose digest is smallest of all comes first."""
        told = 0
        while told < count and any(self._submitted) and not collecting.enough():
            batch = min(
                filter(None, self._submitted), key=lambda batch: min(it.digest for it in batch)
            )
            candidate = min(batch, key=lambda it: it.digest)
            self._tick()
            outcome = self._outcome(candidate)
            batch.remove(candidate)
            told += 1
            try:
                on_known(candidate, outcome)
            except KeyboardInterrupt:
                on_known(candidate, outcome)
                raise
        return told

    def rematch(self, candidates: Sequence[Candidate | None]) -> list[Outcome]:
        """Outcomes by the function, and the untuned program's."""
        return [
            self._baseline_outcome() if candidate is None else self._again(candidate)
            for candidate in candidates
        ]

    def hold(self, candidate: Candidate | None) -> LoadedProgram:
        """Hold as long as a rematch takes."""
        if candidate is None:
            return _HeldOutcome(self._baseline_outcome())
        return _HeldOutcome(self._again(candidate))

    def measure_baselines(
        self, programs: Sequence[Candidate | None], best: float | None = None
    ) -> list[Outcome]:
        """The reference backend's latency of the untuned program."""
        self.baselines += 1
        self.beside.append(best)
        return [self._baseline_outcome() for _ in programs]

    def _baseline_outcome(self) -> Outcome:
        latency = virtual_latency(self._workload, None)
        return Outcome("ok", latency, (latency,) * 3)

    @property
    def seconds(self) -> Mapping[str, float]:
        """No time passes."""
        return {"start": 0.0, "build": 0.0, "run": 0.0}

    def close(self) -> None:
        """Closes it."""
        self.is_open = False
