"""Tile factors of a stage on a GPU: parameters and limits of the target."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    AffineForm,
    IntExpr,
    ScalarExpr,
    Select,
    ceildiv,
    const,
    product,
    var,
)
from autotune.ir.expressions.scalar import children
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.nest.loop_nest import hull
from autotune.sketches import (
    AtLeast,
    AtMost,
    Constraint,
    Factor,
    OneOf,
    Ordinal,
    Param,
    ProductEquals,
)
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces.rules.access import depends_on
from autotune.spaces.rules.gpu_layouts import RowLayout, row_layout, transposable
from autotune.spaces.rules.tile_params import padded_extents
from autotune.targets import Target

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
