"""A sketch under construction."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, field, frozen

from autotune.ir.workloads import Stage, Workload
from autotune.sketches import (
    Constraint,
    Parallel,
    Param,
    Sketch,
    Step,
    Unroll,
    UnrollLimit,
    Vectorize,
    is_prepackable,
)
from autotune.sketches.limits import ScheduleLimits
from autotune.sketches.steps import step_name
from autotune.targets import Target

# How loops are run, and not what they compute: a sketch is one without these steps, too.
_OPTIONAL_STEPS = (Parallel, Vectorize, Unroll, UnrollLimit)


@frozen
class SketchDraft:
    """A partial sketch: the decisions of the rules so far.

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

    @property
    def on_gpu(self) -> bool:
        """True if loops are bound to blocks and threads, and not run by cores in vectors."""
        return self.target.kind == "cuda"

    def can(self, *names: str) -> bool:
        """Return whether the backend has all of these steps."""
        return not self.limits.missing(names)

    def can_prepack(self, stage: Stage, tensor: str) -> bool:
        """Return whether an operand may be packed in blocks before the program runs."""
        return is_prepackable(self.workload, stage, tensor) and self.can("prepack", "pack")

    def finished(self) -> Sketch:
        """The sketch, without steps that only say how loops are run and that the backend lacks."""
        name = "+".join(self.labels) if self.labels else "plain"
        dropped = [
            step
            for step in self.steps
            if isinstance(step, _OPTIONAL_STEPS) and not self.can(step_name(step))
        ]
        unused = {
            variable
            for step in dropped
            if isinstance(step, UnrollLimit)
            for variable in step.limit.variables
        }
        params = tuple(param for param in self.params if param.name not in unused)
        steps = tuple(step for step in self.steps if step not in dropped)
        return Sketch(name, self.workload, params, self.constraints, steps)
