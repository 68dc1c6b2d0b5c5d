"""Recognition of stages that only surround a tensor with a constant."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from autotune.ir.expressions import (
    AffineForm,
    Binary,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    affine_form,
)
from autotune.ir.workloads.workload import Stage, Workload

__all__ = ["Padding", "padding_of", "padding_of_stage"]


@frozen
class Padding:
    """A part of ``tensor`` between margins of ``value``.

    Attributes:
        tensor: What is padded.
        offsets: Where the part begins in each dimension of ``tensor``.
        sizes: Extents of the part.
        low: Width of the margin before it, per dimension.
        high: Width of the margin behind it, per dimension.
        value: What the margins hold.
    """

    tensor: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    value: Constant


def padding_of(stage: Stage, shape: tuple[int, ...] | None) -> Padding | None:
    """The padding that ``stage`` is; None when it is something else.

    It is one when its body is ``select(conditions, X[axis + shift, ...], constant)``, with one
    shifted axis of the stage per dimension of ``X``, in order, and conditions that hold exactly in
    a box of the iteration space, which must lie inside ``X``.

    Args:
        stage: Any stage.
        shape: Extents of the tensor that it reads first; None when it reads nothing.
    """
    body = stage.body
    if shape is None or stage.combiner is not None or not isinstance(body, Select):
        return None
    if not isinstance(body.on_true, Load) or not isinstance(body.on_false, Constant):
        return None
    shifts = _shifts(stage, body.on_true)
    box = {axis.name: (0, axis.extent) for axis in stage.axes}
    if shifts is None or not _narrow(box, body.condition):
        return None
    bounds = list(box.values())
    offsets = tuple(low + shift for (low, _), shift in zip(bounds, shifts, strict=True))
    sizes = tuple(high - low for low, high in bounds)
    if any(
        size < 1 or offset < 0 or offset + size > extent
        for offset, size, extent in zip(offsets, sizes, shape, strict=True)
    ):
        return None
    return Padding(
        body.on_true.tensor,
        offsets,
        sizes,
        tuple(low for low, _ in bounds),
        tuple(axis.extent - high for axis, (_, high) in zip(stage.axes, bounds, strict=True)),
        body.on_false,
    )


def _shifts(stage: Stage, load: Load) -> list[int] | None:
    """Offset that each index adds to its axis, when dimension ``d`` is read at axis ``d``."""
    if len(load.indices) != len(stage.axes):
        return None
    shifts = []
    for axis, index in zip(stage.axes, load.indices, strict=True):
        form = affine_form(index)
        if form is None or form.coefficients != {axis.name: 1}:
            return None
        shifts.append(form.constant)
    return shifts


def _narrow(box: dict[str, tuple[int, int]], condition: ScalarExpr) -> bool:
    """Restrict ``box`` to where ``condition`` holds; False when that is not a box."""
    for part in _conjuncts(condition):
        if not isinstance(part, Binary):
            return False
        left, right = _form(part.left), _form(part.right)
        if left is None or right is None:
            return False
        if len(left.coefficients) + len(right.coefficients) != 1:
            return False
        # Everything on one side: scale * axis + constant, compared with zero.
        axis, scale = next(
            (name, sign * coefficient)
            for sign, form in ((1, left), (-1, right))
            for name, coefficient in form.coefficients.items()
        )
        half = _half_line(part.op, scale, left.constant - right.constant)
        if half is None:
            return False
        low, high = half
        first, last = box[axis]
        box[axis] = (
            first if low is None else max(first, low),
            last if high is None else min(last, high),
        )
    return True


def _conjuncts(condition: ScalarExpr) -> Iterator[ScalarExpr]:
    if isinstance(condition, Binary) and condition.op == "and":
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _form(side: ScalarExpr) -> AffineForm | None:
    """The affine form of one side of a comparison of indices."""
    if isinstance(side, IndexValue):
        return affine_form(side.index)
    if isinstance(side, Constant) and isinstance(side.value, int):
        return AffineForm({}, side.value)
    return None


def _half_line(op: str, scale: int, constant: int) -> tuple[int | None, int | None] | None:
    """Bounds ``[low, high)`` of the axis where ``scale * axis + constant op 0`` holds."""
    if abs(scale) != 1 or op not in ("lt", "le", "gt", "ge"):
        return None
    if scale < 0:
        op, constant = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}[op], -constant
    if op in ("ge", "gt"):
        return -constant + (op == "gt"), None
    return None, -constant + (op == "le")


def padding_of_stage(stage: Stage, workload: Workload) -> Padding | None:
    """The padding that a stage of a workload is, of one type throughout; None if it is none."""
    if not stage.reads or stage.reads[0] not in workload.tensors:
        return None
    tensor = workload.tensors[stage.reads[0]]
    padding = padding_of(stage, tensor.shape)
    if padding is None or not tensor.dtype == padding.value.dtype == stage.output.dtype:
        return None
    return padding
