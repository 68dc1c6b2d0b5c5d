"""Windows that reach into padding, found in what a reduction computes.

A term of a reduction that is its neutral element, such as a product with a zero of the padding,
has not to be computed. Where it is one follows from the conditions of selections, in the stage
itself or in what it reads point by point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    Load,
    ScalarExpr,
    Select,
    Unary,
    affine_form,
    const,
    substitute,
)
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import BoundLoop
from autotune.spaces.rules.access import index_of_value, is_pointwise, producer_stage

__all__ = ["PaddedWindow", "padded_windows", "window_bounds"]

# Of other axes inside a loop over taps: with three channels a bound costs nothing.
_FEWEST_TERMS = 3

# A sum of axes, times coefficients, and the values that it takes; None: without an end.
_Sum = tuple[tuple[str, int], ...]
_Range = tuple[int | None, int | None]
_Ranges = Mapping[_Sum, _Range]

_OPPOSITE = {"le": "gt", "lt": "ge", "gt": "le", "ge": "lt"}
# What a difference of two numbers is where they compare so.
_DIFFERENCES: Mapping[str, _Range] = {
    "le": (None, 0),
    "lt": (None, -1),
    "gt": (1, None),
    "ge": (0, None),
    "eq": (0, 0),
}


@frozen
class PaddedWindow:
    """Dimension of a window, and its place on what it moves over.

    A term reads position ``scale * tap + stride * result``.

    Attributes:
        tap: The reduce axis.
        result: The spatial axis.
        scale: Distance of taps; positive.
        stride: Distance of results; not 0.
        least: First position that is no padding; None where none before it is read.
        most: Last position that is no padding, or that is read.
    """

    tap: str
    result: str
    scale: int
    stride: int
    least: int | None
    most: int


def window_bounds(workload: Workload, stage: Stage, called: Sequence[str]) -> Iterator[BoundLoop]:
    """Steps that leave out taps on nothing but padding, where this is worth its while.

    A loop over taps is bounded where one over other terms is inside it, such as over channels.
    Where there is none, as in a depthwise convolution or with channels first, a bound takes longer
    than what it leaves out.

    Args:
        workload: Of which the stage is.
        stage: A reduction, whose outermost loops over reduce axes are in the order of these.
        called: Loops that become one call of an instruction.
    """
    windows, reduced = padded_windows(workload, stage), [axis.name for axis in stage.reduce_axes]
    taps = {it.tap for it in windows}
    in_calls = {loop.rpartition(".")[0] for loop in called}
    for it in windows:
        inside = stage.reduce_axes[reduced.index(it.tap) :]
        terms = math.prod(axis.extent for axis in inside if axis.name not in taps)
        if terms >= _FEWEST_TERMS and not in_calls & {it.tap, it.result}:
            least = None if it.least is None else const(it.least)
            numbers = const(it.most), it.scale, it.stride, least
            yield BoundLoop(stage.name, f"{it.tap}.0", it.result, *numbers)


def padded_windows(workload: Workload, stage: Stage) -> list[PaddedWindow]:
    """The dimensions of a reduction's window that reach into padding, one for each reduce axis."""
    if stage.combiner is None or not stage.reduce_axes:
        return []
    ranges = _Terms(workload, stage.identity()).ranges(stage.body)
    found: dict[str, PaddedWindow] = {}
    for axes, (least, most) in (ranges or {}).items():
        window = _window(stage, dict(axes), least, most)
        if window is not None:
            found.setdefault(window.tap, window)
    return list(found.values())


def _window(
    stage: Stage, coefficients: dict[str, int], least: int | None, most: int | None
) -> PaddedWindow | None:
    """The window over these axes; None where it is none, or never reaches beyond the ends."""
    taps = [axis.name for axis in stage.reduce_axes if axis.name in coefficients]
    results = [axis.name for axis in stage.spatial_axes if axis.name in coefficients]
    if len(taps) != 1 or len(results) != 1 or len(coefficients) != 2:
        return None
    if coefficients[taps[0]] < 0:
        coefficients = {name: -value for name, value in coefficients.items()}
        least, most = (None if end is None else -end for end in (most, least))
    reach = {name: value * (stage.extents[name] - 1) for name, value in coefficients.items()}
    lowest, highest = (sum(end(value, 0) for value in reach.values()) for end in (min, max))
    if least is not None and least <= lowest:
        least = None
    if most is None or most >= highest:
        most = highest
    if least is None and most == highest:
        return None
    scale, stride = coefficients[taps[0]], coefficients[results[0]]
    return PaddedWindow(taps[0], results[0], scale, stride, least, most)


@frozen
class _Terms:
    """Where terms are not the neutral element.

    Attributes:
        workload: Of which the stages are.
        neutral: The neutral element.
    """

    workload: Workload
    neutral: float

    def ranges(self, body: ScalarExpr) -> _Ranges | None:
        """Ranges of sums of axes wherever a term may be anything else; None if it never is."""
        if isinstance(body, Constant):
            return None if body.value == self.neutral else {}
        if isinstance(body, Load):
            producer = producer_stage(self.workload, body.tensor)
            if producer is None or not is_pointwise(producer):
                return {}
            names = [axis.name for axis in producer.spatial_axes]
            values = dict(zip(names, body.indices, strict=True))
            return self.ranges(substitute(producer.body, values))
        if isinstance(body, Select):
            return _either(
                _both(_where(body.condition, True), self.ranges(body.on_true)),
                _both(_where(body.condition, False), self.ranges(body.on_false)),
            )
        if self.neutral != 0:
            return {}
        # Zero stays zero.
        if isinstance(body, Cast) or (isinstance(body, Unary) and body.op == "neg"):
            return self.ranges(body.operand)
        if isinstance(body, Binary) and body.op == "mul":
            return _both(self.ranges(body.left), self.ranges(body.right))
        return {}


def _where(condition: ScalarExpr, holds: bool) -> _Ranges:
    """Ranges of sums of axes where a condition holds, or does not."""
    if isinstance(condition, Unary) and condition.op == "not":
        return _where(condition.operand, not holds)
    if not isinstance(condition, Binary):
        return {}
    if condition.op == ("and" if holds else "or"):
        both = _both(_where(condition.left, holds), _where(condition.right, holds))
        return both or {}
    op = condition.op if holds else _OPPOSITE.get(condition.op, "")
    left, right = index_of_value(condition.left), index_of_value(condition.right)
    form = None if left is None or right is None else affine_form(left - right)
    if form is None or not form.coefficients or op not in _DIFFERENCES:
        return {}
    axes = sorted(form.coefficients.items())
    least, most = (None if end is None else end - form.constant for end in _DIFFERENCES[op])
    if axes[0][1] < 0:
        axes = [(name, -value) for name, value in axes]
        least, most = (None if end is None else -end for end in (most, least))
    return {tuple(axes): (least, most)}


def _both(left: _Ranges | None, right: _Ranges | None) -> _Ranges | None:
    """Ranges of sums where two conditions hold."""
    if left is None or right is None:
        return None
    found = dict(left)
    for axes, (least, most) in right.items():
        known = found.get(axes, (None, None))
        found[axes] = (
            max((it for it in (least, known[0]) if it is not None), default=None),
            min((it for it in (most, known[1]) if it is not None), default=None),
        )
    return found


def _either(left: _Ranges | None, right: _Ranges | None) -> _Ranges | None:
    """Ranges of sums where either of two conditions holds."""
    if left is None or right is None:
        return right if left is None else left
    found = {}
    for axes in left.keys() & right.keys():
        (first, last), (least, most) = left[axes], right[axes]
        found[axes] = (
            None if first is None or least is None else min(first, least),
            None if last is None or most is None else max(last, most),
        )
    return found
