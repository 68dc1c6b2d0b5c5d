"""Symbols of the published PSA (Pruner, ASPLOS'25), read off the loop nest.

They are defined as its released code computes them from lowered programs, known errors
included: traffic in elements, statements that are either arithmetic or traffic, virtual threads
that count whole for every operand they move.

Symbols of the corrected PSA, read off the loop nest: one set per kernel that is launched.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from autotune.models.pruning.gpu_accesses import (
    AccessCosts,
    Launch,
    access_costs,
    accumulators_spill,
    barriers,
    executions,
    fragment_loads,
    fragment_registers,
    inside,
    is_bulk_copy,
    is_element,
    largest,
    launches,
    matrix_slots,
    own_loops,
    tile_loops,
    trip_count,
    unrolled,
    waiting_slots,
)
from autotune.nest.loop_nest import Loop, LoopNest, Statement
from autotune.nest.quantities import (
    buffers_of,
    region_dimensions,
    region_elements,
    unique_elements,
)
from autotune.targets import Target

__all__ = [
    "CORRECTED_SYMBOLS",
    "LAUNCH_SYMBOLS",
    "PUBLISHED_SYMBOLS",
    "corrected_symbols",
    "published_symbols",
    "slot_cost",
]

PUBLISHED_SYMBOLS = (
    "flop of a thread",
    "elements in registers",
    "elements touched by a thread",
    "elements moved by all threads",
    "blocks",
    "threads of a block",
)
"""Symbols of a statement: F, R, Q, D, G and T."""

_COUNTED = ("add", "sub", "mul", "div")
_COUNTED_DTYPES = ("float16", "float32", "float64")
# The extractor tells these from other loops by their names, blockIdx.x and threadIdx.x.
_SPREAD = ("block", "thread")


def published_symbols(nest: LoopNest) -> tuple[tuple[IntExpr, ...], ...]:
    """The symbols of every statement that stores to a buffer of its own.

    Of several statements that store to one buffer (its initialisation, then its update) the last
    counts, with the elements touched by all of them.
    """
    by_buffer: dict[str, tuple[IntExpr, ...]] = {}
    for launch in launches(nest):
        for statement in launch.statements:
            flop, registers, touched, moved = _of_statement(nest, statement, launch)
            stored = statement.stored.buffer
            if stored in by_buffer:
                touched = touched + by_buffer[stored][2]
            by_buffer[stored] = (flop, registers, touched, moved, launch.blocks, launch.threads)
    return tuple(by_buffer.values())


def _of_statement(
    nest: LoopNest, statement: Statement, launch: Launch
) -> tuple[IntExpr, IntExpr, IntExpr, IntExpr]:
    """F, R, Q and D of a statement."""
    inner = [loop for loop in statement.loops if loop.kind not in _SPREAD]
    buffers = list(dict.fromkeys(access.buffer for access in statement.accesses))
    stored = statement.stored.buffer
    counted = _counted_operations(nest, statement)
    if counted:
        held = (_volume(statement, inner, (stored, buffer)) for buffer in buffers)
        touched = (_volume(statement, inner, (buffer,)) for buffer in buffers)
        return trip_count(inner) * counted, sum(held, const(0)), sum(touched, const(0)), const(0)
    everywhere = launch.threads * launch.blocks
    if nest.scope(stored) == "shared":
        read = next((buffer for buffer in reversed(buffers) if buffer != stored), stored)
        moved = _volume(statement, inner, (stored, read)) * everywhere
    else:
        moved = trip_count(inner) * everywhere
    return const(0), const(0), const(0), moved


def _counted_operations(nest: LoopNest, statement: Statement) -> int:
    """Additions, subtractions, multiplications and divisions of floating-point numbers."""
    if nest.dtype(statement.stored.buffer) not in _COUNTED_DTYPES:
        return 0
    return sum(statement.operations.get(kind, 0) for kind in _COUNTED)


def _volume(statement: Statement, loops: list[Loop], buffers: tuple[str, ...]) -> IntExpr:
    """Product of the loops whose variable is in an index of each of ``buffers``."""
    result = const(1)
    for loop in loops:
        if loop.name in statement.cooperating:
            continue
        counts = product(_in_index(statement, loop, buffer) for buffer in buffers)
        result = result * (loop.extent if counts.value == 1 else select(counts, loop.extent, 1))
    return result


def _in_index(statement: Statement, loop: Loop, buffer: str) -> IntExpr:
    """1 if the variable of a loop is in an index of the buffer, else 0.

    The variable of a fused loop is in every index that one of its parts moves, unless that part
    has a single iteration: then the quotient or remainder that it is vanishes.
    """
    axes = {
        mover
        for access in statement.accesses
        if access.buffer == buffer
        for form in access.forms
        for axis in form.axes
        for mover in statement.movers(axis)
    }
    moved = [extent for axis, extent in loop.parts if axis in axes]
    if len(moved) == len(loop.parts):
        return const(1)
    return less(1, product(moved))


CORRECTED_SYMBOLS = (
    "blocks",
    "threads of a block",
    "registers of a thread",
    "shared bytes of a block",
    "bytes moved between the last cache and all multiprocessors",
    "bytes of device memory touched",
    "arithmetic slots of a thread",
    "other instructions of a thread",
    "wavefronts of shared memory of a warp",
    "wavefronts of global memory of a warp",
    "barriers around copies",
    "vectors that a thread copies",
    "global loads that a thread waits for",
    "shared loads that a thread waits for",
    "reductions across threads",
    "accumulators of a thread",
    "whether accumulators are expected in local memory",
    "stages of copies",
)
"""Symbols of a launch that the corrected formula reads. A slot is a sixteenth of a float32
multiply-add."""

LAUNCH_SYMBOLS = (
    *CORRECTED_SYMBOLS[:4],
    "slots of a thread",
    "shared bytes that a thread reads and writes",
    *CORRECTED_SYMBOLS[4:6],
)
"""Symbols of the analytic cost model."""

SECTOR_BYTES = 32
"""Least that memory moves: a quarter of a cache line."""

_SLOTS_PER_MULTIPLY_ADD = 16
# Addresses, predicates, counters: what a thread keeps in registers in addition to data.
_REGISTERS_BESIDE_DATA = 24
# A load, a store, and the address arithmetic of a copy, for each vector copied.
_COPY_INSTRUCTIONS = 8

# In multiply-adds. Special-function units have a quarter of the rate or less, and some functions
# take a sequence of instructions around one of them.
_COSTS = {
    "div": 10,
    "mod": 14,
    "sqrt": 8,
    "rsqrt": 6,
    "exp": 6,
    "log": 6,
    "sin": 20,
    "cos": 20,
    "tanh": 16,
    "sigmoid": 16,
    "erf": 20,
    "pow": 24,
}


def corrected_symbols(
    nest: LoopNest, target: Target, names: Sequence[str] = CORRECTED_SYMBOLS
) -> tuple[tuple[IntExpr, ...], ...]:
    """The symbols called ``names`` of every launch, in program order."""
    found = []
    for launch in launches(nest):
        symbols = {**_residency(nest, launch), **_traffic(nest, launch, target)}
        symbols |= _instructions(nest, launch, target)
        found.append(tuple(symbols[name] for name in names))
    return tuple(found)


def _residency(nest: LoopNest, launch: Launch) -> dict[str, IntExpr]:
    """Number of blocks, and what each of them holds."""
    registers = largest(_operand_registers(nest, it) for it in launch.statements)
    local = (it.bytes for it in launch.buffers if it.scope == "local")
    # A thread holds those of all its virtual threads at once.
    held = sum((ceildiv(size * launch.vthreads, 4) for size in local), const(0))
    spill = largest(
        accumulators_spill(it, held, launch.vthreads)
        for it in launch.statements
        # The loops around a warp's instructions are always unrolled.
        if it.role == "compute" and not it.intrinsic
    )
    return {
        "blocks": launch.blocks,
        "threads of a block": launch.threads,
        "registers of a thread": registers + held + _REGISTERS_BESIDE_DATA,
        "shared bytes of a block": launch.shared_bytes,
        "accumulators of a thread": held,
        "whether accumulators are expected in local memory": spill,
        "stages of copies": largest((it.stages for it in launch.buffers), least=1),
    }


def _traffic(nest: LoopNest, launch: Launch, target: Target) -> dict[str, IntExpr]:
    """Bytes that pass between memories."""
    moved, touched = const(0), dict[str, list[IntExpr]]()
    for statement in launch.statements:
        for buffer in buffers_of(statement):
            if nest.scope(buffer) == "global":
                moved = moved + launch.blocks * _sectors(nest, statement, buffer)
                touched.setdefault(buffer, []).append(_held_bytes(nest, statement, buffer))
    return {
        "slots of a thread": sum((_slots(nest, it, target) for it in launch.statements), const(0)),
        "shared bytes that a thread reads and writes": sum(
            (_shared_traffic(nest, it) for it in launch.statements), const(0)
        ),
        "bytes moved between the last cache and all multiprocessors": moved,
        "bytes of device memory touched": sum(map(largest, touched.values()), const(0)),
    }


def _instructions(nest: LoopNest, launch: Launch, target: Target) -> dict[str, IntExpr]:
    """Instructions that threads and warps start, and their waits."""
    arithmetic, others, crossed = const(0), const(0), const(0)
    costs = sum((access_costs(nest, it) for it in launch.statements), AccessCosts())
    for statement in launch.statements:
        if statement.intrinsic:
            # What keeps the tensor core busy beyond what its results are waited for.
            waiting = waiting_slots(statement)
            arithmetic = arithmetic + waiting
            busy = maximum(matrix_slots(statement, target) - waiting, 0)
            others = others + busy // _SLOTS_PER_MULTIPLY_ADD
        elif statement.role == "compute":
            arithmetic = arithmetic + _slots(nest, statement, target)
            # Two instructions of control for each iteration that is left.
            others = others + executions(statement) // unrolled(statement) // 2
            crossed = crossed + (1 if _crosses_threads(statement) else 0)
        else:
            whole = [loop for loop in statement.loops if loop.kind != "vectorized"]
            if is_bulk_copy(nest, statement):
                others = others + barriers(statement)
            elif statement.role in ("pack", "write"):
                others = others + executions(inside(statement, whole))
    return {
        "arithmetic slots of a thread": arithmetic,
        "other instructions of a thread": others + costs.instructions,
        "wavefronts of shared memory of a warp": costs.shared_wavefronts,
        "wavefronts of global memory of a warp": costs.global_wavefronts,
        "barriers around copies": largest(
            barriers(it) for it in launch.statements if it.role == "pack"
        ),
        "vectors that a thread copies": costs.copied,
        "global loads that a thread waits for": costs.exposed_global,
        "shared loads that a thread waits for": costs.exposed_shared,
        "reductions across threads": crossed,
    }


def _crosses_threads(statement: Statement) -> bool:
    """Return whether several threads reduce into one element."""
    axes = statement.stored.axes
    return any(
        loop.kind == "thread" and not any(axis in axes for axis, _ in loop.parts)
        for loop in statement.loops
    )


def _operand_registers(nest: LoopNest, statement: Statement) -> IntExpr:
    """Registers for the operands of one step of a reduction, over the tile of a thread."""
    if statement.intrinsic:
        return fragment_registers(statement)
    if statement.role != "compute":
        return const(0)
    axes = statement.stored.axes
    loops = [
        loop
        for loop in (*own_loops(statement, "vthread"), *tile_loops(statement))
        if any(axis in axes for axis, _ in loop.parts)
    ]
    held = inside(statement, loops)
    operands = (buffer for buffer in buffers_of(statement) if nest.scope(buffer) != "local")
    sizes = (unique_elements(held, it, 0) * nest.element_bytes(it) for it in operands)
    return sum((ceildiv(size, 4) for size in sizes), const(0))


def _slots(nest: LoopNest, statement: Statement, target: Target) -> IntExpr:
    """Sixteenths of a float32 multiply-add that one thread starts."""
    if statement.intrinsic:
        return matrix_slots(statement, target)
    if is_bulk_copy(nest, statement):
        return barriers(statement) * _SLOTS_PER_MULTIPLY_ADD
    runs = executions(statement)
    dtype = nest.dtype(statement.stored.buffer)
    slots = runs * slot_cost(statement.operations, dtype, target)
    if statement.role in ("pack", "write"):
        vectors = [loop for loop in statement.loops if loop.kind != "vectorized"]
        slots = slots + executions(inside(statement, vectors)) * (
            _COPY_INSTRUCTIONS * _SLOTS_PER_MULTIPLY_ADD
        )
    return slots


def slot_cost(operations: dict[str, int], dtype: str, target: Target) -> int:
    """Slots of one execution of a body: sixteenths of a float32 multiply-add.

    A multiplication whose result is added is one instruction with the addition. A dtype for which
    the target has no rate counts as float32.
    """
    added = operations.get("add", 0) + operations.get("sub", 0)
    fused = min(added, operations.get("mul", 0))
    count = sum(_COSTS.get(kind, 1) * number for kind, number in operations.items()) - fused
    single = target.peak_flops.get("float32", 1.0)
    slowdown = single / target.peak_flops.get(dtype, single)
    return max(1, round(_SLOTS_PER_MULTIPLY_ADD * count * slowdown)) if count else 0


def _shared_traffic(nest: LoopNest, statement: Statement) -> IntExpr:
    """Bytes of shared memory that one thread reads and writes.

    What the tile of a thread reads again is in registers; around the tile it is read again.
    """
    if statement.intrinsic:
        shared = (it for it in statement.accesses if nest.scope(it.buffer) == "shared")
        return sum((fragment_loads(nest, statement, it)[1] for it in shared), const(0))
    tile = [*own_loops(statement, "vthread"), *tile_loops(statement)]
    names = {loop.name for loop in tile}
    around = trip_count(
        loop
        for loop in statement.loops
        if loop.kind not in ("block", "thread", "vthread") and loop.name not in names
    )
    total = const(0)
    for buffer in buffers_of(statement):
        if nest.scope(buffer) == "shared":
            count = executions(statement)
            if not statement.flattened:
                count = unique_elements(inside(statement, tile), buffer, 0) * around
            total = total + count * nest.element_bytes(buffer)
    return total


def _sectors(nest: LoopNest, statement: Statement, buffer: str) -> IntExpr:
    """Bytes of whole sectors that one block moves between a buffer and the last cache.

    A copy that the threads make together runs again in every iteration around it; what else a
    block reads again is in the cache of its multiprocessor.
    """
    own = [loop for loop in statement.loops if loop.kind != "block"]
    again = const(1)
    if statement.cooperating:
        inner = next(i for i, loop in enumerate(statement.loops) if is_element(loop))
        again = trip_count(
            loop
            for loop in statement.loops[:inner]
            if loop.kind not in ("block", "thread", "vthread")
        )
        own = list(statement.loops[inner:])
    extents = list(region_dimensions(inside(statement, own), buffer, 0))
    size = nest.element_bytes(buffer)
    if not extents:
        return again * SECTOR_BYTES
    *outer, run = extents
    total = ceildiv(run * size, SECTOR_BYTES) * SECTOR_BYTES
    for extent in outer:
        total = total * extent
    return total * again


def _held_bytes(nest: LoopNest, statement: Statement, buffer: str) -> IntExpr:
    """Bytes of a global buffer that a statement touches in all."""
    tensor = nest.workload.tensors.get(buffer)
    elements = region_elements(statement, buffer, 0)
    if tensor is not None:
        elements = minimum(elements, tensor.elements)
    return elements * nest.element_bytes(buffer)
