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
from collections.abc import Collection, Iterator, Mapping, Sequence

from attrs import frozen

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    AffineForm,
    IndexTerm,
    IntExpr,
    Load,
    const,
    product,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.nest.loop_nest import hull, is_axis
from autotune.sketches import (
    AtLeast,
    AtMost,
    Bind,
    BulkCopy,
    Constraint,
    CooperativeFetch,
    CoreMatrices,
    Inline,
    OneOf,
    Order,
    Ordinal,
    SharedLayout,
    Step,
    UnrollLimit,
)
from autotune.spaces.rules.access import (
    depends_on,
    is_affine,
    is_expensive,
    is_gathered,
    is_selected,
    operand_forms,
    own_producer,
    producer_stage,
)
from autotune.spaces.rules.draft import SketchDraft, Split, loops, split
from autotune.spaces.rules.tile_params import padded_extents
from autotune.targets import Target

Forms = tuple[AffineForm, ...]
"""Indices of an access, by dimension."""


@frozen
class FetchLayout:
    """Layout of a fetched operand in shared memory.

    Attributes:
        dims: Its dimensions, outermost first; the last one is along rows.
        pad: Elements after each row; of core matrices, rows after those of each plane.
        param: The parameter that chooses ``pad``; None where there is no choice.
        core: Elements of a row of the core matrices that warpgroups read; 0 for plain rows.
        bulk: Elements of a row that the copy engine swizzles; None where threads fetch.
    """

    dims: tuple[int, ...]
    pad: IntExpr = const(0)
    param: Ordinal | None = None
    core: int = 0
    bulk: IntExpr | None = None

    @property
    def is_turned(self) -> bool:
        """True if rows lie along another dimension than the operand's last."""
        return self.dims != tuple(range(len(self.dims)))

    def elements(self, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
        """Allocated elements of the region that an access spans."""
        extents = [hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms]
        padded = self.dims[-2 if self.core else -1]
        return product(
            extent + self.pad if dimension == padded else extent
            for dimension, extent in enumerate(extents)
        )

    def step(self, stage: str, operand: str) -> SharedLayout | CoreMatrices | BulkCopy | None:
        """The step that lays the operand out; None where it lies as it is indexed."""
        if self.bulk is not None:
            return BulkCopy(stage, operand, self.bulk)
        if self.core:
            return CoreMatrices(stage, operand, self.dims[-1], self.core, self.pad)
        if self.param is None and not self.is_turned:
            return None
        return SharedLayout(stage, operand, self.dims, self.pad)


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
# What a block fetches at once: levels of spatial axes, and of reduce axes.
_OF_A_FETCH = (VTHREAD, THREAD, 3, 4), (1, 2)
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
    return [*result, *enough_blocks(grid, blocks)]


def enough_blocks(grid: IntExpr, blocks: int) -> list[Constraint]:
    """A preference for so many blocks."""
    source = "every multiprocessor gets a block, as far as there are so many"
    return [AtLeast(grid, blocks, source, hard=False)] if blocks > 1 else []


def register_limits(
    draft: SketchDraft, threads: IntExpr, tile: IntExpr, operands: IntExpr, tile_of: str
) -> list[Constraint]:
    """Limits of what one thread keeps to itself, and all of a block do.

    Args:
        draft: The sketch so far.
        threads: Threads of a block.
        tile: Bytes that a thread accumulates.
        operands: Registers of what it reads in one step of a reduction.
        tile_of: What the backend's limit of ``tile`` is called.
    """
    kept = words(tile) + SPARE_REGISTERS
    most = draft.target.registers_per_block
    return [
        AtMost(tile, draft.limits.stack_bytes, f"{draft.limits.source}: {tile_of} of a thread"),
        AtMost(kept + operands, REGISTERS_PER_THREAD, "registers of a thread", hard=False),
        AtMost(threads * kept, most, "registers of a block", hard=False),
    ]


@frozen
class _Blocks:
    """A reduction in tiles of blocks, virtual threads and threads.

    Attributes:
        stage: The reduction.
        splits: Splits by axis; axes of extent 1, and those with a block for each value, have none.
    """

    stage: Stage
    splits: Mapping[str, Split]

    @property
    def spatial(self) -> list[Axis]:
        """The spatial axes that are split."""
        return [axis for axis in self.stage.spatial_axes if axis.name in self.splits]

    def over(self, *levels: int) -> IntExpr:
        """Product of some levels of all spatial axes."""
        factors = [self.splits[axis.name].factors for axis in self.spatial]
        return product(own[level] for own in factors for level in levels if level < len(own))

    def reach(self, spatial: Sequence[int], reduce: Sequence[int]) -> dict[str, IntExpr]:
        """Distance that every axis moves in some of its levels."""
        result = {}
        for axis in self.stage.axes:
            chosen = spatial if axis.kind == "spatial" else reduce
            own = self.splits[axis.name].factors if axis.name in self.splits else ()
            result[axis.name] = product([f for level, f in enumerate(own) if level in chosen])
        return result

    def order(self) -> tuple[str, ...]:
        """All loops, outermost first."""
        spatial, reduce = self.spatial, self.stage.reduce_axes
        split_up = [axis for axis in reduce if axis.name in self.splits]
        return (
            *loops(self.stage.spatial_axes),
            *loops(spatial, 1),
            *loops(spatial, 2),
            *loops(reduce),
            *loops(split_up, 1),
            *loops(spatial, 3),
            *loops(split_up, 2),
            *loops((axis for axis in spatial if len(self.splits[axis.name].factors) > 4), 4),
        )


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


def _bytes(tensor: Tensor, forms: Forms, reach: Mapping[str, IntExpr]) -> IntExpr:
    """Bytes of the region that an operand's access spans."""
    extents = [hull(form, {axis: reach[axis] for axis in form.coefficients}) for form in forms]
    return product(extents) * tensor.element.bytes


def _memory_constraints(
    draft: SketchDraft,
    blocks: _Blocks,
    fetched: Mapping[str, Forms],
    layouts: Mapping[str, FetchLayout],
) -> list[Constraint]:
    """Shared memory of a block, and what one thread keeps to itself.

    A thread keeps its accumulators, those of every virtual thread, and the operands of one step
    of the reduction over its tile.
    """
    target, tensors = draft.target, draft.workload.tensors
    shared, operands = const(0), const(0)
    block, thread = blocks.reach(*_OF_A_FETCH), blocks.reach((3, 4), ())
    for tensor, forms in fetched.items():
        elements = layouts[tensor].elements(forms, block)
        shared = shared + elements * tensors[tensor].element.bytes
        operands = operands + words(_bytes(tensors[tensor], forms, thread))
    tile = blocks.over(VTHREAD, 3, 4) * blocks.stage.output.element.bytes
    result = register_limits(draft, blocks.over(THREAD), tile, operands, "accumulators")
    if fetched:
        source = f"target {target.name}: shared memory of a block"
        # What rounding every buffer up may take.
        limit = target.shared_memory_bytes - (SHARED_ALIGNMENT - 1) * len(fetched)
        result.insert(0, AtMost(shared, limit, source))
    return result


def words(size: IntExpr) -> IntExpr:
    """32-bit registers that hold so many bytes; small types are widened in none of them."""
    return (size + 3) // 4


def _fetch_widths(draft: SketchDraft, tensor: Tensor, layout: FetchLayout) -> tuple[int, ...]:
    """Widths of vectors that an operand may be fetched in, for which CUDA has types."""
    most = MAX_SCATTERED if layout.is_turned else None
    if tensor.element.bytes == 1 and is_selected(draft.workload, tensor.name):
        # There are no vectors of more than four bytes to hold the values of both cases.
        most = min(most or _MOST_SELECTED_BYTES, _MOST_SELECTED_BYTES)
    widths = vector_widths(tensor.shape[-1], tensor.dtype, draft.target)
    return tuple(width for width in widths if most is None or width <= most)


def _fetch_lanes(
    tensor: Tensor,
    forms: Forms,
    blocks: _Blocks,
    widths: tuple[int, ...],
    apart: Collection[str],
) -> tuple[Ordinal, Constraint] | None:
    """Width of the vectors in which an operand is fetched, whole ones of a row; None: of one."""
    moving = {
        axis: coefficient
        for axis, coefficient in forms[-1].coefficients.items()
        # What has blocks of its own does not move inside them.
        if axis not in apart
    }
    (axis, coefficient), *others = [*moving.items(), ("", 0)]
    if len(widths) == 1 or len(others) != 1 or coefficient != 1 or axis not in blocks.splits:
        return None
    name = f"{blocks.stage.name}.{tensor.name}.lanes"
    reach = blocks.reach(*_OF_A_FETCH)[axis]
    whole = OneOf(reach % var(name), (0,), "vectors do not cross rows", hard=False)
    return Ordinal(name, widths), whole


def _write_lanes(blocks: _Blocks, target: Target) -> tuple[IntExpr, Ordinal | None]:
    """A thread's part of the innermost axis, and the width of the vectors in which it is written.

    None where these are single results.
    """
    axis, output = blocks.stage.spatial_axes[-1], blocks.stage.output
    if axis.name not in blocks.splits:
        return const(1), None
    part = product(blocks.splits[axis.name].factors[3:])
    widths = vector_widths(axis.extent, output.dtype, target)
    lanes = Ordinal(f"{blocks.stage.name}.write.lanes", widths)
    return part, lanes if len(widths) > 1 else None


Fetched = dict[str, tuple[AffineForm, ...]]


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
    stage: Stage,
    fetched: Fetched,
    label: str,
    *,
    layouts: str = "plain",
    apart: Collection[str] = (),
) -> SketchDraft:
    """The draft with a reduction as a kernel, and the point-wise stages that it can compute.

    Spatial axes have five levels (block, virtual thread, thread, and two loops of a thread around
    and inside the inner loops over reduce axes), reduce axes three (a fetch; around and inside the
    first of those loops). Where nothing is fetched, spatial axes have four and reduce axes
    stay whole. Axes may be padded where every operand that depends on them is fetched.

    Args:
        draft: What is decided so far; an epilogue is for a stage that nothing splits.
        stage: The reduction.
        fetched: Its operands that go through shared memory.
        label: Name of the choice.
        layouts: How they lie there, of :data:`autotune.spaces.rules.gpu_levels.LAYOUTS`.
        apart: Spatial axes that have a block for each value; those of others are not padded then.
    """
    pads = not apart and draft.can("pad_extent")
    extents = {
        axis.name: _extents(stage, axis, fetched) if pads else (axis.extent,)
        for axis in stage.spatial_axes
        if axis.extent > 1 and axis.name not in apart
    }
    blocks = _Blocks(stage, {it.axis: it for it in _splits(stage, extents, fetched)})
    tensors = draft.workload.tensors
    laid_out = {
        tensor: _row_layout(draft, blocks, tensors[tensor], forms, layouts)
        for tensor, forms in fetched.items()
    }
    found = {
        tensor: _fetch_lanes(
            tensors[tensor],
            forms,
            blocks,
            _fetch_widths(draft, tensors[tensor], laid_out[tensor]),
            apart,
        )
        for tensor, forms in fetched.items()
    }
    grid = blocks.over(BLOCK) * math.prod(stage.axis(axis).extent for axis in apart)
    choices = list(extents.values())
    limits = thread_constraints(blocks.over(THREAD), grid, choices, draft.target)
    return _kernel(draft.extended(label=label), blocks, limits, fetched, laid_out, found)


def _kernel(
    draft: SketchDraft,
    blocks: _Blocks,
    limits: list[Constraint],
    fetched: Fetched,
    laid_out: Mapping[str, FetchLayout],
    found: Mapping[str, tuple[Ordinal, Constraint] | None],
) -> SketchDraft:
    """The draft with the parameters, limits and steps of a kernel, whose ``found`` are widths."""
    stage = blocks.stage
    part, write = _write_lanes(blocks, draft.target)
    unroll = Ordinal(f"{stage.name}.unroll", UNROLL_LIMITS)
    source = f"target {draft.target.name}: virtual threads"
    constraints = [
        *limits,
        AtMost(blocks.over(VTHREAD), MAX_VTHREADS, source),
        *_memory_constraints(draft, blocks, fetched, laid_out),
        *(whole for _, whole in filter(None, found.values())),
    ]
    params = [lanes for lanes, _ in filter(None, found.values())]
    params += [it.param for it in laid_out.values() if it.param is not None]
    written = (part, const(1))
    if write is not None:
        params.append(write)
        written = (part // var(write.name), var(write.name))
        constraints.append(OneOf(part % written[1], (0,), "a thread writes whole vectors"))
    widths = {tensor: const(1) if it is None else var(it[0].name) for tensor, it in found.items()}
    settled, steps = _operands(draft, blocks, widths, laid_out)
    return draft.extended(
        settled=settled,
        splits=blocks.splits.values(),
        params=[*params, unroll],
        constraints=constraints,
        steps=[
            Order(stage.name, blocks.order()),
            Bind(stage.name, loops(stage.spatial_axes), "block"),
            Bind(stage.name, loops(blocks.spatial, 1), "vthread"),
            Bind(stage.name, loops(blocks.spatial, 2), "thread"),
            *steps,
            draft.written(stage.name, f"{blocks.spatial[-1].name}.2", written),
            UnrollLimit(stage.name, var(unroll.name)),
        ],
    )


def _splits(
    stage: Stage, extents: Mapping[str, tuple[int, ...]], fetched: Fetched
) -> Iterator[Split]:
    for axis in stage.axes:
        if axis.name in extents:
            levels = [None] * (5 if fetched else 4)
            yield split(stage.name, axis, *levels, extents=extents[axis.name])
        elif axis.kind != "spatial" and fetched and axis.extent > 1:
            yield split(stage.name, axis, None, None, None)


def _row_layout(
    draft: SketchDraft, blocks: _Blocks, tensor: Tensor, forms: Forms, layouts: str
) -> FetchLayout:
    """The layout of an operand, one of :data:`LAYOUTS`."""
    turned = layouts == "transposed"
    rows = transposable(blocks.stage, forms, blocks.splits) if turned else None
    dims = tuple(range(len(forms)))
    if rows is not None:
        dims = (*(dimension for dimension in dims if dimension != rows), rows)
    spatial = {axis.name for axis in blocks.spatial}
    in_rows = not dims or any(axis in blocks.splits for axis in forms[dims[-1]].coefficients)
    # Rows are read one below the other by threads along an axis, or written so by the fetch.
    met = rows is not None or any(
        spatial & set(forms[dimension].coefficients) for dimension in dims[:-1]
    )
    vector = draft.target.vector_bytes // tensor.element.bytes
    if not (layouts != "plain" and in_rows and met and len(dims) > 1 and vector > 1):
        return FetchLayout(dims)
    name = f"{blocks.stage.name}.{tensor.name}.pad"
    return FetchLayout(dims, var(name), Ordinal(name, (0, vector)))


def _operands(
    draft: SketchDraft,
    blocks: _Blocks,
    widths: Mapping[str, IntExpr],
    layouts: Mapping[str, FetchLayout],
) -> tuple[set[str], list[Step]]:
    """Stages computed in the kernel, and the steps that fetch operands and compute them there."""
    stage, settled, steps = blocks.stage, {blocks.stage.name}, list[Step]()
    at = f"{stage.reduce_axes[-1].name}.0"
    for tensor in stage.reads:
        if tensor in widths:
            threads = blocks.over(THREAD)
            steps.append(CooperativeFetch(stage.name, tensor, at, threads, widths[tensor]))
            laid_out = layouts[tensor].step(stage.name, tensor)
            steps += [] if laid_out is None else [laid_out]
        if inlined_operand(draft, stage, tensor, copied=tensor in widths):
            steps.append(Inline(tensor))
            settled.add(tensor)
    return settled, steps


def inlined_operand(draft: SketchDraft, stage: Stage, tensor: str, *, copied: bool) -> bool:
    """Return whether an operand is computed where it is read, or on the way into its copy."""
    producer = own_producer(draft.workload, tensor)
    return (
        producer is not None
        and draft.workload.consumers(tensor) == (stage,)
        and not is_gathered(draft.workload, tensor)
        and (copied or not is_expensive(producer))
        and draft.can("inline")
    )
