"""Fetches of a kernel ahead of what computes on them, by asynchronous copies to shared memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from attrs import frozen

from autotune.ir.expressions import Constant, IntExpr, Load, ScalarExpr, Select, const, var
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Stage
from autotune.sketches import (
    AtLeast,
    Constraint,
    CooperativeFetch,
    CoreMatrices,
    Inline,
    Ordinal,
    Param,
    PipelineFetches,
    SharedLayout,
    Step,
    Tile,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.targets import compute_capability, most_shared_memory

__all__ = ["DEPTHS", "FetchPipeline", "fetch_pipeline", "is_moved"]

DEPTHS = (1, 2, 3, 4)
"""Stages to choose from: more hide no more latency than they cost residency."""

_FIRST_CAPABILITY = 80
# What one asynchronous copy of a thread moves.
_COPIED_BYTES = (4, 8, 16)


@frozen
class FetchPipeline:
    """Number of iterations of a loop that have what they fetch in shared memory at once.

    Attributes:
        depth: The number.
        shared_bytes: Shared memory that a block may have.
        params: The parameter that chooses it; none where everything is waited for.
        steps: The step that says so, where there is a choice.
        constraints: What the loop allows.
    """

    depth: IntExpr
    shared_bytes: int
    params: tuple[Param, ...] = ()
    steps: tuple[Step, ...] = ()
    constraints: tuple[Constraint, ...] = ()


def fetch_pipeline(
    draft: SketchDraft,
    stage: Stage,
    at: str,
    params: Sequence[Param],
    steps: Sequence[Step],
    depths: Sequence[int] = DEPTHS,
) -> FetchPipeline:
    """The stages to choose from, where everything that is fetched can be copied asynchronously.

    Args:
        draft: What is decided so far.
        stage: What the operands are fetched for.
        at: The loop inside which they are.
        params: Parameters of the kernel.
        steps: Its steps; only what is fetched has anything computed on the way.
        depths: Stages to choose from, where there are as many iterations.
    """
    waiting = FetchPipeline(const(1), draft.target.shared_memory_bytes)
    capable = compute_capability(draft.target.processor) >= _FIRST_CAPABILITY
    moved = all(
        is_moved(draft.workload.stage(step.stage).body)
        for step in steps
        if isinstance(step, Inline)
    )
    fetches = [step for step in steps if isinstance(step, CooperativeFetch) and step.at == at]
    single = {it.operand for it in fetches if _values(it.lanes, params) == (1,)}
    turned = any(_is_turned(draft, step, single) for step in steps)
    if not (capable and moved and draft.can("pipeline_fetches")) or turned:
        return waiting
    rounds, most = _rounds(stage, at, steps)
    depths = tuple(depth for depth in depths if depth <= most)
    copied = all(
        width * draft.workload.tensors[fetch.operand].element.bytes in _COPIED_BYTES
        for fetch in fetches
        for width in _values(fetch.lanes, params)
    )
    if not (fetches and copied and max(depths, default=1) > 1):
        return waiting
    name = f"{stage.name}.stages"
    return FetchPipeline(
        var(name),
        most_shared_memory(draft.target),
        (Ordinal(name, depths),),
        (PipelineFetches(stage.name, at, var(name)),),
        (AtLeast(rounds - var(name), 0, "as many iterations as stages"),),
    )


def _is_turned(draft: SketchDraft, step: Step, single: Collection[str]) -> bool:
    """Return whether a step lays neighbours that are copied together out in different rows.

    In core matrices those are fine that are copied one by one: ``single``.
    """
    if isinstance(step, CoreMatrices):
        last = len(draft.workload.tensors[step.operand].shape) - 1
        return step.dim != last and step.operand not in single
    return isinstance(step, SharedLayout) and list(step.dims) != sorted(step.dims)


def is_moved(body: ScalarExpr) -> bool:
    """Return whether a stage moves elements of a tensor, with zeros where there are none."""
    if isinstance(body, Select):
        other = body.on_false
        return isinstance(other, Constant) and other.value == 0 and is_moved(body.on_true)
    return isinstance(body, Load)


def _rounds(stage: Stage, at: str, steps: Sequence[Step]) -> tuple[IntExpr, int]:
    """Iterations of the outermost loop of an axis, and how many there may be."""
    axis = at.rpartition(".")[0]
    (tile,) = (step for step in steps if isinstance(step, Tile) and step.axis == axis)
    # Every parameter is at least 1.
    least = [evaluate(it, dict.fromkeys(it.variables, 1)) for it in tile.factors]
    return tile.factors[0], -(-stage.axis(axis).extent // math.prod(map(int, least)))


def _values(lanes: IntExpr, params: Sequence[Param]) -> tuple[int, ...]:
    """Values that a width may have; none where that is not listed."""
    if lanes.value is not None:
        return (lanes.value,)
    found = [param.values for param in params if param.name in lanes.variables]
    return tuple(found[0] or (0,)) if found else (0,)
