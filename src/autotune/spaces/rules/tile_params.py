"""Tile factors of a stage: parameters, padded extents, constraints, and loops over vectors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from autotune.ir.expressions import (
    AffineForm,
    IndexTerm,
    IndexValue,
    IntExpr,
    ceildiv,
    const,
    index_form,
    product,
    var,
)
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Axis, Stage
from autotune.sketches import AtMost, Constraint, Ordinal, Param, Step, Stream
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.rules.access import largest_divisor, round_up
from autotune.spaces.rules.draft import Domain, SketchDraft, Split, split

# Rows of a register tile worth padding for: beyond 16 the accumulators spill.
_USEFUL_ROWS = tuple(range(2, 17))
_USEFUL_VECTORS = (1, 2, 3, 4, 6)
_LONG_WASTE = 0.03
_MAX_REDUCE_UNROLL = 8


@frozen
class RegisterTiles:
    """Tiles of a stage that are kept in registers, and what encloses them.

    Attributes:
        splits: Splits by axis.
        constraints: Limits of the backend and of the machine.
        panel: Elements of a tile along the vector axis: a multiple of those of a vector.
        vector: Elements of a vector.
    """

    splits: dict[str, Split]
    constraints: list[Constraint]
    panel: IntExpr
    vector: int

    def depth(self, axis: Axis) -> int:
        """Number of loops over an axis beyond the first."""
        return len(self.splits[axis.name].factors) - 1 if axis.name in self.splits else 0


@frozen
class CallExtents:
    """Extents of one call of an instruction: rows (0: it has no such axis), lanes, products."""

    rows: int
    lanes: int
    depth: int


def padded_extents(extent: int, multiples: tuple[int, ...], slack: int) -> tuple[int, ...]:
    """Extents worth padding to: ``extent`` itself and multiples of useful tiles.

    A padded extent wastes at most 3 % or ``slack`` elements, whichever is more.
    """
    limit = extent + max(math.floor(_LONG_WASTE * extent), slack)
    candidates = {round_up(extent, multiple) for multiple in multiples}
    return tuple(sorted({extent, *(value for value in candidates if value <= limit)}))


def register_tiles(
    draft: SketchDraft,
    stage: Stage,
    paddable: set[str],
    *,
    batch: set[str],
    row_reuse: bool,
    call: CallExtents | None = None,
) -> RegisterTiles:
    """Levels for every axis of ``stage``.

    The vector axis has 4, rows have 3, ``batch`` axes (along which nothing is shared) and the
    last reduce axis (its inner level unrolled) have 2; axes of extent 1 and other reduce axes
    stay whole. Axes in ``paddable`` get padded extents to choose from, batch axes do not. With a
    ``call``, the last reduce axis and (if it has rows) the last row axis have one level more, of
    the call's extent; the reduce axis is padded to its multiple.

    Where indices are divided, tiles are such that no division is left, as far as the backend may
    unroll them (:mod:`~autotune.spaces.rules.tile_params`); reduce axes in them have 2 levels.
    """
    lanes = draft.target.lanes(stage.output.dtype) if call is None else call.lanes
    vector = stage.spatial_axes[-1]
    phases = _resolved(stage, draft.limits)
    within = lanes_inside_groups(stage, lanes)
    extents, width = _vector_extents(vector, within, vector.name in paddable)
    found = [
        *_row_splits(stage, phases, paddable, batch, call),
        split(stage.name, vector, None, None, None, (width,), extents=extents),
        *_reduce_splits(stage, phases, call),
    ]
    splits = {it.axis: it for it in found}
    live = None if call is not None and call.rows > 0 else row_reuse
    factors = {axis: it.factors for axis, it in splits.items()}
    limits = _tile_constraints(draft, stage, factors, lanes, live)
    panel = factors[vector.name][2] * factors[vector.name][3]
    return RegisterTiles(splits, limits, panel, width)


def _row_splits(
    stage: Stage, phases: Phases, paddable: set[str], batch: set[str], call: CallExtents | None
) -> Iterator[Split]:
    """Of all spatial axes but the last, as far as they are split."""
    rows = stage.spatial_axes[:-1]
    for axis in rows:
        if call is not None and call.rows > 0 and axis is rows[-1]:
            extents = _row_extents(axis, call.rows, axis.name in paddable)
            yield split(stage.name, axis, None, None, None, (call.rows,), extents=extents)
        elif axis.extent == 1:
            continue
        elif axis.name in batch:
            yield split(stage.name, axis, None, None)
        elif axis.name in phases.rows:
            yield split(stage.name, axis, None, None, phases.tiles(axis.name, axis.extent))
        else:
            pads = axis.name in paddable
            extents = padded_extents(axis.extent, _USEFUL_ROWS, 1) if pads else ()
            yield split(stage.name, axis, None, None, None, extents=extents)


def _reduce_splits(stage: Stage, phases: Phases, call: CallExtents | None) -> Iterator[Split]:
    """Of the last reduce axis, and of those in divided indices."""
    *others, last = stage.reduce_axes
    for axis in others:
        if axis.name in phases.windows:
            yield split(stage.name, axis, None, phases.tiles(axis.name, axis.extent))
    group = 1 if call is None else call.depth
    depth = round_up(last.extent, group)
    inner = tuple(d for d in range(1, _MAX_REDUCE_UNROLL + 1) if depth // group % d == 0)
    if last.name in phases.windows:
        inner = phases.tiles(last.name, last.extent)
    calls: list[Domain] = [] if call is None else [(group,)]
    yield split(stage.name, last, None, inner, *calls, extents=(depth,))


def _resolved(stage: Stage, limits: ScheduleLimits) -> Phases:
    """The tiles that leave nothing to divide; none where they are too large to be unrolled."""
    phases = phases_of(stage)
    least = math.prod(
        phases.tiles(axis, stage.extents[axis])[0] for axis in (*phases.rows, *phases.windows)
    )
    return phases if least <= limits.unrolled_statements else Phases()


def _row_extents(axis: Axis, rows: int, paddable: bool) -> tuple[int, ...]:
    """Extents of the row axis of calls that have several rows: multiples of these."""
    if not paddable:
        return (axis.extent,)
    found = padded_extents(axis.extent, tuple(rows * count for count in _USEFUL_VECTORS), 0)
    return tuple(extent for extent in found if extent % rows == 0)


def _vector_extents(axis: Axis, lanes: int, paddable: bool) -> tuple[tuple[int, ...], int]:
    """Extents of the vector axis and the width of one vector."""
    if not paddable:
        return (axis.extent,), largest_divisor(axis.extent, lanes)
    multiples = tuple(lanes * vectors for vectors in _USEFUL_VECTORS)
    extents = padded_extents(axis.extent, multiples, lanes)
    whole = tuple(extent for extent in extents if extent % lanes == 0)
    return whole, lanes


def _tile_constraints(
    draft: SketchDraft,
    stage: Stage,
    factors: dict[str, tuple[IntExpr, ...]],
    lanes: int,
    row_reuse: bool | None,
) -> list[Constraint]:
    """Limits of the backend and of the machine.

    ``row_reuse`` is None where calls have registers of their own.
    """
    vector = stage.spatial_axes[-1].name
    rows: IntExpr = const(1)
    elements: IntExpr = const(1)
    parallel: IntExpr = factors[vector][0]
    for axis in stage.spatial_axes[:-1]:
        if axis.name in factors:
            rows = rows * (factors[axis.name][2] if len(factors[axis.name]) > 2 else 1)
            elements = elements * (factors[axis.name][3] if len(factors[axis.name]) > 3 else 1)
            parallel = parallel * factors[axis.name][0]
    vectors = factors[vector][2]
    unrolled = rows * vectors
    for axis in stage.reduce_axes:
        if axis.name in factors:
            unrolled = unrolled * factors[axis.name][1]
    elements = elements * rows * vectors * factors[vector][3]
    tile_bytes = elements * stage.output.element.bytes
    result = draft.bounded(unrolled, tile_bytes)
    registers = draft.target.vector_registers
    if registers and row_reuse is not None:
        live = rows * vectors + (vectors + 1 if row_reuse else 2)
        result.append(AtMost(live, registers, "vector registers", hard=False))
    most = math.prod(axis.extent for axis in stage.spatial_axes[:-1])
    vectors_of_a_row = max(1, stage.spatial_axes[-1].extent // lanes)
    return [*result, *draft.shared(parallel, most * vectors_of_a_row)]


# A transposed convolution reads at ``(h + r) // 2`` where ``(h + r) % 2`` is 0, with ``h`` spatial
# and ``r`` reduced. In a tile of both that starts at a multiple of 2 and is unrolled, each
# remainder is a constant: compilers drop the products with zero that it guards. A convolution in
# groups reads at channel ``c // 32 * 16 + r``, which is one place for a vector inside a group.
@frozen
class Phases:
    """Tiles in which quotients and remainders of sums of axes are constants.

    Attributes:
        rows: By spatial axis, what the extent of its register tile is a multiple of.
        windows: By reduce axis, what the extent of its unrolled part is a multiple of; the whole
            axis will do as well.
    """

    rows: Mapping[str, int] = field(factory=dict)
    windows: Mapping[str, int] = field(factory=dict)

    def tiles(self, axis: str, extent: int) -> tuple[int, ...]:
        """Extents of tiles of an axis of ``extent`` in which nothing is left to divide."""
        step = self.rows[axis] if axis in self.rows else self.windows[axis]
        return tuple(
            tile
            for tile in range(1, extent + 1)
            if extent % tile == 0 and (tile % step == 0 or tile == extent)
        )


def phases_of(stage: Stage) -> Phases:
    """Moduli that make the divided sums of spatial rows and reduce axes of ``stage`` constant.

    Sums with the last spatial axis are left out: it is vectorised, and differs between lanes.
    """
    kinds = {axis.name: axis.kind for axis in stage.axes}
    vector = stage.spatial_axes[-1].name
    rows: dict[str, int] = {}
    windows: dict[str, int] = {}
    for term in _divided(stage):
        steps = {
            axis: term.divisor // math.gcd(term.divisor, coefficient)
            for axis, coefficient in term.operand.coefficients.items()
        }
        if term.operand.terms or vector in steps:
            continue
        if {kinds[axis] for axis in steps} != {"spatial", "reduce"}:
            continue
        for axis, step in steps.items():
            found = rows if kinds[axis] == "spatial" else windows
            found[axis] = math.lcm(step, found.get(axis, 1))
    return Phases(rows, windows)


def lanes_inside_groups(stage: Stage, lanes: int) -> int:
    """The most lanes, at most ``lanes``, for which a vector stays inside a group of channels.

    Groups are what quotients of the last spatial axis distinguish, in indices of reads.
    """
    vector = stage.spatial_axes[-1].name
    width = math.gcd(
        *(
            term.divisor
            for load in stage.loads
            for form in stage.forms(load)
            for term in _terms(form)
            if term.operand.coefficients.keys() == {vector}
        )
    )
    return next((count for count in range(lanes, 1, -1) if width % count == 0), lanes)


def _divided(stage: Stage) -> Iterator[IndexTerm]:
    for node in walk(stage.body):
        if isinstance(node, IndexValue):
            yield from _terms(index_form(node.index))
    for load in stage.loads:
        for form in stage.forms(load):
            yield from _terms(form)


def _terms(form: AffineForm) -> Iterable[IndexTerm]:
    return [term for term in form.terms.values() if term.op != "any"]


def split_in_two(stage: str, axis: Axis, domain: Domain, name: str = "") -> Split:
    """Two loops, the inner one out of ``domain``; constants where there is no choice."""
    if domain is not None and len(domain) == 1:
        return Split(stage, axis.name, (const(axis.extent // domain[0]), const(domain[0])))
    return split(stage, axis, None, domain, name=name)


def cover(stage: str, axis: Axis, *inner: Ordinal | IntExpr) -> Split:
    """Loops that cover an axis: as many rounds of the given inner ones as it takes."""
    extents = [var(it.name) if isinstance(it, Ordinal) else it for it in inner]
    factors = (ceildiv(const(axis.extent), product(extents)), *extents)
    params = tuple(it for it in inner if isinstance(it, Ordinal))
    return Split(stage, axis.name, factors, params, covers=True)


def is_covered(draft: SketchDraft, stage: Stage, axis: Axis) -> bool:
    """Tell if vectors along an axis are whole but for the last: none but short ones divide it.

    The last round is then under a condition.
    """
    lanes = draft.target.lanes(stage.output.dtype)
    narrow = 2 * largest_divisor(axis.extent, lanes) < lanes
    return narrow and axis.extent > lanes and draft.can("cover")


def vectors_of(draft: SketchDraft, stage: Stage, widths: tuple[int, ...]) -> Split:
    """The innermost axis of a pointwise stage: a loop over vectors of a searched width.

    Args:
        draft: The sketch so far.
        stage: The stage.
        widths: To choose from; those that do not divide the axis are left out, unless none but
            short ones do.
    """
    axis, lanes = stage.axes[-1], draft.target.lanes(stage.output.dtype)
    if is_covered(draft, stage, axis):
        whole = tuple(width for width in widths if lanes <= width < axis.extent)
        return cover(stage.name, axis, Ordinal(f"{stage.name}.{axis.name}.1", whole))
    even = tuple(width for width in widths if axis.extent % width == 0)
    return split_in_two(stage.name, axis, even or (largest_divisor(axis.extent, lanes),))


def stream_choice(draft: SketchDraft, stage: Stage) -> tuple[list[Param], list[Step]]:
    """A parameter and its step, or nothing where the choice makes no difference.

    It does for outputs that are at least as large as the last-level cache, and of which each row
    consists of whole lines.

    Args:
        draft: The sketch so far.
        stage: What writes the result.
    """
    output, caches = stage.output, draft.target.caches
    is_last = stage.name in draft.workload.outputs and not draft.workload.consumers(stage.name)
    if not (is_last and caches and output.shape and draft.can("stream")):
        return [], []
    if output.elements * output.element.bytes < caches[-1].size_bytes:
        return [], []
    if output.shape[-1] * output.element.bytes % caches[-1].line_bytes:
        return [], []
    name = f"{stage.name}.stream"
    return [Ordinal(name, (0, 1))], [Stream(stage.name, var(name))]
