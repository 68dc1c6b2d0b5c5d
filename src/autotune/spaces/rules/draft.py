"""A sketch under construction, and the splits of axes that it is made of."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, field, frozen

from autotune.ir.expressions import IntExpr, const, var
from autotune.ir.workloads import Axis, Stage, Workload
from autotune.sketches import (
    Accumulate,
    AtLeast,
    AtMost,
    Constraint,
    Factor,
    FuseConsumer,
    Ordinal,
    PadExtent,
    Parallel,
    Param,
    ProductEquals,
    Sketch,
    Step,
    Tile,
    TileCeil,
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


Domain = tuple[int, ...] | None
"""Extents that a loop may have; None: every divisor of the axis's."""


@frozen
class Split:
    """An axis split into loops, with what that brings along.

    Attributes:
        stage: The stage.
        axis: The axis.
        factors: Extents of the loops, outermost first.
        params: Parameters that they are made of.
        constraints: What relates these.
        padded: What the axis is iterated to; None: its own extent.
        covers: Whether the loops may pass the axis's extent.
    """

    stage: str
    axis: str
    factors: tuple[IntExpr, ...]
    params: tuple[Param, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    padded: IntExpr | None = None
    covers: bool = False

    @property
    def step(self) -> Tile | TileCeil:
        """The step that splits the axis."""
        return (TileCeil if self.covers else Tile)(self.stage, self.axis, self.factors)


def split(
    stage: str,
    axis: Axis,
    *domains: Domain,
    inner: int | None = None,
    extents: tuple[int, ...] = (),
    name: str = "",
) -> Split:
    """Loops over an axis with a parameter for the extent of each.

    Args:
        stage: Name of the stage.
        axis: Its axis.
        domains: Extents that each loop may have, outermost first.
        inner: Extent of one more loop inside these; None for none.
        extents: To choose from for the axis, where these are others than its own alone.
        name: What parameters are called, before the number of the loop.
    """
    name = name or f"{stage}.{axis.name}"
    names = tuple(f"{name}.{level}" for level in range(len(domains)))
    params: list[Param] = [*map(Factor, names, domains)]
    total, padded = const(axis.extent // (inner or 1)), None
    if extents and extents != (axis.extent,):
        total = padded = var(f"{name}.extent")
        params.insert(0, Ordinal(f"{name}.extent", extents))
    factors = (*map(var, names), *([] if inner is None else [const(inner)]))
    products = (ProductEquals(names, total),)
    return Split(stage, axis.name, factors, tuple(params), products, padded)


def loops(axes: Iterable[Axis], level: int = 0) -> tuple[str, ...]:
    """The loops of one level over some axes."""
    return tuple(f"{axis.name}.{level}" for axis in axes)


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
        settled: Iterable[str] = (),
        label: str | None = None,
        splits: Iterable[Split] = (),
        params: Iterable[Param] = (),
        constraints: Iterable[Constraint] = (),
        steps: Iterable[Step] = (),
    ) -> SketchDraft:
        """Extend this draft by more of everything, and settle the given stages.

        What splits bring along comes before the other parameters, constraints and steps.
        """
        splits = tuple(splits)
        padding = [
            PadExtent(it.stage, it.axis, it.padded) for it in splits if it.padded is not None
        ]
        return evolve(
            self,
            labels=self.labels + ((label,) if label else ()),
            params=(*self.params, *(param for it in splits for param in it.params), *params),
            constraints=(
                *self.constraints,
                *(constraint for it in splits for constraint in it.constraints),
                *constraints,
            ),
            steps=(*self.steps, *padding, *(it.step for it in splits), *steps),
            settled=self.settled | frozenset(settled),
        )

    def with_epilogue(self, producer: str, consumer: str) -> SketchDraft:
        """Mark ``consumer`` to be fused into the loops of ``producer``."""
        return evolve(
            self,
            epilogues={**self.epilogues, producer: consumer},
            settled=self.settled | {consumer},
        )

    @property
    def on_gpu(self) -> bool:
        """True if loops are bound to blocks and threads, and not run by cores in vectors."""
        return self.target.kind == "cuda"

    def written(
        self, stage: str, at: str, factors: tuple[IntExpr, ...]
    ) -> Accumulate | FuseConsumer:
        """The step that writes a stage's tile back, through the epilogue if there is one."""
        consumer = self.epilogues.get(stage)
        if consumer is None:
            return Accumulate(stage, at, factors)
        return FuseConsumer(consumer, stage, at, factors)

    def shared(self, parallel: IntExpr, most: int) -> list[Constraint]:
        """A preference for work on every core, where there are ``most`` parallel iterations."""
        cores = self.target.cores
        enough = AtLeast(parallel, cores, "every core gets work", hard=False)
        return [enough] if most >= cores else []

    def bounded(self, unrolled: IntExpr, tile_bytes: IntExpr | None = None) -> list[Constraint]:
        """The backend's limits of statements unrolled together, and of a tile on the stack."""
        limits = self.limits
        body = AtMost(unrolled, limits.unrolled_statements, f"{limits.source}: unrolled body")
        if tile_bytes is None:
            return [body]
        source = f"{limits.source}: accumulate tile on the stack"
        return [body, AtMost(tile_bytes, limits.stack_bytes, source)]

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
