"""Running sums, and loops of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.errors import InvalidValueError
from autotune.ir.expressions import Binary, IndexValue, IntExpr, ScalarExpr, Select, const, var
from autotune.ir.workloads import Axis, Stage, Tensor
from autotune.networks.graph.graph import Graph, Loop, Value, input_value
from autotune.networks.graph.making import (
    HALVES,
    compute,
    load,
    normal_axis,
    program,
    rounded,
    widened,
)
from autotune.networks.graph.movement import flip
from autotune.networks.graph.scalars import scalar_constant

__all__ = ["Step", "loop", "scan"]

Step = Callable[
    [Sequence[Value], Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]
]
"""From states, slices and what every step reads whole to the next states and what is kept."""


def scan(
    combiner: str, x: Value, axis: int, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Each element combined with all before it along an axis.

    Args:
        combiner: ``add``, ``mul``, ``max`` or ``min``.
        x: A tensor; halves are added up in float32.
        axis: The axis.
        exclusive: Whether an element itself is left out.
        reverse: Whether it is all behind it.
    """
    axis = normal_axis(axis, x.rank)
    if reverse:
        return flip(scan(combiner, flip(x, [axis]), axis, exclusive), [axis])
    total = "float32" if x.dtype in HALVES else x.dtype
    kinds = ["scan" if at == axis else "spatial" for at in range(x.rank)]
    axes = tuple(
        Axis(f"i{at}", extent, kind)
        for at, (extent, kind) in enumerate(zip(x.shape, kinds, strict=True))
    )
    here: list[IntExpr] = [var(it.name) for it in axes]
    identity = Stage(Tensor("y", (), total), (), scalar_constant(0, total).body, combiner)

    def stages(given: Sequence[Tensor]) -> list[Stage]:
        if exclusive:
            before = [*here[:axis], here[axis] - 1, *here[axis + 1 :]]
            there = Binary("ge", IndexValue(here[axis]), IndexValue(const(1)))
            body: ScalarExpr = Select(
                there,
                widened(load(given[0], before), x.dtype),
                scalar_constant(identity.identity(), total).body,
            )
        else:
            body = widened(load(given[0], here), x.dtype)
        stage = Stage(Tensor("y", x.shape, total), axes, body, combiner)
        return rounded([stage], x.dtype)

    return program("scan", [x], stages)


def loop(
    step: Step,
    trips: int,
    states: Sequence[Value],
    slices: Sequence[Value] = (),
    fixed: Sequence[Value] = (),
    reverse: Sequence[bool] = (),
    kept_reverse: Sequence[bool] = (),
) -> tuple[list[Value], list[Value]]:
    """A step that runs ``trips`` times, on the states that it left.

    Args:
        step: Builds one step from values that stand for its operands. What it reads beside them
            has to be constant.
        trips: How often.
        states: The first states.
        slices: Read a slice at a time along their first axis, which is as long as ``trips``.
        fixed: Read whole by every step.
        reverse: By slice, whether it is read from its end; no by default.
        kept_reverse: By what is kept, whether it is filled from its end; no by default.

    Returns:
        The last states, and what is kept of all steps, stacked along a first axis.

    Raises:
        InvalidValueError: nothing runs, a slice is not as long, or a state changes its shape.
    """
    if trips < 1:
        raise InvalidValueError(f"a loop runs at least once, not {trips} times")
    for value in slices:
        if value.shape[:1] != (trips,):
            raise InvalidValueError(f"{value!r} has no {trips} slices")
    groups = [
        [input_value(f"state{at}", it.shape, it.dtype) for at, it in enumerate(states)],
        [input_value(f"slice{at}", it.shape[1:], it.dtype) for at, it in enumerate(slices)],
        [input_value(f"fixed{at}", it.shape, it.dtype) for at, it in enumerate(fixed)],
    ]
    after, kept = step(*groups)
    for old, new in zip(states, after, strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise InvalidValueError(f"a state of a loop is {old!r}, and {new!r} after a step")
    outputs = {f"out{at}": it for at, it in enumerate((*after, *kept))}
    body = Graph(tuple(it for group in groups for it in group), outputs)
    operation = Loop(
        body,
        trips,
        len(states),
        len(slices),
        tuple(reverse) or (False,) * len(slices),
        tuple(kept_reverse) or (False,) * len(kept),
    )
    results = [(it.shape, it.dtype) for it in after]
    results += [((trips, *it.shape), it.dtype) for it in kept]
    found = list(compute(operation, [*states, *slices, *fixed], results))
    return found[: len(states)], found[len(states) :]
