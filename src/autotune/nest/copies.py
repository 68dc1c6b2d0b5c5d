"""Loops and bodies of the copies that a schedule introduces."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from autotune.ir.expressions import (
    AffineForm,
    IntExpr,
    ScalarExpr,
    ceildiv,
    const,
    substitute,
    var,
)
from autotune.nest.loop_nest import ELEMENT, Loop, copy_axis, hull
from autotune.nest.stage_schedule import StageSchedule
from autotune.sketches import BulkCopy, CoreMatrices, Interleave, Pack, SharedLayout


def body_of_copy(producer: StageSchedule) -> ScalarExpr:
    """The body of a pointwise stage over the axes of a copy of its result."""
    names = {axis.name: var(copy_axis(i)) for i, axis in enumerate(producer.stage.spatial_axes)}
    return substitute(producer.body, names)


def with_axes(loop: Loop, names: dict[str, str]) -> Loop:
    """A loop around a fused stage, with its axes named as the fused stage names them."""
    parts = tuple((names.get(axis, axis), extent) for axis, extent in loop.parts)
    bound = loop.bound
    if bound is not None:
        bound = evolve(bound, axis=names.get(bound.axis, bound.axis))
    return evolve(loop, parts=parts, bound=bound)


def vectorized_copy(loops: list[Loop], lanes: int) -> list[Loop]:
    """The innermost loop split into vectors of ``lanes``."""
    if lanes <= 1:
        return loops
    *outer, last = loops
    (axis, extent), *_ = last.parts
    rest = extent // lanes
    return [
        *outer,
        Loop(f"{last.name}.0", rest, ((axis, rest),)),
        Loop(f"{last.name}.1", const(lanes), ((axis, const(lanes)),), "vectorized"),
    ]


def interleaved_copy(loops: list[Loop], dim: int, size: int, lanes: int) -> list[Loop]:
    """A copy whose innermost loops handle ``size`` vectors at a time, along loop ``dim``."""
    if dim == len(loops) - 1:
        return vectorized_copy(loops, lanes)
    *outer, rest, vector = vectorized_copy(loops, lanes)
    (axis, extent), *_ = outer[dim].parts
    name, groups = outer[dim].name, extent // size
    outer[dim] = Loop(f"{name}.0", groups, ((axis, groups),))
    group = Loop(f"{name}.1", const(size), ((axis, const(size)),), "unrolled")
    return [*outer, rest, group, vector]


def parallel_copy(loops: list[Loop]) -> list[Loop]:
    """A copy before the stage: its outer loops fused and parallel."""
    own = [loop for loop in loops if loop.kind == "serial"]
    inner = len(loops) - len(own) + 1
    outer = loops[:-inner]
    if not outer:
        return loops
    count = max(1, len(outer) - 1)
    extent = const(1)
    parts: list[tuple[str, IntExpr]] = []
    for loop in outer[:count]:
        extent = extent * loop.extent
        parts.extend(loop.parts)
    fused = Loop("*".join(loop.name for loop in outer[:count]), extent, tuple(parts), "parallel")
    return [fused, *loops[count:]]


def packing_loops(
    label: str, region: Sequence[IntExpr], pack: Pack, group: Interleave | None
) -> list[Loop]:
    """The loops of a packed copy over its region.

    Args:
        label: Of the copy.
        region: Extents of what is copied.
        pack: The step that makes the copy.
        group: How it is laid out in groups of vectors, where it is.
    """
    loops = [
        Loop(f"{label}.{index}", extent, ((copy_axis(index), extent),))
        for index, extent in enumerate(region)
    ]
    if group is None:
        loops = vectorized_copy(loops, pack.lanes)
    else:
        loops = interleaved_copy(loops, group.dim, group.size, pack.lanes)
    return parallel_copy(loops) if pack.at is None else loops


def packed_shape(
    region: Sequence[IntExpr], pack: Pack, group: Interleave | None
) -> tuple[IntExpr, ...]:
    """Extents in memory of a packed region: blocks go first, what is in them and groups last."""
    shape = list(region)
    if group is not None:
        shape[group.dim] = shape[group.dim] // group.size
    if pack.block_dim is not None and pack.block is not None:
        blocked = shape.pop(pack.block_dim)
        shape = [blocked // pack.block, *shape, pack.block]
    if group is not None:
        shape.append(const(group.size))
    return tuple(shape)


def cooperative_copy(
    label: str, elements: IntExpr, threads: IntExpr, lanes: IntExpr
) -> tuple[Loop, ...]:
    """The loops of a copy that all threads of a block make together, over its elements."""
    rounds = ceildiv(elements, threads * lanes)
    extents = ((rounds, "serial"), (threads, "thread"), (lanes, "vectorized"))
    return tuple(
        Loop(f"{label}.{level}", extent, ((ELEMENT, extent),), kind)
        for level, (extent, kind) in enumerate(extents)
    )


def fragment_loops(
    schedule: StageSchedule, name: str, path: tuple[Loop, ...], names: dict[str, str]
) -> list[Loop]:
    """The loops over what a thread has of a warp's tile inside ``path``, each level by itself.

    Args:
        schedule: Of the stage that the tile is of.
        name: Of the statement.
        path: The loops around.
        names: What the statement calls the stage's axes, where it calls them otherwise.
    """
    loops = []
    for axis in schedule.stage.spatial_axes:
        own = names.get(axis.name, axis.name)
        for level, loop in schedule.levels_inside(axis.name, path):
            label = f"{name}.{own}.{level.rpartition('.')[2]}"
            loops.append(Loop(label, loop.extent, ((own, loop.extent),), "unrolled", loop.units))
    return [*loops[:-1], evolve(loops[-1], kind="vectorized")]


@frozen
class CopyLayout:
    """Layout of a fetched region in shared memory; all as in :class:`~autotune.nest.Buffer`."""

    shape: tuple[IntExpr, ...]
    dims: tuple[int, ...] | None = None
    block_dim: int | None = None


def laid_out(
    region: tuple[IntExpr, ...], layout: SharedLayout | CoreMatrices | BulkCopy | None
) -> CopyLayout:
    """The layout of a fetched region."""
    if layout is None:
        return CopyLayout(region)
    if isinstance(layout, CoreMatrices):
        *outer, rows = (extent for at, extent in enumerate(region) if at != layout.dim)
        planes = region[layout.dim] // layout.width
        shape = (planes, *outer, rows + layout.pad, const(layout.width))
        return CopyLayout(shape, block_dim=layout.dim)
    if isinstance(layout, BulkCopy):
        *outer, last = region
        return CopyLayout((last // layout.row, *outer, layout.row), block_dim=len(outer))
    *outer, row = (region[dimension] for dimension in layout.dims)
    plain = layout.dims == tuple(range(len(region)))
    return CopyLayout((*outer, row + layout.pad), None if plain else layout.dims)


def corner_steps(
    forms: tuple[AffineForm, ...], inside: dict[str, IntExpr], path: tuple[Loop, ...]
) -> dict[str, dict[str, IntExpr]]:
    """Distance that the corner of a copied region moves along each of the copy's own axes."""
    moved = {axis for loop in path for axis, _ in loop.parts}
    return {
        copy_axis(index): {
            axis: inside[axis] * abs(coefficient)
            for axis, coefficient in form.coefficients.items()
            if axis in moved
        }
        for index, form in enumerate(forms)
    }


def corner_starts(forms: tuple[AffineForm, ...], inside: dict[str, IntExpr]) -> dict[str, IntExpr]:
    """Where the corner of a copied region is with all loops at 0, where that is not 0."""
    starts = {}
    for index, form in enumerate(forms):
        start = const(form.constant)
        for axis, coefficient in form.coefficients.items():
            if coefficient < 0:
                start = start + (inside[axis] - 1) * coefficient
        if start.value != 0:
            starts[copy_axis(index)] = start
    return starts


def falling_corners(forms: tuple[AffineForm, ...]) -> frozenset[tuple[str, str]]:
    """Pairs of a copy's own axes and of axes whose steps move its corner down."""
    return frozenset(
        (copy_axis(index), axis)
        for index, form in enumerate(forms)
        for axis, coefficient in form.coefficients.items()
        if coefficient < 0
    )


def stays_within(schedule: StageSchedule, form: AffineForm, bound: IntExpr) -> bool:
    """Return whether an index never passes its bound; bounds grow with padded axes."""
    whole = hull(form, schedule.extents).value
    grown = any(axis in schedule.padded for axis in form.coefficients)
    return grown or (whole is not None and bound.value is not None and whole <= bound.value)
