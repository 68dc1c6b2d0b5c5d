"""Symbols of the corrected PSA, read off the loop nest: one set per kernel that is launched."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import dropwhile

from attrs import evolve

from autotune.ir.expressions import IntExpr, ceildiv, const, maximum, minimum
from autotune.models.pruning.launches import Launch, executions, launches, trip_count
from autotune.nest.loop_nest import ELEMENT, Loop, LoopNest, Statement
from autotune.nest.quantities import (
    buffers_of,
    region_dimensions,
    region_elements,
    unique_elements,
)
from autotune.targets import Target

__all__ = ["CORRECTED_SYMBOLS", "corrected_symbols", "slot_cost"]

CORRECTED_SYMBOLS = (
    "blocks",
    "threads of a block",
    "registers of a thread",
    "shared bytes of a block",
    "slots of a thread",
    "shared bytes that a thread reads and writes",
    "bytes moved between the last cache and all multiprocessors",
    "bytes of device memory touched",
)
"""Symbols of a launch. A slot is a sixteenth of a float32 multiply-add."""

SECTOR_BYTES = 32
"""What memory moves at least: a quarter of a cache line."""

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


def corrected_symbols(nest: LoopNest, target: Target) -> tuple[tuple[IntExpr, ...], ...]:
    """The symbols of every launch, in program order."""
    return tuple(_of_launch(nest, launch, target) for launch in launches(nest))


def _of_launch(nest: LoopNest, launch: Launch, target: Target) -> tuple[IntExpr, ...]:
    registers, slots, loads, moved = const(0), const(0), const(0), const(0)
    distinct: dict[str, IntExpr] = {}
    for statement in launch.statements:
        registers = _larger(registers, _operand_registers(nest, statement))
        slots = slots + _slots(nest, statement, target)
        loads = loads + _shared_traffic(nest, statement)
        for buffer in buffers_of(statement):
            if _scope(nest, buffer) == "global":
                moved = moved + launch.blocks * _sectors(nest, statement, buffer)
                touched = _held_bytes(nest, statement, buffer)
                distinct[buffer] = _larger(distinct.get(buffer, const(0)), touched)
    for held in launch.buffers:
        if held.scope == "local":
            # A thread holds those of all its virtual threads at once.
            registers = registers + ceildiv(held.bytes * launch.vthreads, 4)
    total = const(0)
    for touched in distinct.values():
        total = total + touched
    return (
        *(launch.blocks, launch.threads, registers + _REGISTERS_BESIDE_DATA),
        *(launch.shared_bytes, slots, loads, moved, total),
    )


def _scope(nest: LoopNest, buffer: str) -> str:
    return next((known.scope for known in nest.buffers if known.name == buffer), "global")


def _dtype(nest: LoopNest, buffer: str) -> str:
    dtypes = {known.name: known.dtype for known in nest.buffers}
    return dtypes[buffer] if buffer in dtypes else nest.workload.tensors[buffer].dtype


def _tile_loops(statement: Statement) -> list[Loop]:
    """The loops of a thread's tile: from the first that moves what is stored, in registers."""
    stored = next(access for access in statement.accesses if access.write)
    axes = {
        mover
        for form in stored.forms
        for axis in form.coefficients
        for mover in statement.movers(axis)
    }
    threads = [index for index, loop in enumerate(statement.loops) if loop.kind == "thread"]
    inner = statement.loops[threads[-1] + 1 if threads else 0 :]
    return list(dropwhile(lambda loop: not any(a in axes for a, _ in loop.parts), inner))


def _own_vthreads(statement: Statement) -> list[Loop]:
    return [
        loop
        for loop in statement.loops
        if loop.kind == "vthread" and loop.name not in statement.cooperating
    ]


def _inside(statement: Statement, loops: Iterable[Loop]) -> Statement:
    """The statement as if only some of its loops ran."""
    chosen = {loop.name for loop in loops}
    return evolve(statement, loops=tuple(loop for loop in statement.loops if loop.name in chosen))


def _operand_registers(nest: LoopNest, statement: Statement) -> IntExpr:
    """Registers for the operands of one step of a reduction, over the tile of a thread."""
    stored = next(access for access in statement.accesses if access.write)
    axes = {axis for form in stored.forms for axis in form.coefficients}
    loops = [
        loop
        for loop in (*_own_vthreads(statement), *_tile_loops(statement))
        if any(axis in axes for axis, _ in loop.parts)
    ]
    held = _inside(statement, loops)
    count = const(0)
    for buffer in buffers_of(statement):
        if statement.role == "compute" and _scope(nest, buffer) != "local":
            elements = unique_elements(held, buffer, 0)
            count = count + ceildiv(elements * nest.element_bytes(buffer), 4)
    return count


def _slots(nest: LoopNest, statement: Statement, target: Target) -> IntExpr:
    """Sixteenths of a float32 multiply-add that one thread starts."""
    runs = executions(statement)
    dtype = _dtype(nest, next(a.buffer for a in statement.accesses if a.write))
    slots = runs * slot_cost(statement.operations, dtype, target)
    if statement.role in ("pack", "write"):
        vectors = [loop for loop in statement.loops if loop.kind != "vectorized"]
        slots = slots + executions(_inside(statement, vectors)) * (
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
    tile = [*_own_vthreads(statement), *_tile_loops(statement)]
    names = {loop.name for loop in tile}
    around = trip_count(
        loop
        for loop in statement.loops
        if loop.kind not in ("block", "thread", "vthread") and loop.name not in names
    )
    total = const(0)
    for buffer in buffers_of(statement):
        if _scope(nest, buffer) == "shared":
            count = executions(statement)
            if not statement.flattened:
                count = unique_elements(_inside(statement, tile), buffer, 0) * around
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
        inner = next(i for i, loop in enumerate(statement.loops) if _is_element(loop))
        again = trip_count(
            loop
            for loop in statement.loops[:inner]
            if loop.kind not in ("block", "thread", "vthread")
        )
        own = list(statement.loops[inner:])
    extents = list(region_dimensions(_inside(statement, own), buffer, 0))
    size = nest.element_bytes(buffer)
    if not extents:
        return again * SECTOR_BYTES
    *outer, run = extents
    total = ceildiv(run * size, SECTOR_BYTES) * SECTOR_BYTES
    for extent in outer:
        total = total * extent
    return total * again


def _is_element(loop: Loop) -> bool:
    return any(axis == ELEMENT for axis, _ in loop.parts)


def _held_bytes(nest: LoopNest, statement: Statement, buffer: str) -> IntExpr:
    """Bytes of a global buffer that a statement touches in all."""
    shape = nest.workload.tensors[buffer].shape if buffer in nest.workload.tensors else None
    elements = region_elements(statement, buffer, 0)
    if shape is not None:
        whole = 1
        for extent in shape:
            whole *= extent
        elements = minimum(elements, whole)
    return elements * nest.element_bytes(buffer)


def _larger(left: IntExpr, right: IntExpr) -> IntExpr:
    return right if left.value == 0 else maximum(left, right)
