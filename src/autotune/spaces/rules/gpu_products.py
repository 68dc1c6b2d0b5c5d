"""Stages as products of matrices by an instruction: their factors, extents and levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import evolve, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import AffineForm, Binary, Cast, IntExpr, Load, const, var
from autotune.ir.workloads import Axis, Stage
from autotune.nest.loop_nest import is_axis
from autotune.sketches import Ordinal, PadExtent, Step, result_axes
from autotune.sketches.intrinsics import Digit, Intrinsic, result_levels
from autotune.spaces.rules.access import operand_forms, round_up
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.gpu_layouts import CoreLayout, Forms, RowLayout
from autotune.spaces.rules.tile_params import padded_extents

__all__ = ["FactorLayout", "MatrixFactor", "MatrixProduct", "apart_from", "match_product"]

# `ldmatrix` and `wgmma` transpose elements of two bytes.
_TRANSPOSED_BYTES = 2
# A row of a core matrix.
_CORE_ROW_BYTES = 16
# Fragments whose multiples are worth padding to, where that adds little.
_USEFUL_CALLS = (1, 2, 4, 8)
# Padding to whole fragments makes no axis longer than so many times its extent.
_MOST_PADDED = 2
# What a tile's own levels begin with: blocks, warps (or warpgroups), and its fragments.
_OUTER_LEVELS = 3


class FactorLayout(Protocol):
    """Layout of a factor in shared memory."""

    @property
    def param(self) -> Ordinal | None:
        """The parameter that chooses it; None where there is no choice."""

    @property
    def is_turned(self) -> bool:
        """True if rows lie along another dimension than the operand's last."""

    def elements(self, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
        """Allocated elements of the region that an access spans."""

    def step(self, stage: str, operand: str) -> Step | None:
        """The step that lays the operand out; None where it lies as it is indexed."""


@frozen
class MatrixFactor:
    """Factor of the product.

    Attributes:
        tensor: The tensor.
        forms: Where it is read; the last two dimensions are its spatial axis and the reduce axis.
        axis: Its spatial axis.
        layout: How it lies in shared memory.
    """

    tensor: str
    forms: tuple[AffineForm, ...]
    axis: str
    layout: FactorLayout


@frozen
class MatrixProduct:
    """A stage as calls of an instruction.

    Attributes:
        stage: The stage.
        call: The instruction.
        left: The factor that moves with the rows of the result.
        right: The factor that moves with its columns.
        extents: By axis, what it may be iterated to: multiples of the instruction's extent.
    """

    stage: Stage
    call: Intrinsic
    left: MatrixFactor
    right: MatrixFactor
    extents: Mapping[str, tuple[int, ...]]

    @property
    def factors(self) -> tuple[MatrixFactor, MatrixFactor]:
        """Both factors."""
        return (self.left, self.right)

    @property
    def axes(self) -> tuple[str, str, str]:
        """Rows and columns of the result, and the reduce axis."""
        return (self.left.axis, self.right.axis, self.stage.reduce_axes[0].name)

    @property
    def batch(self) -> tuple[Axis, ...]:
        """Axes that number products."""
        return _batch(self.stage, {self.left.axis, self.right.axis})

    def name(self, axis: str, level: int) -> str:
        """Name of the parameter of one level of an axis."""
        return f"{self.stage.name}.{axis}.{level}"

    def factor(self, axis: str, level: int) -> IntExpr:
        """Factor of a level of an axis."""
        return var(self.name(axis, level))

    def call_extent(self, axis: str) -> int:
        """Distance that a call of the instruction reaches along an axis."""
        rows, columns, _ = self.axes
        places = {rows: 0, columns: 1}
        if axis in places:
            return self.call.spatial_axes[places[axis]].extent
        return self.call.reduce_axes[0].extent

    def lane_levels(self) -> tuple[str, ...]:
        """Levels of rows and columns that are the lanes of the instruction, outermost first."""
        return self._levels_of_result(of_lanes=True)

    def kept_levels(self) -> tuple[str, ...]:
        """Levels of rows and columns that a lane has of one call's results."""
        return self._levels_of_result(of_lanes=False)

    def step_level(self) -> str:
        """The level of the reduce axis that one group of instructions takes."""
        last = 1 if self.call.is_of_warpgroup else 2
        return f"{self.axes[2]}.{last}"

    def calls(self, axis: str) -> IntExpr:
        """Calls along an axis: one parameter, where there is a choice."""
        extents = self.extents[axis]
        if len(extents) > 1:
            return var(f"{self.stage.name}.{axis}.calls")
        return const(extents[0] // self.call_extent(axis))

    def padding(self, axis: str) -> PadExtent | None:
        """The step that pads one of `axes`; None where its own extent is the only one."""
        if self.extents[axis] == (self.stage.axis(axis).extent,):
            return None
        return PadExtent(self.stage.name, axis, self.calls(axis) * self.call_extent(axis))

    def chosen(self, axis: str) -> tuple[str, ...]:
        """Parameters of the levels of an axis: those outside one call."""
        count = 2 if axis == self.axes[2] else _OUTER_LEVELS
        return tuple(self.name(axis, level) for level in range(count))

    def levels(self, axis: str) -> tuple[IntExpr, ...]:
        """All levels of an axis, outermost first.

        One group of a warpgroup's instructions takes all terms that are fetched together.
        """
        outer = tuple(map(var, self.chosen(axis)))
        if axis != self.axes[2]:
            return (*outer, *(const(digit.extent) for digit in self._digits(axis)))
        if self.call.is_of_warpgroup:
            return (outer[0], outer[1] * self.call_extent(axis))
        return (*outer, const(self.call_extent(axis)))

    def _digits(self, axis: str) -> tuple[Digit, ...]:
        own = self.call.spatial_axes[self.axes.index(axis)]
        return result_levels(self.call, own.name)

    def _levels_of_result(self, *, of_lanes: bool) -> tuple[str, ...]:
        fragment = self.call.result.fragment
        lanes = () if fragment is None else fragment.lanes
        return tuple(
            f"{axis}.{level}"
            for axis in self.axes[:2]
            for level, digit in enumerate(self._digits(axis), _OUTER_LEVELS)
            if (digit in lanes) == of_lanes
        )


def match_product(draft: SketchDraft, stage: Stage, call: Intrinsic) -> MatrixProduct | None:
    """The stage as calls of an instruction, or None."""
    plain = stage.combiner == "add" and stage.output.dtype == call.result.dtype
    if not plain or len(stage.spatial_axes) < 2 or len(stage.reduce_axes) != 1:
        return None
    loads, result = _factors(stage, call), result_axes(stage)
    if result is None:
        return None
    rows, columns = result
    own = (rows, stage.reduce_axes[0], columns)
    extents = {
        axis.name: _extents(draft, stage, axis, of_call.extent)
        for axis, of_call in zip(own, call.axes, strict=True)
    }
    if not all(extents.values()):
        return None
    batch = {axis.name for axis in _batch(stage, {rows.name, columns.name})}
    for first, second in (loads, loads[::-1]) if loads else ():
        left = _factor(draft, stage, call, first, rows.name, batch)
        right = _factor(draft, stage, call, second, columns.name, batch)
        if left is not None and right is not None and first != second:
            return MatrixProduct(stage, call, left, right, extents)
    return None


def _batch(stage: Stage, result: set[str]) -> tuple[Axis, ...]:
    """Axes of the result beside rows and columns."""
    return tuple(axis for axis in stage.spatial_axes if axis.name not in result)


def apart_from(form: AffineForm, batch: set[str]) -> AffineForm:
    """An index without what is the same for all of a block: the axes of a batch."""
    kept = {name: value for name, value in form.coefficients.items() if name not in batch}
    return evolve(form, coefficients=kept)


def _extents(draft: SketchDraft, stage: Stage, axis: Axis, of_call: int) -> tuple[int, ...]:
    """Multiples of a call's extent that an axis may be iterated to; empty where there are none.

    Beyond a part of a reduction are the terms of the next one, and no zeros.
    """
    whole = round_up(axis.extent, of_call)
    reads = [form for load in stage.loads for form in stage.forms(load) if axis.name in form.axes]
    if not draft.can("pad_extent") or not all(map(is_axis, reads)):
        return (whole,) if whole == axis.extent else ()
    if whole > _MOST_PADDED * axis.extent:
        return ()
    useful = padded_extents(axis.extent, tuple(of_call * count for count in _USEFUL_CALLS), 0)
    return tuple(sorted({whole, *(extent for extent in useful if extent % of_call == 0)}))


def _factors(stage: Stage, call: Intrinsic) -> tuple[str, ...]:
    """Tensors whose elements the stage multiplies after converting them to the result's type."""
    body = stage.body
    if not isinstance(body, Binary) or body.op != "mul":
        return ()
    found = []
    widened = call.left.dtype != call.result.dtype
    for side in (body.left, body.right):
        if widened and not (isinstance(side, Cast) and side.dtype == call.result.dtype):
            return ()
        load = side.operand if isinstance(side, Cast) and widened else side
        if not isinstance(load, Load):
            return ()
        found.append(load.tensor)
    return tuple(found)


def _factor(
    draft: SketchDraft, stage: Stage, call: Intrinsic, tensor: str, axis: str, batch: set[str]
) -> MatrixFactor | None:
    """A factor that moves with one spatial axis and the reduce axis in its last two dimensions.

    Other dimensions move with the axes of a batch, and these two may move with one as well. Bytes
    must lie along the reduction for an instruction to read them, so where they do not, the copy in
    shared memory is transposed.
    """
    known = draft.workload.tensors[tensor]
    if known.dtype != call.left.dtype:
        return None
    try:
        forms = operand_forms(stage, tensor)
    except UnsupportedWorkload:
        return None
    reduce = stage.reduce_axes[0].name
    inner = [apart_from(form, batch) for form in forms]
    moving = [next(iter(form.coefficients), "") for form in inner]
    if not all(map(is_axis, inner[-2:])) or set(moving[-2:]) != {axis, reduce}:
        return None
    if any(moving[:-2]) or not all(map(is_axis, forms[:-2])):
        return None
    dims = list(range(len(forms)))
    if moving[-1] == axis and known.element.bytes != _TRANSPOSED_BYTES:
        dims[-2:] = dims[:-3:-1]
    name = f"{stage.name}.{tensor}.pad"
    if call.is_of_warpgroup:
        row = _CORE_ROW_BYTES // known.element.bytes
        core = CoreLayout(tuple(dims), row, var(name), Ordinal(name, (0, 1)))
        return MatrixFactor(tensor, forms, axis, core)
    vector = draft.target.vector_bytes // known.element.bytes
    layout = RowLayout(tuple(dims), var(name), Ordinal(name, (0, vector)))
    return MatrixFactor(tensor, forms, axis, layout)
