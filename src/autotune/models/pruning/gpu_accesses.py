"""Costs of accesses to shared and global memory for a warp: instructions, wavefronts, waiting.

A warp's access to shared memory takes a wavefront for each time that its threads ask one of 32
banks of 4 bytes for another word; one to global memory a wavefront for every cache line of 128
bytes. Threads of a block are numbered with the last loop over threads the fastest, and a warp is
32 in a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

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
from autotune.models.pruning.gpu_loops import (
    barriers,
    dtype_of,
    inner_loops,
    inside,
    is_bulk_copy,
    is_element,
    scope_of,
    stages_of,
    unroll_limit,
    unrolled,
)
from autotune.models.pruning.gpu_matrices import fragment_loads
from autotune.models.pruning.launches import executions, trip_count
from autotune.nest.loop_nest import Access, LoopNest, Statement
from autotune.nest.quantities import region_dimensions, unique_elements
from autotune.nest.quantities.strides import Layout, layout_of
from autotune.sketches.intrinsics import find_intrinsic

__all__ = ["AccessCosts", "access_costs"]

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
        return AccessCosts(
            self.instructions + other.instructions,
            self.shared_wavefronts + other.shared_wavefronts,
            self.global_wavefronts + other.global_wavefronts,
            self.copied + other.copied,
            self.exposed_global + other.exposed_global,
            self.exposed_shared + other.exposed_shared,
        )


def access_costs(nest: LoopNest, statement: Statement) -> AccessCosts:
    """Costs of the accesses of one statement to shared and global memory."""
    total = AccessCosts()
    for access in statement.accesses:
        scope = scope_of(nest, access.buffer)
        if scope == "global":
            total = total + _global_costs(nest, statement, access)
        elif scope == "shared":
            total = total + _shared_costs(nest, statement, access)
    return total


def _shared_costs(nest: LoopNest, statement: Statement, access: Access) -> AccessCosts:
    if statement.intrinsic and not access.write:
        loads = fragment_loads(nest, statement, access)
        return AccessCosts(
            instructions=loads.instructions,
            shared_wavefronts=loads.wavefronts,
            exposed_shared=loads.steps,
        )
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
    if access.write and (stages := stages_of(nest, access.buffer)).value != 1:
        # An asynchronous copy is one instruction, counted where it loads.
        instructions = select(less(1, stages), 0, count)
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
    return all(dtype_of(nest, access.buffer) != "bool" for access in statement.accesses)


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
    moving = {axis for form in access.forms for axis in form.coefficients}
    result = _ONE
    for loop in statement.loops:
        if loop.kind == "vthread" and loop.name not in statement.cooperating:
            for axis, extent in loop.parts:
                if axis not in moving:
                    result = result * extent
    return result


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
