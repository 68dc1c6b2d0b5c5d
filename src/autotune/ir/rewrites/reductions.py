"""Reductions as other tools' programs write them, as stages.

There a reduction says what becomes of its results at every point, from what they were before:
``C[i] = C[i] + A[i, k]``. It may have several results, as in sums of numbers and of their squares.
What is computed for one of them does not depend on the others, so that each is a stage of its own;
or they are an extreme value and its index: see :mod:`autotune.ir.rewrites.arg_reductions`.

Reductions whose windows differ from result to result, as ones over windows of one size.

Adaptive pooling is written so where the output does not divide the input: the extents of the loops
depend on which result they reduce to. Windows of one size are those of the largest one. What is
beyond a smaller window is not read; it contributes what the reduction starts with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.expressions.scalar import reads, walk
from autotune.ir.rewrites.arg_reductions import arg_reduction
from autotune.ir.workloads.reference import evaluate_body
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import COMBINERS, Axis, Stage

__all__ = [
    "Reduction",
    "Window",
    "check_start",
    "combined",
    "is_neutral",
    "stages_of",
    "window_of",
    "within_windows",
]


@frozen
class Reduction:
    """A reduction by updates.

    Attributes:
        outputs: What it reduces to; all have the same shape.
        axes: The spatial axes in the order of the outputs' dimensions, and those that are reduced
            over, the outermost loop first.
        updates: What becomes of each output at a point. It reads the outputs as they were before,
            at the spatial axes.
        starts: What each output is before the first point.
    """

    outputs: tuple[Tensor, ...]
    axes: tuple[Axis, ...]
    updates: tuple[ScalarExpr, ...]
    starts: tuple[Constant, ...]

    def before(self, place: int) -> Load:
        """Name of an output's earlier value, as updates read it."""
        own = (var(axis.name) for axis in self.axes if axis.kind != "reduce")
        return Load(self.outputs[place].name, tuple(own))


def stages_of(
    reduction: Reduction, tensors: Mapping[str, Tensor], named: Callable[[str], str]
) -> tuple[Stage, ...]:
    """The stages that compute the outputs of a reduction; an index comes after its value.

    Args:
        reduction: The reduction.
        tensors: What it reads.
        named: Makes a name that no other tensor has.

    Raises:
        UnsupportedWorkload: an update has no such form, or starts with what changes its result.
    """
    found = list(
        filter(None, (_dependence(reduction, at) for at in range(len(reduction.outputs))))
    )
    if not found:
        return tuple(
            stage
            for place in range(len(reduction.outputs))
            for stage in _alone(reduction, place, named)
        )
    before = [reduction.before(place) for place in range(len(reduction.outputs))]
    try:
        made = arg_reduction(reduction.outputs, reduction.axes, reduction.updates, before, tensors)
    except UnsupportedWorkload as reason:
        raise UnsupportedWorkload(
            f"{found[0]}, which it reduces as well, and they are no extreme value and its index "
            f"(argmax, argmin): {reason}"
        ) from None
    check_start(made[0], reduction.starts[reduction.outputs.index(made[0].output)])
    return made


def combined(update: ScalarExpr, before: Load) -> tuple[str, ScalarExpr]:
    """By what an update combines what was there with something else, and that.

    Raises:
        UnsupportedWorkload: it does something else.
    """
    if isinstance(update, Binary) and update.op in (*COMBINERS, *LOGICAL):
        for known, other in ((update.left, update.right), (update.right, update.left)):
            if known == before and all(it.tensor != before.tensor for it in reads(other)):
                return update.op, other
    raise UnsupportedWorkload("its update is not output = output (+, *, max or min) expression")


def is_neutral(stage: Stage, start: Constant) -> bool:
    """Tell if a number that a reduction or a scan starts with changes nothing of its result.

    For max and min so are the finite limits of a type, which many programs write for it, and NaN,
    which the operations that prefer numbers to NaN start from.
    """
    if stage.output.dtype == "bool":
        return bool(start.value) == (stage.combiner in ("mul", "min"))
    identity, element = float(stage.identity()), stage.output.element
    wanted = {identity}
    if math.isinf(identity):
        if math.isnan(start.value):
            return True
        wanted.add(math.copysign(element.largest, identity))
    with np.errstate(over="ignore"):
        # As the program has it, which may write the limits of a wider type.
        stored = element.numbers(element.stored(np.asarray(start.value)))
    return bool(wanted & {float(start.value), float(stored)})


def check_start(stage: Stage, start: Constant) -> None:
    """Check that a stage's reduction or scan may start with ``start``.

    Raises:
        UnsupportedWorkload: that would change its result.
    """
    if not is_neutral(stage, start):
        raise UnsupportedWorkload(
            f"it starts with {start.value}, not the identity of {stage.combiner!r}"
        )


def _dependence(reduction: Reduction, place: int) -> str | None:
    """Dependence of an output on another one; None if there is none."""
    own = reduction.outputs[place].name
    others = {it.name for it in reduction.outputs} - {own}
    for read in reads(reduction.updates[place]):
        if read.tensor in others:
            return f"what it reduces to {own!r} depends on {read.tensor!r}"
    return None


def _alone(reduction: Reduction, place: int, named: Callable[[str], str]) -> tuple[Stage, ...]:
    """The stages of an output that depends on no other."""
    output, start = reduction.outputs[place], reduction.starts[place]
    combiner, element = combined(reduction.updates[place], reduction.before(place))
    if combiner in LOGICAL:
        if bool(start.value) != LOGICAL[combiner].neutral:
            raise UnsupportedWorkload(
                f"it starts with {start.value}, not the identity of {combiner!r}"
            )
        name = named(f"{output.name}_number")
        return reduced_as_numbers(output, reduction.axes, combiner, element, name)
    stage = Stage(output, reduction.axes, element, combiner)
    check_start(stage, start)
    return (stage,)


_BYTE = "int8"


@frozen
class Logical:
    """An operation on truth values.

    Attributes:
        neutral: The truth value that changes nothing.
        combiner: What combines numbers in its place.
    """

    neutral: bool
    combiner: str


LOGICAL: Mapping[str, Logical] = MappingProxyType(
    {"or": Logical(False, "max"), "and": Logical(True, "min")}
)
"""Operations that reduce truth values."""


def reduced_as_numbers(
    output: Tensor, axes: Sequence[Axis], operation: str, element: ScalarExpr, name: str
) -> tuple[Stage, Stage]:
    """The stage that reduces bytes, and the one that compares them.

    Args:
        output: The truth values.
        axes: Of the reduction.
        operation: One of :data:`LOGICAL`.
        element: What it combines.
        name: Of the bytes.
    """
    numbers = Tensor(name, output.shape, _BYTE)
    reduced = Stage(numbers, tuple(axes), Cast(_BYTE, element), LOGICAL[operation].combiner)
    spatial = tuple(axis for axis in axes if axis.kind != "reduce")
    found = Load(name, tuple(var(axis.name) for axis in spatial))
    return reduced, Stage(output, spatial, Binary("gt", found, Constant(0, _BYTE)))


# Windows whose extents are computed to find the largest.
_MOST_WINDOWS = 1 << 20


@frozen
class Window:
    """The windows of all results along one axis.

    Attributes:
        most: The extent of the largest one.
        extent: The extent of each; None where all have the same.
    """

    most: int
    extent: ScalarExpr | None


def window_of(extent: ScalarExpr, axes: Sequence[Axis]) -> Window:
    """Windows by their extent.

    Args:
        extent: A whole number, computed from axes.
        axes: Those of the results.

    Raises:
        UnsupportedWorkload: it is computed from something else, or a window is empty.
    """
    sizes = _values(extent, axes)
    low, high = int(sizes.min()), int(sizes.max())
    if low < 1:
        raise UnsupportedWorkload(f"the window of a result has {low} elements")
    return Window(high, None if low == high else _without_selection(extent, axes))


def within_windows(reduction: Reduction, windows: Mapping[str, Window]) -> Reduction:
    """The reduction without what is beyond smaller windows.

    Args:
        reduction: Over the largest windows.
        windows: By the axis that is reduced over them.

    Raises:
        UnsupportedWorkload: it does not combine what was there with something else.
    """
    inside = [
        Binary("lt", IndexValue(var(axis)), window.extent)
        for axis, window in windows.items()
        if window.extent is not None
    ]
    if not inside:
        return reduction
    condition = reduce(lambda one, other: Binary("and", one, other), inside)
    updates = []
    for place, (update, start) in enumerate(zip(reduction.updates, reduction.starts, strict=True)):
        before = reduction.before(place)
        combiner, element = combined(update, before)
        updates.append(Binary(combiner, before, Select(condition, element, start)))
    return evolve(reduction, updates=tuple(updates))


def _values(expression: ScalarExpr, axes: Sequence[Axis]) -> NDArray[np.int64]:
    """An expression for every value of the axes that it depends on.

    Raises:
        UnsupportedWorkload: it depends on something else, or on too many results.
    """
    if reads(expression):
        raise UnsupportedWorkload("the extent of its window depends on data")
    nodes = [node.index.variables for node in walk(expression) if isinstance(node, IndexValue)]
    used = [axis for axis in axes if any(axis.name in names for names in nodes)]
    count = math.prod(axis.extent for axis in used)
    if count > _MOST_WINDOWS:
        raise UnsupportedWorkload(
            f"its windows have {count} extents, of which at most {_MOST_WINDOWS} are computed"
        )
    ranges = (np.arange(axis.extent) for axis in used)
    grid = dict(zip((axis.name for axis in used), np.ix_(*ranges), strict=True))
    return np.asarray(evaluate_body(expression, grid, {}))


def _without_selection(body: ScalarExpr, axes: Sequence[Axis]) -> ScalarExpr:
    """The same number, quotients rounded up as quotients of sums where they are selections."""
    if isinstance(body, Constant):
        return IndexValue(const(int(body.value)))
    if isinstance(body, Binary) and body.op in ("add", "sub"):
        left, right = (_without_selection(part, axes) for part in (body.left, body.right))
        if not (isinstance(left, IndexValue) and isinstance(right, IndexValue)):
            return Binary(body.op, left, right)
        sign = 1 if body.op == "add" else -1
        return IndexValue(left.index + right.index * sign)
    if isinstance(body, Select) and isinstance(body.on_true, IndexValue):
        quotient = body.on_true.index
        if quotient.op == "floordiv":
            top, divisor = quotient.args
            rounded = IndexValue((top + divisor - 1) // divisor)
            if np.all(_values(rounded, axes) == _values(body, axes)):
                return rounded
    return body
