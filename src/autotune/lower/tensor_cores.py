"""Products on tensor cores, in kernels: a statement's innermost loops as instructions of warps.

All threads of a warp, or of four, call one function (:mod:`autotune.lower.instructions.warps` and
:mod:`~autotune.lower.instructions.warpgroups`) with their own results and with where the first of
them reads either factor. Results of a thread lie fragment after fragment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from attrs import evolve, frozen

from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune.lower.concrete import ConcreteStatement
from autotune.lower.instructions import warpgroups, warps
from autotune.lower.instructions.warpgroups import WarpgroupTile
from autotune.lower.instructions.warps import WarpTile
from autotune.lower.linear import Linear
from autotune.lower.places import Place
from autotune.lower.state import State
from autotune.nest.loop_nest import Access
from autotune.sketches import result_axes
from autotune.sketches.intrinsics import Digit, Intrinsic, result_levels

__all__ = [
    "Factor",
    "Fragments",
    "MatrixProduct",
    "fragments_of",
    "is_of_warps",
    "product_of",
    "registers_of",
    "rounded_copies",
]


def is_of_warps(intrinsic: Intrinsic | None) -> bool:
    """Tell whether an instruction is one of warps, whose results are in registers of all lanes."""
    return intrinsic is not None and intrinsic.kind == "cuda" and intrinsic.lanes > 1


@frozen
class Fragments:
    """The places of a thread's results among each other.

    Attributes:
        axes: For the rows and the columns: their dimension in the buffer, the extent of an
            instruction, and the level of which a lane has all values.
    """

    axes: tuple[tuple[int, int, Digit], tuple[int, int, Digit]]

    def laid_out(self, place: Place) -> Place:
        """The place with rows outside of columns, and other dimensions around both."""
        last = tuple(dim for dim, _, _ in self.axes)
        others = (dim for dim in range(len(place.shape)) if dim not in last)
        return evolve(place, order=(*others, *last))

    def numbered(self, indices: Sequence[Linear]) -> list[Linear]:
        """Indices that count the results of a thread, of those that count results.

        Raises:
            UnsupportedWorkload: one moves by what is neither a fragment nor within one.
        """
        found = list(indices)
        for dim, extent, kept in self.axes:
            terms = []
            for digit, distance in found[dim].terms:
                fragments, rest = divmod(distance, extent)
                step, beside = divmod(rest, kept.stride)
                if (fragments and rest) or beside or found[dim].constant:
                    raise UnsupportedWorkload(f"results {distance} apart are in other threads")
                terms.append((digit, fragments * kept.extent + step))
            found[dim] = Linear(tuple(terms))
        return found


def fragments_of(
    statements: Sequence[ConcreteStatement], workload: Workload
) -> dict[str, Fragments]:
    """The fragments of each buffer that instructions of warps add to."""
    return {
        it.write.buffer: _fragments(it, it.intrinsic, workload)
        for it in statements
        if it.intrinsic is not None and is_of_warps(it.intrinsic)
    }


def _fragments(statement: ConcreteStatement, call: Intrinsic, workload: Workload) -> Fragments:
    dims = []
    for axis in _result_axes(statement, workload):
        (dim,) = (dim for dim, form in enumerate(statement.write.forms) if axis in form.axes)
        dims.append(dim)
    rows, columns = (
        (dim, own.extent, _kept(call, own.name))
        for dim, own in zip(dims, call.spatial_axes, strict=True)
    )
    return Fragments((rows, columns))


def _result_axes(statement: ConcreteStatement, workload: Workload) -> tuple[str, str]:
    found = result_axes(workload.stage(statement.source.stage))
    if found is None:
        raise UnsupportedWorkload(f"{statement.name!r} has no rows or no columns")
    return found[0].name, found[1].name


def _kept(call: Intrinsic, axis: str) -> Digit:
    """The level of a spatial axis of which each lane has all values."""
    fragment = call.result.fragment
    lanes = () if fragment is None else fragment.lanes
    (kept,) = (digit for digit in result_levels(call, axis) if digit not in lanes)
    return kept


def rounded_copies(statements: Sequence[ConcreteStatement]) -> dict[str, Intrinsic]:
    """The instructions that take copies rounded, by the names of the copies."""
    return {
        access.buffer: it.intrinsic
        for it in statements
        if it.intrinsic is not None and it.intrinsic.rounds_when_fetched
        for access in it.source.accesses
        if access.buffer != it.write.buffer
    }


def registers_of(statement: ConcreteStatement) -> int:
    """Registers of a thread for the tile of its warp; 0 where the compiler decides."""
    call = statement.intrinsic
    if call is None or not is_of_warps(call) or call.is_of_warpgroup:
        return 0
    down, across = (loop.extent for loop in statement.loops[statement.body_depth :][:2])
    return warps.registers(WarpTile(call, down, across, True, True))


@frozen(eq=False)
class Factor:
    """A factor's copy in shared memory.

    Attributes:
        place: Where it lies.
        at: What the thread's own first result reads of it.
        pitch: Bytes from one of its rows to the next; in core matrices, from plane to plane.
        is_along_reduction: Whether its rows lie along the reduction.
    """

    place: Place
    at: Linear
    pitch: int
    is_along_reduction: bool


@frozen(eq=False)
class MatrixProduct:
    """A statement as a call of all threads of a warp, or of four.

    Attributes:
        tile: What it computes.
        sums: The thread's results.
        left: The factor that moves with rows.
        right: The factor that moves with columns.
    """

    tile: WarpTile | WarpgroupTile
    sums: Place
    left: Factor
    right: Factor

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions to call: one of results and factors, others of results alone."""
        if isinstance(self.tile, WarpgroupTile):
            return warpgroups.function_name(self.tile), warpgroups.end_name(self.tile)
        return (warps.function_name(self.tile),)

    @property
    def source(self) -> str:
        """The source that defines the functions."""
        if isinstance(self.tile, WarpgroupTile):
            return warpgroups.function_source(self.tile)
        return warps.function_source(self.tile)


def product_of(state: State, statement: ConcreteStatement, workload: Workload) -> MatrixProduct:
    """The call that the innermost loops of a statement are, where those around them are.

    Raises:
        UnsupportedWorkload: the loops are no tile of a warp.
    """
    call = statement.intrinsic
    assert call is not None
    loops = statement.loops[statement.body_depth :]
    if statement.guards:
        raise UnsupportedWorkload(f"products of {statement.name!r} depend on conditions")
    left, right = _factors(state, statement, workload)
    along = (left.is_along_reduction, right.is_along_reduction)
    down, across, *_, terms = (loop.extent for loop in loops)
    tile: WarpTile | WarpgroupTile
    if call.is_of_warpgroup:
        steps = terms // call.reduce_axes[0].extent
        tile = WarpgroupTile(call, down, across, steps, *along)
    else:
        tile = WarpTile(call, down, across, *along)
    return MatrixProduct(tile, state.places[statement.write.buffer], left, right)


def _factors(
    state: State, statement: ConcreteStatement, workload: Workload
) -> tuple[Factor, Factor]:
    """The factors that move with the rows and with the columns of the result."""
    reads = [it for it in statement.source.accesses if it.buffer != statement.write.buffer]
    found = []
    for axis in _result_axes(statement, workload):
        moving = [it for it in reads if any(axis in form.axes for form in it.forms)]
        if len(reads) != 2 or len(moving) != 1:
            raise UnsupportedWorkload(f"{statement.name!r} is no product of two matrices")
        found.append(_factor(state, statement, moving[0], workload))
    return found[0], found[1]


def _factor(
    state: State, statement: ConcreteStatement, access: Access, workload: Workload
) -> Factor:
    digits, place = state.digits, state.places[access.buffer]
    reduced = {axis.name for axis in workload.stage(statement.source.stage).reduce_axes}
    indices = [digits.of_form(form, statement.axes) for form in access.forms]
    with ExitStack() as stack:
        for loop in statement.loops[statement.body_depth :]:
            stack.enter_context(digits.at(loop.name, 0))
        at = digits.resolved(state.address(statement, place, indices))
    if place.block_dim is None:
        *_, across, along = place.order
        pitch = place.strides[across]
    else:
        along, pitch = place.block_dim, math.prod(place.shape[1:])
    is_along = bool(access.forms[along].axes & reduced)
    return Factor(place, at, pitch * element_type(place.dtype).bytes, is_along)
