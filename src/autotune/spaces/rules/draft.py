"""A sketch under construction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import evolve, field, frozen

from autotune.ir.expressions import const
from autotune.ir.workloads import Axis, Stage, Workload
from autotune.sketches import (
    Constraint,
    Pack,
    PadExtent,
    Parallel,
    Param,
    Sketch,
    Step,
    Unroll,
    UnrollLimit,
    Vectorize,
    is_prepackable,
    step_names,
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

    def can(self, *names: str) -> bool:
        """Return whether the backend can replay all of these steps and variants of steps."""
        return not self.limits.missing(names)

    def can_pad(self, stage: Stage, axis: Axis, packs: Sequence[Pack] = ()) -> bool:
        """Return whether the backend can iterate ``axis`` beyond its extent, epilogue included.

        Args:
            stage: The stage with the axis.
            axis: One of its axes.
            packs: How the stage's operands are packed.
        """
        step = PadExtent(stage.name, axis.name, const(axis.extent))
        fused = ("fuse_consumer.padded",) if stage.name in self.epilogues else ()
        return self.can(*step_names(step, self.workload, packs), *fused)

    def can_prepack(self, stage: Stage, tensor: str) -> bool:
        """Return whether an operand may be packed in blocks before the program runs."""
        steps = ("prepack", "pack.whole", "pack.blocked")
        return is_prepackable(self.workload, stage, tensor) and self.can(*steps)

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
