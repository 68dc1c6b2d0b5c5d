"""Costs of accesses to shared and global memory for a warp: instructions, wavefronts, waiting.

A warp's access to shared memory takes a wavefront for each time that its threads ask one of 32
banks of 4 bytes for another word; one to global memory a wavefront for every cache line of 128
bytes. Threads of a block are numbered with the last loop over threads the fastest, and a warp is
32 in a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import dropwhile
from operator import add

from attrs import astuple, evolve, frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    IntExpr,
    ceildiv,
    const,
    less,
    maximum,
    minimum,
    product,
    select,
)
from autotune.nest.loop_nest import ELEMENT, Access, Buffer, Loop, LoopNest, Statement
from autotune.nest.quantities import region_dimensions, unique_elements
from autotune.nest.quantities.reuse import Layout, layout_of
from autotune.sketches.intrinsics import Fragment, Intrinsic, IntrinsicOperand, find_intrinsic
from autotune.sketches.intrinsics.intrinsic import WARPGROUP_LANES
from autotune.targets import Target, most_shared_memory

__all__ = [
    "MAX_VTHREADS",
    "AccessCosts",
    "Launch",
    "access_costs",
    "accumulators_spill",
    "barriers",
    "executions",
    "fragment_loads",
    "fragment_registers",
    "inside",
    "is_bulk_copy",
    "is_element",
    "largest",
    "launches",
    "limits",
    "matrix_slots",
    "own_loops",
    "tile_loops",
    "trip_count",
    "unrolled",
    "waiting_slots",
]

MAX_VTHREADS = 8
"""Virtual threads that a thread may interleave: a quarter of a warp, as in the TVM of Pruner."""

# Loops that different threads run, not one thread after the other.
_SPREAD = ("block", "thread")


@frozen(eq=False)
class Launch:
    """Statements inside one outermost loop: one kernel.

    Attributes:
        statements: In program order.
        buffers: Shared and local buffers that they write.
        blocks: Blocks of the grid.
        threads: Threads of a block.
        vthreads: Virtual threads that a thread interleaves.
        shared_bytes: Shared memory of a block.
    """

    statements: tuple[Statement, ...]
    buffers: tuple[Buffer, ...]
    blocks: IntExpr
    threads: IntExpr
    vthreads: IntExpr
    shared_bytes: IntExpr


def launches(nest: LoopNest) -> tuple[Launch, ...]:
    """The kernels of a nest in program order; a statement without loops is one by itself."""
    groups: dict[str, list[Statement]] = {}
    for statement in nest.statements:
        outermost = statement.loops[0].name if statement.loops else statement.name
        groups.setdefault(outermost, []).append(statement)
    return tuple(_launch(nest, statements) for statements in groups.values())


def _launch(nest: LoopNest, statements: list[Statement]) -> Launch:
    written = {a.buffer for statement in statements for a in statement.accesses if a.write}
    buffers = tuple(b for b in nest.buffers if b.scope != "global" and b.name in written)
    blocks, threads, vthreads = (
        largest(dict.fromkeys(trip_count(own_loops(it, kind)) for it in statements), least=1)
        for kind in ("block", "thread", "vthread")
    )
    shared = sum((it.bytes for it in buffers if it.scope == "shared"), const(0))
    return Launch(tuple(statements), buffers, blocks, threads, vthreads, shared)


def limits(nest: LoopNest, target: Target) -> list[tuple[IntExpr, float]]:
    """Quantities with the upper bounds that make every kernel legal on ``target``.

    Limits that the target does not know are left out.
    """
    found: list[tuple[IntExpr, float]] = []
    for launch in launches(nest):
        found.append((launch.vthreads, MAX_VTHREADS))
        if target.max_threads_per_block:
            found.append((launch.threads, target.max_threads_per_block))
        if target.shared_memory_bytes:
            # What is fetched ahead is asked for when the kernel is launched.
            ahead = any(buffer.stages.value != 1 for buffer in launch.buffers)
            most = most_shared_memory(target) if ahead else target.shared_memory_bytes
            found.append((launch.shared_bytes, most))
        for statement in launch.statements:
            lanes = trip_count(own_loops(statement, "vectorized"))
            width = max(nest.element_bytes(access.buffer) for access in statement.accesses)
            found.append((lanes * width, target.vector_bytes))
    holds = {expression: most for expression, most in found if not _always(expression, most)}
    return list(holds.items())


def _always(expression: IntExpr, most: float) -> bool:
    return expression.value is not None and expression.value <= most


def executions(statement: Statement) -> IntExpr:
    """Number of times that a thread executes a statement, virtual threads included.

    Virtual threads around a copy that all threads of a block make together do not repeat it.
    """
    return trip_count(
        loop
        for loop in statement.loops
        if loop.kind not in _SPREAD and loop.name not in statement.cooperating
    )


def trip_count(loops: Iterable[Loop]) -> IntExpr:
    """Product of the extents of loops."""
    return product(loop.extent for loop in loops)


def own_loops(statement: Statement, kind: str) -> list[Loop]:
    """The loops of a kind that repeat the statement."""
    return [
        loop
        for loop in statement.loops
        if loop.kind == kind and loop.name not in statement.cooperating
    ]


def largest(values: Iterable[IntExpr], least: int = 0) -> IntExpr:
    """The largest of some values, of which none is below ``least``."""
    result = const(least)
    for value in values:
        result = value if result.value == least else maximum(result, value)
    return result


_WARP, _BANK_BYTES, _WAVEFRONT_BYTES, _LINE_BYTES = 32, 4, 128, 128
_WIDEST_BYTES = 16
# Loads in flight that one thread is taken to have, of global and of shared memory.
_GLOBAL_AT_ONCE, _SHARED_AT_ONCE = 8, 16
_ZERO, _ONE = const(0), const(1)

Part = tuple[IntExpr, IntExpr]
"""Threads in a row, and the bytes between two of them."""


@frozen
class AccessCosts:
    """Costs of the accesses of some statements.

    Attributes:
        instructions: Loads and stores of a thread.
        shared_wavefronts: Of a warp.
        global_wavefronts: Of a warp.
        copied: Vectors of global memory that a thread copies.
        exposed_global: Global loads of a thread that wait for each other, but for copies.
        exposed_shared: Shared loads of a thread that wait for each other.
    """

    instructions: IntExpr = _ZERO
    shared_wavefronts: IntExpr = _ZERO
    global_wavefronts: IntExpr = _ZERO
    copied: IntExpr = _ZERO
    exposed_global: IntExpr = _ZERO
    exposed_shared: IntExpr = _ZERO

    def __add__(self, other: AccessCosts) -> AccessCosts:
        return AccessCosts(*map(add, astuple(self, recurse=False), astuple(other, recurse=False)))


def access_costs(nest: LoopNest, statement: Statement) -> AccessCosts:
    """Costs of the accesses of one statement to shared and global memory."""
    total = AccessCosts()
    for access in statement.accesses:
        scope = nest.scope(access.buffer)
        if scope == "global":
            total = total + _global_costs(nest, statement, access)
        elif scope == "shared":
            total = total + _shared_costs(nest, statement, access)
    return total


def _shared_costs(nest: LoopNest, statement: Statement, access: Access) -> AccessCosts:
    if statement.intrinsic and not access.write:
        return fragment_loads(nest, statement, access)[0]
    count, width = executions(statement) // _lanes(statement), _lanes(statement)
    if is_bulk_copy(nest, statement):
        # Swizzled rows are written whole.
        size = width * nest.element_bytes(access.buffer)
        return AccessCosts(shared_wavefronts=count * ceildiv(size * _WARP, _WAVEFRONT_BYTES))
    if statement.flattened and _is_turned(layout_of(nest, access.buffer), len(access.forms)):
        # Neighbours that are loaded together are stored one by one, each in a row of its own.
        count, width = executions(statement), _ONE
    reads_tile = statement.role == "compute" and not access.write
    exposed = _ZERO
    if reads_tile:
        count, width = _loads_of_tile(nest, statement, access)
        exposed = ceildiv(count, minimum(unrolled(statement), _SHARED_AT_ONCE))
    width_bytes = maximum(width * nest.element_bytes(access.buffer), _BANK_BYTES)
    wavefronts = _wavefronts(_thread_parts(nest, statement, access), width_bytes)
    instructions = count
    held = nest.buffer(access.buffer)
    if access.write and held is not None and held.stages.value != 1:
        # An asynchronous copy is one instruction, counted where it loads.
        instructions = select(less(1, held.stages), 0, count)
    if access.write and _is_rounded(nest, access.buffer):
        instructions = count + executions(statement)
    return AccessCosts(
        instructions=instructions, shared_wavefronts=count * wavefronts, exposed_shared=exposed
    )


def _is_rounded(nest: LoopNest, buffer: str) -> bool:
    """Return whether elements are rounded where they are copied to a buffer."""
    return any(
        find_intrinsic(statement.intrinsic).rounds_when_fetched
        for statement in nest.statements
        if statement.intrinsic and any(it.buffer == buffer for it in statement.accesses)
    )


def _is_turned(layout: Layout, rank: int) -> bool:
    """Return whether neighbours along the last dimension are apart in memory."""
    return layout.dims is not None or layout.block_dim not in (None, rank - 1)


def _global_costs(nest: LoopNest, statement: Statement, access: Access) -> AccessCosts:
    lanes = _lanes(statement) if _has_vectors(nest, statement) else _ONE
    count = executions(statement) // lanes
    width_bytes = lanes * nest.element_bytes(access.buffer)
    if statement.flattened:
        lines = _lines_of_rows(nest, statement, access, width_bytes)
    else:
        lines = _lines_of_threads(_thread_parts(nest, statement, access), width_bytes)
    exposed, issued = _ZERO, count
    if is_bulk_copy(nest, statement):
        # One thread asks for a region; the others of its warp pass by.
        issued = barriers(statement)
    if statement.role == "compute" and not access.write:
        at_once = minimum(maximum(unrolled(statement) // lanes, 1), _GLOBAL_AT_ONCE)
        exposed = ceildiv(count, at_once)
    return AccessCosts(
        instructions=issued,
        global_wavefronts=count * lines,
        copied=issued if statement.role == "pack" and not access.write else _ZERO,
        exposed_global=exposed,
    )


def _has_vectors(nest: LoopNest, statement: Statement) -> bool:
    """Return whether what is vectorised is: CUDA has no vectors of truth values in memory.

    A loop that reads or writes these is unrolled, with all else that it reads.
    """
    return all(nest.dtype(access.buffer) != "bool" for access in statement.accesses)


def _lanes(statement: Statement) -> IntExpr:
    return trip_count(loop for loop in statement.loops if loop.kind == "vectorized")


def _loads_of_tile(
    nest: LoopNest, statement: Statement, access: Access
) -> tuple[IntExpr, IntExpr]:
    """Loads of a thread, and the elements of each.

    Straight-line code loads an element once, with its neighbours where these are next to each
    other, and once for all virtual threads that read the same.
    """
    runs, limit = executions(statement), unroll_limit(statement)
    widest = max(1, _WIDEST_BYTES // nest.element_bytes(access.buffer))
    in_rows = [axis for axis, step in _strides(nest, access).items() if step.value == 1]
    count, width = runs, _ONE
    loops = inner_loops(statement)
    inner = _ONE
    for depth, loop in enumerate(loops):
        inner = inner * loop.extent
        body = inside(statement, loops[: depth + 1])
        wide = _power_of_two_in(product(body.moved_inside(it, 0) for it in in_rows), widest)
        loaded = (runs // inner) * ceildiv(unique_elements(body, access.buffer, 0), wide)
        count = select(less(limit, inner), count, loaded)
        width = select(less(limit, inner), width, wide)
    return count // _shared_by_vthreads(statement, access), width


def _shared_by_vthreads(statement: Statement, access: Access) -> IntExpr:
    """Virtual threads of a thread that read the same."""
    moving = access.axes
    return product(
        extent
        for loop in own_loops(statement, "vthread")
        for axis, extent in loop.parts
        if axis not in moving
    )


def _thread_parts(nest: LoopNest, statement: Statement, access: Access) -> list[Part]:
    """The loops over threads around an access, the fastest first; a stride of 0 moves nothing."""
    size = nest.element_bytes(access.buffer)
    strides = _strides(nest, access)
    found = []
    for depth, loop in reversed(list(enumerate(statement.loops))):
        if loop.kind != "thread" or loop.name in statement.cooperating:
            continue
        layout = layout_of(nest, access.buffer)
        if is_element(loop) and layout.dims is not None:
            found += _parts_across_rows(nest, statement, access)
            continue
        if is_element(loop) and layout.block_dim is not None:
            found += _parts_across_blocks(statement, access, layout, size)
            continue
        for position, (axis, extent) in reversed(list(enumerate(loop.parts))):
            if is_element(loop):
                found.append((extent, _lanes(statement) * size))
            else:
                unit = statement.moved_inside(axis, depth + 1)
                if loop.units:
                    unit = statement.unit(depth, position)
                found.append((extent, strides.get(axis, _ZERO) * unit * size))
    return found


def _parts_across_rows(nest: LoopNest, statement: Statement, access: Access) -> list[Part]:
    """Threads that store a copy whose rows are not those that it is loaded by, the fastest first.

    Each stores one element of its vector at a time.
    """
    size, strides = nest.element_bytes(access.buffer), _strides(nest, access)
    found, together = [], _lanes(statement)
    for axis, extent in reversed(statement.flattened):
        threads = maximum(extent // together, 1)
        found.append((threads, strides.get(axis, _ZERO) * together * size))
        together = _ONE
    return found


def _parts_across_blocks(
    statement: Statement, access: Access, layout: Layout, size: int
) -> list[Part]:
    """Threads that store a copy in blocks, the fastest first: a vector each, inside a block."""
    lanes, block = _lanes(statement), layout.shape[-1]
    found: list[Part] = []
    dimensions = {axis: at for at, form in enumerate(access.forms) for axis in form.coefficients}
    for number, (axis, extent) in enumerate(reversed(statement.flattened)):
        if dimensions[axis] == layout.block_dim:
            inside = maximum(block // lanes, 1) if number == 0 else block
            found.append((inside, (lanes if number == 0 else _ONE) * size))
            found.append((maximum(extent // block, 1), product(layout.shape[1:]) * size))
            continue
        threads = maximum(extent // lanes, 1) if number == 0 else extent
        step = lanes if number == 0 else _ONE
        found.append((threads, layout.stride(dimensions[axis], step, _ONE) * size))
    return found


def _strides(nest: LoopNest, access: Access) -> dict[str, IntExpr]:
    """Elements by which each axis moves an access through its buffer, rows one after another.

    Of a buffer in blocks, as if these followed each other: no thread reads one element by element.
    """
    layout = layout_of(nest, access.buffer)
    if layout.block_dim is not None:
        layout = Layout(tuple(access.shape), None)
    dims = range(len(access.forms)) if layout.dims is None else layout.dims
    found: dict[str, IntExpr] = {}
    step = _ONE
    for dimension, extent in reversed(list(zip(dims, layout.shape, strict=True))):
        form = access.forms[dimension]
        for axis, coefficient in form.coefficients.items():
            found[axis] = found.get(axis, _ZERO) + step * abs(coefficient)
        step = step * extent
    return found


def _wavefronts(parts: Sequence[Part], width_bytes: IntExpr) -> IntExpr:
    """Wavefronts of a warp's access to shared memory, each thread ``width_bytes`` in a row.

    Threads at one address are served together. Those ``s`` apart, in units of the width, meet in
    one of ``128 / width`` places after as many steps as these have no common power of two.
    """
    places = const(_WAVEFRONT_BYTES) // width_bytes
    distinct, met, covered = _ONE, _ONE, _ONE
    for extent, stride in parts:
        threads = minimum(extent, maximum(ceildiv(const(_WARP), covered), 1))
        covered = covered * extent
        if stride.value == 0:
            continue
        distinct = distinct * threads
        steps = maximum(stride // width_bytes, 1)
        apart = places // minimum(places, _power_of_two_in(steps, _WARP))
        met = met * minimum(threads, maximum(apart, 1))
    served = minimum(met * width_bytes, _WAVEFRONT_BYTES)
    return maximum(ceildiv(distinct * width_bytes, served), 1)


def _lines_of_threads(parts: Sequence[Part], width_bytes: IntExpr) -> IntExpr:
    """Cache lines that a warp touches where each thread is at its own place."""
    chunks, span, covered = _ONE, width_bytes, _ONE
    for extent, stride in parts:
        threads = minimum(extent, maximum(ceildiv(const(_WARP), covered), 1))
        covered = covered * extent
        if stride.value == 0:
            continue
        is_near = less(stride, span + 1)
        chunks = select(is_near, chunks, chunks * threads)
        span = select(is_near, maximum(span, stride * threads), span)
    return chunks * ceildiv(span, _LINE_BYTES)


def _lines_of_rows(
    nest: LoopNest, statement: Statement, access: Access, width_bytes: IntExpr
) -> IntExpr:
    """Cache lines that a warp touches as it copies the rows of a region one after the other."""
    first = next(index for index, loop in enumerate(statement.loops) if is_element(loop))
    region = region_dimensions(inside(statement, statement.loops[first:]), access.buffer, 0)
    row = const(nest.element_bytes(access.buffer))
    for extent, whole in zip(reversed(region), reversed(access.shape), strict=False):
        row = row * extent
        if extent.value is None or extent.value != whole.value:
            # Rows that are whole follow each other in memory.
            break
    taken = width_bytes * _WARP
    rows = ceildiv(taken, row) * ceildiv(row, _LINE_BYTES)
    return select(less(row, taken), rows, ceildiv(taken, _LINE_BYTES))


def _power_of_two_in(value: IntExpr, most: int) -> IntExpr:
    """The largest power of two, at most ``most``, that divides a positive value."""
    found, power = _ONE, 2
    while power <= most:
        found = select(less(value % power, 1), power, found)
        power *= 2
    return found


_COMPILER_UNROLLS = 512
"""Executions of a body up to which nvcc unrolls loops that nobody asked it to (as of CUDA 13).

Seen in disassembled products and convolutions for sm_90: as many multiply-adds as executions up
to 288, mostly up to 512; beyond, loops are unrolled in part, which reuses operands all the same.
"""
# A tile of so many accumulators ends in local memory where a loop around it is left: seen in half
# of the kernels for sm_90 whose whole tile has more executions than were to be unrolled.
_LARGE_TILE, _UNROLLED_BY_ITSELF, _UNROLLED_WHEN_ASKED = 64, 256, 512


def is_bulk_copy(nest: LoopNest, statement: Statement) -> bool:
    """Return whether the device's copy engine makes a copy: threads only ask for it and wait."""
    written = {access.buffer for access in statement.accesses if access.write}
    return any(known.bulk and known.name in written for known in nest.buffers)


def is_element(loop: Loop) -> bool:
    """Return whether it counts through the elements of a copy."""
    return any(axis == ELEMENT for axis, _ in loop.parts)


def inside(statement: Statement, loops: Iterable[Loop]) -> Statement:
    """The statement as if only some of its loops ran."""
    chosen = {loop.name for loop in loops}
    return evolve(statement, loops=tuple(loop for loop in statement.loops if loop.name in chosen))


def tile_loops(statement: Statement) -> list[Loop]:
    """The loops of a thread's tile: from the first that moves what is stored, in registers."""
    axes = {mover for axis in statement.stored.axes for mover in statement.movers(axis)}
    threads = [index for index, loop in enumerate(statement.loops) if loop.kind == "thread"]
    inner = statement.loops[threads[-1] + 1 if threads else 0 :]
    return list(dropwhile(lambda loop: not any(a in axes for a, _ in loop.parts), inner))


def inner_loops(statement: Statement) -> list[Loop]:
    """The loops that one thread runs around the body, innermost first."""
    found = []
    for loop in reversed(statement.loops):
        if loop.kind in ("serial", "vectorized", "unrolled"):
            found.append(loop)
        elif loop.kind == "thread" and not statement.flattened:
            # The loops of a copy go on outside the threads that share it.
            break
    return found


def unroll_limit(statement: Statement) -> IntExpr:
    """Executions of the body up to which loops are unrolled."""
    return maximum(statement.unroll_limit, _COMPILER_UNROLLS)


def unrolled(statement: Statement) -> IntExpr:
    """Executions of the body in straight-line code."""
    limit, count, result = unroll_limit(statement), const(1), const(1)
    for loop in inner_loops(statement):
        count = count * loop.extent
        result = select(less(limit, count), result, count)
    return result


def barriers(statement: Statement) -> IntExpr:
    """Number of times that the threads of a block wait for a copy that they make together."""
    return trip_count(
        loop for loop in statement.loops if loop.kind == "serial" and not is_element(loop)
    )


def accumulators_spill(statement: Statement, held: IntExpr, vthreads: IntExpr) -> IntExpr:
    """1 where accumulators are expected to be an array in local memory, else 0.

    A compiler keeps an array in registers only where every index is constant, that is where all
    loops over it are unrolled.

    Args:
        statement: What accumulates.
        held: Registers of accumulators of a thread.
        vthreads: Virtual threads of a thread, whose bodies stand one after the other.
    """
    body = trip_count(tile_loops(statement)) * vthreads
    limit = select(
        less(statement.unroll_limit, _UNROLLED_WHEN_ASKED),
        _UNROLLED_BY_ITSELF,
        _UNROLLED_WHEN_ASKED,
    )
    return less(_LARGE_TILE - 1, held) * less(limit, body)


SLOTS_PER_CYCLE = 16

# Loops of a warp's tile: fragments of either factor, what a lane has of one, and its steps.
_TILE_LOOPS = 5
# 8x8 matrices of 16-bit elements: 8 rows of 16 bytes, of which an instruction loads four.
_ROWS, _ROW_BYTES, _MATRICES, _BANKS_BYTES = 8, 16, 4, 128
# Sixteenths of an instruction whose dependence takes as long as that of one matrix instruction,
# about 33 cycles on sm_80, where as many are independent as the tensor core has in flight.
_DEPENDENT_SLOTS, _FEWEST_CHAINS, _MOST_CHAINS = 315, 2, 4
# Instructions of warps reach so much of the rate of tensor cores that have those of warpgroups:
# on average 62.9 % of the peak of an H800, where `wgmma` reaches 95 % (Luo et al., "Benchmarking
# and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", arXiv 2402.13499).
_SHARE_OF_WARPS = 0.63
_OF_WARPGROUP = "wgmma-m64n8k16"


def matrix_instructions(statement: Statement) -> IntExpr:
    """Matrix instructions of a warp; of a warpgroup, each for every eight columns."""
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    return _steps(statement) * down.extent * across.extent


def matrix_slots(statement: Statement, target: Target) -> IntExpr:
    """Sixteenths of a cycle in which a scheduler's tensor core works for one warp.

    By the target's rate for the type of the factors; where it has none, by that of float32. A
    warpgroup's instruction keeps those of four schedulers busy, a quarter each.
    Where there are such instructions, those of warps reach 0.63 of the rate (Luo et al., arXiv
    2402.13499).
    """
    call = find_intrinsic(statement.intrinsic)
    rate = target.tensor_peak_flops.get(call.left.dtype, target.peak_flops.get("float32", 0.0))
    if not call.is_of_warpgroup and find_intrinsic(_OF_WARPGROUP).supported_by(target):
        rate = rate * _SHARE_OF_WARPS
    units = target.clock * target.multiprocessors * max(1, target.warp_schedulers)
    flop = 2 * call.result.elements * call.reduce_axes[0].extent * _WARP // call.lanes
    cycles = flop * units / rate if rate and units else flop / (2 * target.warp_size)
    return matrix_instructions(statement) * max(1, round(SLOTS_PER_CYCLE * cycles))


def waiting_slots(statement: Statement) -> IntExpr:
    """Slots of ordinary instructions that depend on each other for as long as these do.

    A group of instructions of a warpgroup is waited for once.
    """
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    if find_intrinsic(statement.intrinsic).is_of_warpgroup:
        return _groups(statement) * _DEPENDENT_SLOTS
    chains = maximum(down.extent * across.extent, _FEWEST_CHAINS)
    return matrix_instructions(statement) * _DEPENDENT_SLOTS // minimum(chains, _MOST_CHAINS)


def fragment_registers(statement: Statement) -> IntExpr:
    """Registers of a thread for the fragments of one step."""
    call = find_intrinsic(statement.intrinsic)
    if call.is_of_warpgroup:
        return const(0)
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    left = down.extent * _registers(call, call.left)
    return left + across.extent * _registers(call, call.right)


def fragment_loads(
    nest: LoopNest, statement: Statement, access: Access
) -> tuple[AccessCosts, IntExpr]:
    """Costs of loading one factor's fragments, which an access reads, and bytes for a thread."""
    call = find_intrinsic(statement.intrinsic)
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    is_left = any(axis in access.axes for axis, _ in down.parts)
    if call.is_of_warpgroup:
        return _read_by_warpgroup(statement, call.left if is_left else call.right, is_left=is_left)
    operand, fragments = (call.left, down) if is_left else (call.right, across)
    held = _registers(call, operand)
    steps = _steps(statement)
    matrices = fragments.extent * held
    costs = AccessCosts(
        instructions=steps * ceildiv(matrices, _MATRICES),
        shared_wavefronts=steps * matrices * _conflicts(nest, access),
        exposed_shared=steps,
    )
    return costs, steps * matrices * 4


def _read_by_warpgroup(
    statement: Statement, operand: IntrinsicOperand, *, is_left: bool
) -> tuple[AccessCosts, IntExpr]:
    """Cost of a warp's share of reading a factor, which no instruction of its own loads.

    Each instruction reads its 64 rows, or all its columns: core matrices are 128 bytes in a row,
    which meet no bank twice.
    """
    down, across, *_ = statement.loops[-_TILE_LOOPS:]
    read = _steps(statement) * down.extent * (operand.bytes // (WARPGROUP_LANES // _WARP))
    read = read if is_left else read * across.extent
    return AccessCosts(shared_wavefronts=ceildiv(read, _BANKS_BYTES)), ceildiv(read, _WARP)


def _groups(statement: Statement) -> IntExpr:
    """Number of times that the loops of the tile are run."""
    return trip_count(
        loop for loop in statement.loops[:-_TILE_LOOPS] if loop.kind not in ("block", "thread")
    )


def _steps(statement: Statement) -> IntExpr:
    """Steps of the reduction that a warp takes."""
    depth = find_intrinsic(statement.intrinsic).reduce_axes[0].extent
    return _groups(statement) * (statement.loops[-1].extent // depth)


def _conflicts(nest: LoopNest, access: Access) -> IntExpr:
    """Wavefronts of one matrix: its rows are as far apart in memory as those of the copy."""
    row = layout_of(nest, access.buffer).shape[-1] * nest.element_bytes(access.buffer)
    # Rows whose distance shares a power of two with the places meet as often as that says.
    return _power_of_two_in(maximum(row // _ROW_BYTES, 1), _BANKS_BYTES // _ROW_BYTES)


def _registers(call: Intrinsic, operand: IntrinsicOperand) -> int:
    fragment: Fragment | None = operand.fragment
    if fragment is None:
        return -(-operand.elements * element_type(operand.dtype).bytes // (32 * 4))
    return fragment.registers(operand.dtype)
