"""A sketch under construction."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, field, frozen

from autotune.sketches import Constraint, Param, Sketch, Step
from autotune.spaces.limits import ScheduleLimits
from autotune.targets import Target
from autotune.workloads import Workload


@frozen
class SketchDraft:
    """What rules have decided so far.

    Attributes:
        workload: What is scheduled.
        target: What it runs on.
        limits: What the backend can replay and compile.
        labels: Names of the choices made; joined they name the sketch.
        params: Parameters so far.
        constraints: Constraints so far.
        steps: Steps so far.
        settled: Stages that need no further decision.
        epilogues: Consumer stage by the producer into whose loops it will be fused.
    """

    workload: Workload
    target: Target
    limits: ScheduleLimits
    labels: tuple[str, ...] = ()
    params: tuple[Param, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    steps: tuple[Step, ...] = ()
    settled: frozenset[str] = frozenset()
    epilogues: dict[str, str] = field(factory=dict)

    def extended(
        self,
        *,
        settled: Iterable[str],
        label: str | None = None,
        params: Iterable[Param] = (),
        constraints: Iterable[Constraint] = (),
        steps: Iterable[Step] = (),
    ) -> SketchDraft:
        """This draft with more of everything, and the given stages settled."""
        return evolve(
            self,
            labels=self.labels + ((label,) if label else ()),
            params=self.params + tuple(params),
            constraints=self.constraints + tuple(constraints),
            steps=self.steps + tuple(steps),
            settled=self.settled | frozenset(settled),
        )

    def with_epilogue(self, producer: str, consumer: str) -> SketchDraft:
        """This draft with ``consumer`` to be fused into the loops of ``producer``."""
        return evolve(
            self,
            epilogues={**self.epilogues, producer: consumer},
            settled=self.settled | {consumer},
        )

    def finished(self) -> Sketch:
        """The sketch."""
        name = "+".join(self.labels) if self.labels else "plain"
        return Sketch(name, self.workload, self.params, self.constraints, self.steps)
