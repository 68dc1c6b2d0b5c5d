"""Tile factors of a stage on a GPU: parameters and limits of the target.

Kernel of a GPU: a reduction tiled over blocks, threads and the loops of a thread.

The nest, for spatial axes ``x`` and reduce axes ``r``, each level over all axes: ``x.0`` blocks,
``x.1`` virtual threads, ``x.2`` threads, ``r.0``, fetch of the operands into shared memory,
``r.1 x.3 r.2 x.4``. This is the structure of Ansor's GPU sketches ("SSSRRSRS", Zheng et al.,
OSDI'20). Results are accumulated in the registers of a thread over all of ``r`` and written
once, through the epilogue if there is one.

Layouts of what is fetched into shared memory: padded rows, and rows along a spatial axis.

Threads of a warp that read one below the other meet in one bank where rows are multiples of 32
words long; rows that are one vector longer spread them. Where a thread reads neighbours along a
spatial axis that is not the operand's last dimension, rows along that axis let it read vectors.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from attrs import frozen

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    AffineForm,
    IndexTerm,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    ceildiv,
    const,
    product,
    var,
)
from autotune.ir.expressions.scalar import children
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.nest.loop_nest import hull, is_axis
from autotune.sketches import (
    Accumulate,
    AtLeast,
    AtMost,
    Bind,
    Constraint,
    CooperativeFetch,
    CoreMatrices,
    Factor,
    FuseConsumer,
    Inline,
    OneOf,
    Order,
    Ordinal,
    PadExtent,
    Param,
    ProductEquals,
    SharedLayout,
    Step,
    Tile,
    UnrollLimit,
)
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.rules.access import (
    depends_on,
    is_affine,
    is_expensive,
    is_gathered,
    is_pointwise,
    operand_forms,
    producer_stage,
)
from autotune.spaces.rules.draft import SketchDraft
from autotune.spaces.rules.tile_params import padded_extents
from autotune.targets import Target

__all__ = [
    "CoreLayout",
    "Forms",
    "Kernel",
    "RowLayout",
    "fetchable",
    "inlined_operand",
    "neighbours",
    "row_layout",
    "tiled_kernel",
    "transposable",
]

"""Indices of an access, by dimension."""


@frozen
class RowLayout:
    """Layout of a fetched operand in shared memory.

    Attributes:
        dims: Its dimensions, outermost first.
        pad: Elements after each row.
        param: The parameter that chooses ``pad``; None where there is no choice.
    """

    dims: tuple[int, ...]
    pad: IntExpr
    param: Ordinal | None

    @property
    def is_turned(self) -> bool:
        """True if rows lie along another dimension than the operand's last."""
        return self.dims != tuple(range(len(self.dims)))

    def elements(self, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
        """Allocated elements of the region that an access spans."""
        extents = [hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms]
        *outer, row = (extents[dimension] for dimension in self.dims)
        return product(outer) * (row + self.pad)

    def step(self, stage: str, operand: str) -> SharedLayout | None:
        """The step that lays the operand out; None where it lies as it is indexed."""
        if self.param is None and not self.is_turned:
            return None
        return SharedLayout(stage, operand, self.dims, self.pad)


@frozen
class CoreLayout:
    """Layout of a fetched operand in core matrices of shared memory, which warpgroups read.

    Attributes:
        dims: Its dimensions; the last one is along the rows of core matrices.
        width: Elements of such a row.
        pad: Rows after those of each plane.
        param: The parameter that chooses ``pad``.
    """

    dims: tuple[int, ...]
    width: int
    pad: IntExpr
    param: Ordinal

    @property
    def is_turned(self) -> bool:
        """True if rows lie along another dimension than the operand's last."""
        return self.dims != tuple(range(len(self.dims)))

    def elements(self, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
        """Allocated elements of the region that an access spans, of whole rows."""
        extents = [hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms]
        *outer, rows, along = (extents[dimension] for dimension in self.dims)
        return product(outer) * (rows + self.pad) * along

    def step(self, stage: str, operand: str) -> CoreMatrices:
        """The step that lays the operand out."""
        return CoreMatrices(stage, operand, self.dims[-1], self.width, self.pad)


def row_layout(
    stage: Stage,
    tensor: Tensor,
    forms: Forms,
    tiled: Collection[str],
    target: Target,
    *,
    rows: int | None,
    padded: bool,
) -> RowLayout:
    """The layout of an operand of ``stage`` whose axes ``tiled`` have levels.

    Args:
        stage: The stage.
        tensor: The operand.
        forms: Where it is read.
        tiled: Axes that are tiled.
        target: A vector of it is what rows are padded by.
        rows: The dimension along rows; None for the last one.
        padded: Whether rows may be padded.
    """
    dims = tuple(range(len(forms)))
    if rows is not None:
        dims = (*(dimension for dimension in dims if dimension != rows), rows)
    spatial = {axis.name for axis in stage.spatial_axes} & set(tiled)
    in_rows = not dims or any(axis in tiled for axis in forms[dims[-1]].coefficients)
    # Rows are read one below the other by threads along an axis, or written so by the fetch.
    met = rows is not None or any(
        spatial & set(forms[dimension].coefficients) for dimension in dims[:-1]
    )
    vector = target.vector_bytes // element_type(tensor.dtype).bytes
    if not (padded and in_rows and met and len(dims) > 1 and vector > 1):
        return RowLayout(dims, const(0), None)
    name = f"{stage.name}.{tensor.name}.pad"
    return RowLayout(dims, var(name), Ordinal(name, (0, vector)))


def transposable(stage: Stage, forms: Forms, tiled: Collection[str]) -> int | None:
    """The dimension along which rows are to lie: of a spatial axis, where the last has none.

    None where the operand's last dimension moves with a spatial axis, or no other dimension is
    just such an axis.
    """
    spatial = {axis.name for axis in stage.spatial_axes} & set(tiled)
    if not forms or spatial & set(forms[-1].coefficients):
        return None
    found = [
        dimension
        for dimension, form in enumerate(forms[:-1])
        if is_axis(form) and spatial & set(form.coefficients)
    ]
    return found[-1] if found else None


def neighbours(workload: Workload, tensor: str) -> int:
    """Number of neighbours along a tensor's last dimension that are neighbours in memory, too.

    Those of a tensor that is gathered from another one by numbers of its elements are, as far as
    they number whole dimensions there. Of one that is computed, only the last dimension counts:
    conditions, as of margins, may be others beyond it.
    """
    extent = workload.tensors[tensor].shape[-1]
    producer = producer_stage(workload, tensor)
    if producer is None or not isinstance(producer.body, Load):
        return extent
    axis, forms = producer.spatial_axes[-1], producer.forms(producer.body)
    source = workload.tensors[producer.body.tensor]
    is_input = producer_stage(workload, source.name) is None
    run = 1
    for form, size in reversed(list(zip(forms, source.shape, strict=True))):
        count = _digit(form, axis, run)
        run *= count
        if count != size or not is_input:
            break
    return run


def _digit(form: AffineForm, axis: Axis, below: int) -> int:
    """Values of an index that is a digit of an axis, ``axis // below`` or the remainder of that.

    1 where it is none.
    """
    values = axis.extent // below
    term = _whole_term(form)
    if term is not None and term.op == "mod":
        form, values = term.operand, term.divisor
        term = _whole_term(form)
    if term is not None and term.op == "floordiv" and term.divisor == below:
        form, below = term.operand, 1
    return values if below == 1 and is_axis(form) and axis.name in form.coefficients else 1


def _whole_term(form: AffineForm) -> IndexTerm | None:
    """The quotient or remainder that an index is; None where it is something else."""
    if form.constant or list(form.coefficients.values()) != [1]:
        return None
    return next(iter(form.terms.values()), None)


BLOCK, VTHREAD, THREAD = 0, 1, 2
"""Levels of a tiled spatial axis; the rest are loops of one thread."""

# More virtual threads than this only repeat the registers of one thread.
MAX_VTHREADS = 8
# What a thread needs beside accumulators and operands: addresses, counters, predicates.
SPARE_REGISTERS = 32
# Of the registers that an instruction can name, one is hard-wired to zero.
REGISTERS_PER_THREAD = 255
# Buffers in shared memory begin at multiples of so many bytes.
SHARED_ALIGNMENT = 64
LAYOUTS = ("plain", "padded", "transposed")
"""Of operands in shared memory: as they are; with padded rows; and with rows along results."""
# Lanes that are stored at places of their own: CUDA has vectors of so many 32-bit indices.
MAX_SCATTERED = 4
UNROLL_LIMITS = (0, 16, 64, 512)
# Where there is too little work for the GPU, results that a thread may have all the same.
RESULTS_OF_A_THREAD = 8

_MOST_SELECTED_BYTES = 4
# Extents worth padding to: multiples of these, which cost a quarter more where the extent is
# short, but never more than so many.
_USEFUL_MULTIPLES = (2, 4, 8, 16, 32, 64)
_SLACK = 3

_NEEDED = (
    "multiprocessors",
    "shared_memory_bytes",
    "registers_per_block",
    "max_threads_per_block",
    "warp_size",
)

Forms = tuple[AffineForm, ...]


@frozen
class GpuLevels:
    """Factors by axis (outermost first), with what they bring along.

    Attributes:
        factors: Factors of every tiled axis; axes of extent 1 are not tiled.
        padded: Extents of the axes that may be iterated beyond their own.
        threads: Threads of a block.
        write_factors: Split of the innermost axis of the write-back.
        fetch_lanes: Vector width of the fetch of each operand.
        layouts: How each fetched operand lies in shared memory.
        params: Parameters.
        constraints: What the target and the workload allow, and what is good on any GPU.
    """

    factors: dict[str, tuple[IntExpr, ...]]
    padded: dict[str, IntExpr]
    threads: IntExpr
    write_factors: tuple[IntExpr, ...]
    fetch_lanes: dict[str, IntExpr]
    layouts: dict[str, RowLayout]
    params: tuple[Param, ...]
    constraints: tuple[Constraint, ...]

    def tiled(self, axes: Sequence[str]) -> list[str]:
        """Return those of ``axes`` that have levels."""
        return [axis for axis in axes if axis in self.factors]


def check_gpu(target: Target) -> None:
    """Raises InvalidValueError unless the target says what a GPU needs to have said about it."""
    missing = [name for name in _NEEDED if getattr(target, name) == 0]
    if missing:
        raise InvalidValueError(
            f"target {target.name!r} does not say its {', '.join(missing)}, which bound the "
            "programs of a GPU; presets such as a100 do"
        )


def vector_widths(extent: int, dtype: str, target: Target) -> tuple[int, ...]:
    """Powers of two that divide ``extent`` and fit one access of a thread."""
    widest = max(1, target.vector_bytes // element_type(dtype).bytes)
    return tuple(
        width for width in (1 << n for n in range(widest.bit_length())) if extent % width == 0
    )


def divisors(extent: int) -> tuple[int, ...]:
    """Divisors of ``extent``, ascending."""
    small = [n for n in range(1, math.isqrt(extent) + 1) if extent % n == 0]
    return tuple(sorted({*small, *(extent // n for n in small)}))


def thread_counts(extents: Sequence[tuple[int, ...]], target: Target) -> tuple[int, ...]:
    """Possible numbers of threads, ascending: products of divisors of each axis's extent.

    An axis may have several extents to choose from.
    """
    found = {1}
    for choices in extents:
        found = {
            count * divisor
            for count in found
            for divisor in sorted({n for extent in choices for n in divisors(extent)})
            if count * divisor <= target.max_threads_per_block
        }
    return tuple(sorted(found))


def block_threads(extent: int, target: Target) -> tuple[int, ...]:
    """Numbers of threads, doubling from one warp, that an axis of ``extent`` keeps busy."""
    counts = [target.warp_size]
    while 2 * counts[-1] <= target.max_threads_per_block and counts[-1] < extent:
        counts.append(2 * counts[-1])
    return tuple(counts)


def cover_factors(extent: int, *inner: IntExpr) -> tuple[IntExpr, ...]:
    """Factors that cover an axis: as many rounds of the given inner ones as it takes."""
    return (ceildiv(const(extent), product(inner)), *inner)


def thread_constraints(
    threads: IntExpr, grid: IntExpr, extents: Sequence[tuple[int, ...]], target: Target
) -> list[Constraint]:
    """Threads of a block and blocks of the grid, of a stage tiled over axes of ``extents``.

    Whole warps, and a block for every multiprocessor, are asked for as far as the extents have
    the factors for both at once and leave a thread several results.
    """
    name = target.name
    result: list[Constraint] = [
        AtMost(threads, target.max_threads_per_block, f"target {name}: threads of a block")
    ]
    counts = thread_counts(extents, target)
    whole = [count for count in counts if count % target.warp_size == 0]
    fewest = min(whole, default=max(counts))
    if whole:
        result.append(OneOf(threads % target.warp_size, (0,), "whole warps", hard=False))
    results = math.prod(min(choices) for choices in extents)
    blocks = min(target.multiprocessors, results // (fewest * RESULTS_OF_A_THREAD))
    if blocks > 1:
        source = "every multiprocessor gets a block, as far as there are so many"
        result.append(AtLeast(grid, blocks, source, hard=False))
    return result


def tile_levels(
    workload: Workload,
    stage: Stage,
    target: Target,
    limits: ScheduleLimits,
    fetched: Mapping[str, Forms],
    paddable: set[str],
    *,
    layouts: str = "plain",
    whole: Collection[str] = (),
) -> GpuLevels:
    """Levels of a reduction whose operands in ``fetched`` go through shared memory.

    Spatial axes have five (block, virtual thread, thread, and two loops of a thread around and
    inside the inner loops over reduce axes), reduce axes three (a fetch; around and inside the
    first of those loops). Where nothing is fetched, spatial axes have four and reduce axes
    stay whole. Axes in ``paddable`` may be padded where every operand that depends on them is
    fetched. ``layouts`` is one of :data:`LAYOUTS`; axes in ``whole`` have no levels: each of
    their values has blocks of its own.
    """
    levels = _Levels(stage, {}, {}, [], [])
    extents = _add_axes(levels, fetched, paddable, whole)
    laid_out = {
        tensor: row_layout(
            stage,
            workload.tensors[tensor],
            forms,
            levels.factors,
            target,
            rows=transposable(stage, forms, levels.factors) if layouts == "transposed" else None,
            padded=layouts != "plain",
        )
        for tensor, forms in fetched.items()
    }
    threads = levels.over(THREAD)
    grid = levels.over(BLOCK) * math.prod(stage.axis(axis).extent for axis in whole)
    levels.constraints.extend(thread_constraints(threads, grid, extents, target))
    levels.constraints.append(
        AtMost(levels.over(VTHREAD), MAX_VTHREADS, f"target {target.name}: virtual threads")
    )
    levels.constraints.extend(
        _memory_constraints(workload, levels, target, limits, fetched, threads, laid_out)
    )
    lanes = {
        tensor: _fetch_lanes(
            operand := workload.tensors[tensor],
            forms,
            levels,
            _fetch_widths(workload, operand, target, laid_out[tensor]),
            whole,
        )
        for tensor, forms in fetched.items()
    }
    levels.params.extend(it.param for it in laid_out.values() if it.param is not None)
    write = _write_factors(levels, target)
    return GpuLevels(
        levels.factors,
        levels.padded,
        threads,
        write,
        lanes,
        laid_out,
        tuple(levels.params),
        tuple(levels.constraints),
    )


def _add_axes(
    levels: _Levels, fetched: Mapping[str, Forms], paddable: set[str], whole: Collection[str]
) -> list[tuple[int, ...]]:
    """Levels of all axes but ``whole`` ones; returns the extents that spatial axes may have."""
    spatial: list[tuple[int, ...]] = []
    for axis in levels.stage.axes:
        if axis.extent == 1 or axis.name in whole:
            continue
        if axis.kind == "spatial":
            pads = axis.name in paddable
            extents = _extents(levels.stage, axis, fetched) if pads else (axis.extent,)
            levels.add(axis.name, 5 if fetched else 4, extents)
            spatial.append(extents)
        elif fetched:
            levels.add(axis.name, 3, (axis.extent,))
    return spatial


def _extents(stage: Stage, axis: Axis, fetched: Mapping[str, Forms]) -> tuple[int, ...]:
    """Extents to choose from: padding goes into what is fetched, never into a condition.

    Axes along which nothing is shared (batches) gain nothing by it.
    """
    dependent = {
        read.tensor for read in stage.accesses if depends_on(stage.forms(read), axis.name)
    }
    shared = len(dependent) < len(stage.reads) or any(
        len(form.coefficients) > 1
        for forms in fetched.values()
        for form in forms
        if axis.name in form.coefficients
    )
    if not shared or not dependent <= set(fetched):
        return (axis.extent,)
    return padded_extents(axis.extent, _USEFUL_MULTIPLES, min(_SLACK, axis.extent // 4))


@frozen
class _Levels:
    """Levels under construction."""

    stage: Stage
    factors: dict[str, tuple[IntExpr, ...]]
    padded: dict[str, IntExpr]
    params: list[Param]
    constraints: list[Constraint]

    def add(self, axis: str, count: int, extents: tuple[int, ...]) -> None:
        names = tuple(f"{self.stage.name}.{axis}.{level}" for level in range(count))
        total = const(extents[0])
        if len(extents) > 1:
            total = var(f"{self.stage.name}.{axis}.extent")
            self.params.append(Ordinal(f"{self.stage.name}.{axis}.extent", extents))
            self.padded[axis] = total
        self.params.extend(Factor(name) for name in names)
        self.constraints.append(ProductEquals(names, total))
        self.factors[axis] = tuple(var(name) for name in names)

    def over(self, level: int) -> IntExpr:
        """Product of one level of all spatial axes."""
        return product(
            [
                self.factors[axis.name][level]
                for axis in self.stage.spatial_axes
                if axis.name in self.factors
            ]
        )

    def reach(self, spatial: Sequence[int], reduce: Sequence[int]) -> dict[str, IntExpr]:
        """Distance that every axis moves in some of its levels."""
        result = {}
        for axis in self.stage.axes:
            chosen = spatial if axis.kind == "spatial" else reduce
            own = self.factors.get(axis.name, ())
            result[axis.name] = product([f for level, f in enumerate(own) if level in chosen])
        return result


def _bytes(tensor: Tensor, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
    """Bytes of the region that an operand's access spans."""
    extents = [hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms]
    return product(extents) * tensor.element.bytes


def _memory_constraints(
    workload: Workload,
    levels: _Levels,
    target: Target,
    limits: ScheduleLimits,
    fetched: Mapping[str, Forms],
    threads: IntExpr,
    layouts: Mapping[str, RowLayout],
) -> list[Constraint]:
    """Shared memory of a block, and what one thread keeps to itself.

    A thread keeps its accumulators, those of every virtual thread, and the operands of one step
    of the reduction over its tile.
    """
    shared, operands = const(0), const(0)
    block = levels.reach((VTHREAD, THREAD, 3, 4), (1, 2))
    thread = levels.reach((3, 4), ())
    for tensor, forms in fetched.items():
        elements = layouts[tensor].elements(forms, block)
        shared = shared + elements * workload.tensors[tensor].element.bytes
        operands = operands + _words(_bytes(workload.tensors[tensor], forms, thread))
    inner = [
        factor
        for axis in levels.stage.spatial_axes
        if axis.name in levels.factors
        for level, factor in enumerate(levels.factors[axis.name])
        if level not in (BLOCK, THREAD)
    ]
    tile = product(inner) * levels.stage.output.element.bytes
    kept = _words(tile) + SPARE_REGISTERS
    result: list[Constraint] = [
        AtMost(tile, limits.stack_bytes, f"{limits.source}: accumulators of a thread"),
        AtMost(kept + operands, REGISTERS_PER_THREAD, "registers of a thread", hard=False),
        AtMost(threads * kept, target.registers_per_block, "registers of a block", hard=False),
    ]
    if fetched:
        source = f"target {target.name}: shared memory of a block"
        # What rounding every buffer up may take.
        limit = target.shared_memory_bytes - (SHARED_ALIGNMENT - 1) * len(fetched)
        result.insert(0, AtMost(shared, limit, source))
    return result


def _words(size: IntExpr) -> IntExpr:
    """32-bit registers that hold so many bytes; small types are widened in none of them."""
    return (size + 3) // 4


def _is_selected(workload: Workload, tensor: str) -> bool:
    """Tell if a tensor is computed with a condition, such as padding: a fetch evaluates it."""
    stages = [stage for stage in workload.stages if stage.name == tensor]
    return any(_selects(stage.body) for stage in stages)


def _selects(body: ScalarExpr) -> bool:
    return isinstance(body, Select) or any(_selects(part) for part in children(body))


def _fetch_widths(
    workload: Workload, tensor: Tensor, target: Target, layout: RowLayout
) -> tuple[int, ...]:
    """Widths of vectors that an operand may be fetched in, for which CUDA has types."""
    most = MAX_SCATTERED if layout.is_turned else None
    if tensor.element.bytes == 1 and _is_selected(workload, tensor.name):
        # There are no vectors of more than four bytes to hold the values of both cases.
        most = min(most or _MOST_SELECTED_BYTES, _MOST_SELECTED_BYTES)
    widths = vector_widths(tensor.shape[-1], tensor.dtype, target)
    return tuple(width for width in widths if most is None or width <= most)


def _fetch_lanes(
    tensor: Tensor,
    forms: Forms,
    levels: _Levels,
    widths: tuple[int, ...],
    whole: Collection[str],
) -> IntExpr:
    """Width of the vectors in which an operand is fetched: whole vectors of a row."""
    moving = {
        axis: coefficient
        for axis, coefficient in forms[-1].coefficients.items()
        # What has blocks of its own does not move inside them.
        if axis not in whole
    }
    (axis, coefficient), *others = [*moving.items(), ("", 0)]
    if len(widths) == 1 or len(others) != 1 or coefficient != 1 or axis not in levels.factors:
        return const(1)
    name = f"{levels.stage.name}.{tensor.name}.lanes"
    levels.params.append(Ordinal(name, widths))
    reach = levels.reach((VTHREAD, THREAD, 3, 4), (1, 2))[axis]
    levels.constraints.append(
        OneOf(reach % var(name), (0,), "vectors do not cross rows", hard=False)
    )
    return var(name)


def _write_factors(levels: _Levels, target: Target) -> tuple[IntExpr, ...]:
    """Split of the innermost axis of the write-back into vectors that divide a thread's part."""
    axis = levels.stage.spatial_axes[-1]
    if axis.name not in levels.factors:
        return (const(1), const(1))
    part = product(levels.factors[axis.name][3:])
    widths = vector_widths(axis.extent, levels.stage.output.dtype, target)
    if len(widths) == 1:
        return (part, const(1))
    name = f"{levels.stage.name}.write.lanes"
    levels.params.append(Ordinal(name, widths))
    levels.constraints.append(OneOf(part % var(name), (0,), "a thread writes whole vectors"))
    return (part // var(name), var(name))


Fetched = dict[str, tuple[AffineForm, ...]]


@frozen
class Kernel:
    """A part of a sketch that is one kernel.

    Attributes:
        settled: Stages that it computes.
        params: Its parameters.
        constraints: Those of the target, and preferences.
        steps: Its steps.
    """

    settled: frozenset[str]
    params: tuple[Param, ...]
    constraints: tuple[Constraint, ...]
    steps: tuple[Step, ...]


def fetchable(stage: Stage, apart: Collection[str] = ()) -> Fetched:
    """Operands that are read at one place, several times, without offsets or reversals.

    Axes in ``apart`` have blocks of their own, which share nothing.
    """
    found = {}
    for tensor in stage.reads:
        try:
            forms = operand_forms(stage, tensor)
        except UnsupportedWorkload:
            continue
        plain = is_affine(forms) and all(
            form.constant == 0 and all(c > 0 for c in form.coefficients.values()) for form in forms
        )
        overlapping = any(len(form.coefficients.keys() - set(apart)) > 1 for form in forms)
        reused = overlapping or not all(
            depends_on(forms, axis.name)
            for axis in stage.spatial_axes
            if axis.extent > 1 and axis.name not in apart
        )
        if plain and reused:
            found[tensor] = forms
    return found


def tiled_kernel(
    draft: SketchDraft,
    workload: Workload,
    stage: Stage,
    fetched: Fetched,
    *,
    layouts: str = "plain",
    apart: Collection[str] = (),
) -> Kernel:
    """A reduction as a kernel, with the point-wise stages around it that it can compute.

    Args:
        draft: What is decided so far; an epilogue is for a stage that nothing splits.
        workload: What is scheduled, with the stages that split reductions have added.
        stage: The reduction.
        fetched: Its operands that go through shared memory.
        layouts: How they lie there, of :data:`autotune.spaces.rules.gpu_levels.LAYOUTS`.
        apart: Spatial axes that have a block for each value; those of others are not padded then.
    """
    can_pad = not apart and draft.can("pad_extent")
    paddable = {axis.name for axis in stage.spatial_axes if can_pad}
    levels = tile_levels(
        workload,
        stage,
        draft.target,
        draft.limits,
        fetched,
        paddable,
        layouts=layouts,
        whole=apart,
    )
    spatial = [axis.name for axis in stage.spatial_axes]
    tiled = levels.tiled(spatial)
    steps: list[Step] = [
        *(PadExtent(stage.name, axis, extent) for axis, extent in levels.padded.items()),
        *(Tile(stage.name, axis, factors) for axis, factors in levels.factors.items()),
        Order(stage.name, _order(stage, levels)),
        Bind(stage.name, tuple(f"{axis}.0" for axis in spatial), "block"),
        Bind(stage.name, tuple(f"{axis}.1" for axis in tiled), "vthread"),
        Bind(stage.name, tuple(f"{axis}.2" for axis in tiled), "thread"),
    ]
    settled = {stage.name}
    at = f"{stage.reduce_axes[-1].name}.0"
    for tensor in stage.reads:
        if tensor in fetched:
            lanes = levels.fetch_lanes[tensor]
            steps.append(CooperativeFetch(stage.name, tensor, at, levels.threads, lanes))
            laid_out = levels.layouts[tensor].step(stage.name, tensor)
            steps += [] if laid_out is None else [laid_out]
        if inlined_operand(draft, workload, stage, tensor, copied=tensor in fetched):
            steps.append(Inline(tensor))
            settled.add(tensor)
    consumer = draft.epilogues.get(stage.name)
    tile_loop = f"{tiled[-1]}.2"
    if consumer is None:
        steps.append(Accumulate(stage.name, tile_loop, levels.write_factors))
    else:
        steps.append(FuseConsumer(consumer, stage.name, tile_loop, levels.write_factors))
    unroll = f"{stage.name}.unroll"
    steps.append(UnrollLimit(stage.name, var(unroll)))
    return Kernel(
        frozenset(settled),
        (*levels.params, Ordinal(unroll, UNROLL_LIMITS)),
        levels.constraints,
        tuple(steps),
    )


def inlined_operand(
    draft: SketchDraft, workload: Workload, stage: Stage, tensor: str, *, copied: bool
) -> bool:
    """Return whether an operand is computed where it is read, or on the way into its copy."""
    producer = producer_stage(workload, tensor)
    return (
        producer is not None
        and is_pointwise(producer)
        and tensor not in workload.outputs
        and workload.consumers(tensor) == (stage,)
        and not is_gathered(workload, tensor)
        and (copied or not is_expensive(producer))
        and draft.can("inline")
    )


def _order(stage: Stage, levels: GpuLevels) -> tuple[str, ...]:
    spatial = [axis.name for axis in stage.spatial_axes]
    reduce = [axis.name for axis in stage.reduce_axes]
    tiled, split = levels.tiled(spatial), levels.tiled(reduce)
    depth = max(len(levels.factors[axis]) for axis in tiled)
    loops = [f"{axis}.0" for axis in spatial]
    loops += [f"{axis}.{level}" for level in (1, 2) for axis in tiled]
    loops += [f"{axis}.0" for axis in reduce]
    loops += [f"{axis}.1" for axis in split]
    loops += [f"{axis}.3" for axis in tiled]
    if depth > 4:
        loops += [f"{axis}.2" for axis in split]
        loops += [f"{axis}.4" for axis in tiled]
    return tuple(loops)
