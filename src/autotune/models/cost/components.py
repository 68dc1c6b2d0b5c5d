"""The costs of programs on CPUs and GPUs, as expressions of a sketch's parameters.

The structure is that of the draft model for CPUs (:mod:`autotune.models.pruning.psa_cpu`), written
so that a relaxed reading of it has a useful derivative everywhere: what is rounded up there is at
least a whole there, and what a threshold decides there changes over half an octave here.

Everything is counted in hundredths of a cycle of one core, because expressions are of integers.

The cost of a program on a GPU, as an expression of a sketch's parameters with smooth forms.

Symbols are those of the corrected PSA (:mod:`autotune.models.pruning.psa_symbols`), launch by
launch, without what depends on single instructions. Whole waves, warps and blocks are counted as
real numbers, at least one, so that a relaxed reading has a useful derivative everywhere.

Everything is counted in femtoseconds, because expressions are of integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ir.expressions import IntExpr, const, less, maximum, minimum, nontrivial, select
from autotune.models.pruning.psa_cpu import (
    CpuMachine,
    Reads,
    StatementSymbols,
    cpu_machine,
    sketch_symbols,
)
from autotune.models.pruning.psa_gpu import CorrectedGpu, corrected_gpu
from autotune.models.pruning.psa_symbols import LAUNCH_SYMBOLS, corrected_symbols
from autotune.nest import LoopNest, Statement, derive_nest
from autotune.nest.quantities import (
    buffers_of,
    held_depth,
    region_dimensions,
    region_elements,
    reloads,
)
from autotune.sketches import Sketch
from autotune.targets import Target

__all__ = ["CPU_COMPONENTS", "CYCLE", "GPU_COMPONENTS", "cpu_components", "gpu_components"]

CPU_COMPONENTS = ("arithmetic", "loops", "spills", "l1", "l2", "l3", "launch")
"""Components of a program's time, in the order of :func:`cpu_components`.

Issue, loads, stores and chains of updates; iterations of loops; accumulators that do not fit the
registers; what comes into each of three caches from the next level; starts of parallel loops.
"""

CYCLE = 100
"""Units of a cycle."""

_LINE_BYTES = 64
# A threshold lies between what is reached and the next divisor, half an octave further.
_ABOVE, _BELOW = 7, 5


def cpu_components(sketch: Sketch, target: Target) -> tuple[IntExpr, ...]:
    """The cost of the program, by :data:`CPU_COMPONENTS`, in units of ``CYCLE`` a cycle."""
    symbols = sketch_symbols(sketch, target.vector_bytes)
    nest, machine = derive_nest(sketch), cpu_machine(target)
    totals = [const(0)] * (len(CPU_COMPONENTS) - 1)
    for statement, facts in zip(nest.statements, symbols.statements, strict=True):
        model = _StatementModel(nest, statement, facts, machine)
        found = (*model.cycles(), *model.moved(symbols.program_bytes))
        totals = [total + model.shared(value) for total, value in zip(totals, found, strict=True)]
    launch = max(1, round(symbols.nests * machine.launch * CYCLE))
    return (*totals, const(launch))


class _StatementModel:
    """Model of a statement; depths are counted without loops that never repeat.

    Attributes:
        index: Loops outside each depth, those that never repeat included.
        outside: Iterations of the loops outside.
        inside: Vector statements inside, for each iteration outside.
        chain: Updates of one element inside.
    """

    def __init__(
        self, nest: LoopNest, statement: Statement, facts: StatementSymbols, machine: CpuMachine
    ) -> None:
        self.nest, self.statement, self.facts, self.machine = nest, statement, facts, machine
        kept = [i for i, loop in enumerate(statement.loops) if loop.extent.value != 1]
        self.loops = [statement.loops[index] for index in kept]
        self.iterations = [statement.iterations(index) for index in kept]
        self.lanes = self.loops[facts.vector].extent if facts.vector >= 0 else const(1)
        self.vectors = maximum(self.lanes, facts.lanes) // facts.lanes
        self.index = [0, *(index + 1 for index in kept)]
        self.outside, self.inside, self.chain = self._counts()
        self.brought = {
            buffer: reloads(nest, statement, buffer) for buffer in buffers_of(statement)
        }

    def _counts(self) -> tuple[list[IntExpr], list[IntExpr], list[IntExpr]]:
        outside = [const(1)]
        for count in self.iterations:
            outside.append(outside[-1] * count)
        inside, chain = [self.vectors], [const(1)]
        for place in range(len(self.loops) - 1, -1, -1):
            extent = self.iterations[place]
            inside.insert(0, inside[0] if place == self.facts.vector else inside[0] * extent)
            chain.insert(0, chain[0] * extent if self.facts.reduces[place] else chain[0])
        return outside, inside, chain

    def shared(self, cost: IntExpr) -> IntExpr:
        """Share of a cost that each core has; at most all cores can be busy."""
        spread = const(1)
        for loop in self.loops:
            if loop.kind == "parallel":
                spread = spread * loop.extent
        return cost // minimum(spread, round(self.machine.cores))

    def cycles(self) -> tuple[IntExpr, IntExpr, IntExpr]:
        """Arithmetic, loops and spills, with the body as far out as the compiler unrolls."""
        place = self._scheduled_body()
        found = self._cycles_at(place)
        size = round(CYCLE * (max(self.facts.work + self.facts.calls, 1.0) + 1.0))
        limit = round(CYCLE * self.machine.unrolled)
        chosen = const(1)
        while place > 0 and not self.facts.parallel[place - 1]:
            place -= 1
            chosen = chosen * less(self.inside[place] * size, limit + 1)
            outer = self._cycles_at(place)
            found = [select(chosen, new, old) for new, old in zip(outer, found, strict=True)]
        return found[0], found[1], found[2]

    def _scheduled_body(self) -> int:
        facts, place = self.facts, self.facts.body
        if not facts.declared and facts.vector >= 0 and place == facts.vector + 1:
            place = facts.vector
            while place > 0 and not facts.remains[place - 1]:
                place -= 1
        return place

    def _cycles_at(self, place: int) -> list[IntExpr]:
        """Arithmetic, loops and spills where the straight-line body is inside a depth."""
        facts, machine = self.facts, self.machine
        outside, inside, chain = self.outside[place], self.inside[place], self.chain[place]
        carried = place > 0 and bool(facts.reduces[place - 1])
        loads, accumulators = const(0), const(1)
        for buffer, meets in zip(buffers_of(self.statement), facts.meets, strict=True):
            count = region_elements(self.statement, buffer, self.index[place])
            if facts.vector >= 0 and meets == Reads.CONTIGUOUS:
                count = count * self.vectors // self.lanes
            if buffer == buffers_of(self.statement)[facts.written]:
                accumulators = count
            else:
                loads = loads + count
        issue = inside * max(1, round(CYCLE * facts.work / machine.fma_units))
        if facts.calls:
            wide = maximum(self.lanes, 2 * facts.narrow) // (2 * facts.narrow)
            calls = round(CYCLE * facts.calls * (machine.wide_call if wide.value != 1 else 1.0))
            issue = issue + inside * self.lanes * calls // self.vectors
        registers = round(machine.vector_registers)
        per_load = round(CYCLE / machine.loads_per_cycle)
        store = accumulators * round(CYCLE / machine.stores_per_cycle)
        load = loads * per_load + 1
        if carried:
            # Accumulators of a reduction stay in registers while loops carry it, if they fit.
            leaves = less(registers + 4, accumulators)
            load = load + leaves * accumulators * per_load
            store = leaves * store + 1
        busy = self._contended((issue, load, store))
        if carried:
            busy = maximum(busy, chain * round(machine.latency * CYCLE))
        spilled = const(1)
        if carried or chain.value != 1:
            # What is beyond the registers, and smooth where it begins.
            excess = maximum(accumulators + 2, registers) - registers
            spilled = excess * chain * round(machine.spill * CYCLE) + 1
        entered = self.outside[place - 1] if place else const(1)
        turns = outside * round(machine.iteration * CYCLE)
        loops = turns + entered * round(machine.entry * CYCLE)
        return [outside * busy, loops, outside * spilled]

    def _contended(self, parts: Sequence[IntExpr]) -> IntExpr:
        """The largest, and a share of the others, in percent."""
        percent = round(100 * self.machine.contention)
        largest, total = parts[0], parts[0]
        for part in parts[1:]:
            largest, total = maximum(largest, part), total + part
        return (largest * (100 - percent) + total * percent) // 100

    def moved(self, program_bytes: int) -> list[IntExpr]:
        """Bytes that come into each cache, held at the outermost depth that fits it."""
        result = []
        held = [self._held(place) for place in range(len(self.index))]
        for level, capacity in enumerate(self.machine.capacity):
            if capacity == float("inf"):
                result.append(const(1))
                continue
            rate = CYCLE / self.machine.bandwidth[level]
            # What fits as a whole is there already when a program runs again and again.
            warm = program_bytes / self.machine.cores / capacity - 1.0
            cold = min(1.0, max(0.01, warm))
            found = None
            for place in range(len(self.index) - 1, -1, -1):
                occupied, incoming = held[place]
                scale = rate * (cold if place == 0 else 1.0)
                cost = incoming * max(1, round(1000 * scale)) // 1000
                if found is None:
                    found = cost
                else:
                    fits = less(occupied, max(1, round(capacity)))
                    found = select(fits, cost, found)
            result.append(const(1) if found is None else found)
        return result

    def _held(self, place: int) -> tuple[IntExpr, IntExpr]:
        """Bytes that are occupied at a depth, and bytes that come in where it is held."""
        occupied, incoming = const(0), const(1)
        index, around = self.index[place], self.index[max(0, place - 1)]
        for buffer in buffers_of(self.statement):
            inside = max(index, held_depth(self.nest, buffer))
            outer = max(around, held_depth(self.nest, buffer))
            elements, lines, _ = self._rows(buffer, inside)
            wide_elements, wide_lines, rows = self._rows(buffer, outer)
            # Lines stay from one iteration of the loop around to the next.
            jumps = (rows - 1) * round(self.machine.row)
            again = self.brought[buffer][index]
            occupied = occupied + lines
            incoming = incoming + again * elements * (wide_lines + jumps) // wide_elements
        return occupied, incoming

    def _rows(self, buffer: str, depth: int) -> tuple[IntExpr, IntExpr, IntExpr]:
        """Elements of what is touched, bytes in whole lines, number of contiguous rows."""
        element = self.nest.element_bytes(buffer)
        elements = region_elements(self.statement, buffer, depth)
        run, rows = _contiguous(self.nest, self.statement, buffer, depth)
        return elements, rows * maximum(run * element, _LINE_BYTES), rows


def _contiguous(
    nest: LoopNest, statement: Statement, buffer: str, depth: int
) -> tuple[IntExpr, IntExpr]:
    """Elements of a contiguous row of what is touched, and the number of rows.

    A dimension that is not touched completely ends a row. A buffer in blocks is laid out as it is
    used: one row.
    """
    touched = region_dimensions(statement, buffer, depth)
    sizes = nest.bounds(statement, buffer)
    if not touched or len(sizes) != len(touched):
        return region_elements(statement, buffer, depth), const(1)
    run, rows = const(1), const(1)
    for extent, size in zip(touched, sizes, strict=True):
        # From the outermost dimension in: what is outside a partial one is rows of it.
        if extent == size:
            run = run * extent
            continue
        partial = less(extent * _ABOVE, size * _BELOW)
        some = partial * nontrivial(size)
        rows = select(some, rows * run, rows)
        run = select(some, extent, run * extent)
    return run, rows


GPU_COMPONENTS = ("arithmetic", "shared", "cache", "memory", "launch")
"""Components of a program's time, in the order of :func:`gpu_components`.

Instructions; shared memory; what passes between multiprocessors and the last cache; device
memory; starts of kernels.
"""

_FEMTO = 1e15
_MOST_REGISTERS = 255
_LEAST_REGISTERS = 16
# Bytes of shared memory, and of the last cache, that a multiprocessor moves per cycle.
_SHARED_PER_CYCLE, _CACHE_PER_CYCLE = 128, 32
# Bytes that a thread has in flight, and how long one takes to come from memory.
_IN_FLIGHT, _LATENCY_SECONDS = 16, 600e-9
# Rates are fractions of femtoseconds: kept to a thousandth.
_FINE = 1000


def gpu_components(sketch: Sketch, target: Target) -> tuple[IntExpr, ...]:
    """The cost of the program, by :data:`GPU_COMPONENTS`, in femtoseconds.

    Raises:
        InvalidValueError: the target lacks a rate or a limit.
    """
    gpu = corrected_gpu(target)
    totals = [const(1)] * (len(GPU_COMPONENTS) - 1)
    launches = corrected_symbols(derive_nest(sketch), target, LAUNCH_SYMBOLS)
    for symbols in launches:
        found = _launch(symbols, gpu)
        totals = [total + value for total, value in zip(totals, found, strict=True)]
    return (*totals, const(max(1, round(len(launches) * gpu.launch * _FEMTO))))


def _launch(symbols: Sequence[IntExpr], gpu: CorrectedGpu) -> tuple[IntExpr, ...]:
    """Components of one launch, but for its start, from the symbols of the corrected PSA."""
    blocks, threads, registers, shared, slots, loads, moved, distinct = symbols
    warp, units = round(gpu.warp), round(gpu.multiprocessors)
    lanes = maximum(threads, warp)
    most = minimum(const(round(gpu.block_registers)) // lanes, _MOST_REGISTERS)
    held = minimum(maximum(registers, _LEAST_REGISTERS), most)
    resident = minimum(
        minimum(const(round(gpu.threads_held)) // lanes, round(gpu.blocks_held)),
        minimum(
            const(round(gpu.registers_held)) // (held * lanes),
            const(round(gpu.shared_held)) // maximum(shared, 1),
        ),
    )
    resident = maximum(resident, 1)
    rounds = maximum(blocks, units) // units
    together = minimum(resident, rounds)
    # Warps that keep all schedulers busy.
    enough = round(2 * gpu.schedulers * gpu.warp)
    work = rounds * lanes * slots * maximum(registers, most) // most
    work = work * maximum(together * lanes, enough) // (together * lanes)
    flying = minimum(blocks, resident * units) * threads * _IN_FLIGHT
    needed = max(1, round(gpu.bandwidth * _LATENCY_SECONDS))
    exposed = maximum(flying, needed)
    cache = max(1, round(gpu.cache))
    larger = maximum(distinct, cache)
    again = maximum(moved, distinct) - distinct
    from_memory = distinct + again * (larger - cache) // larger
    return (
        _timed(work, gpu.slot_rate),
        _timed(rounds * lanes * loads, _SHARED_PER_CYCLE * gpu.clock),
        _timed(moved, gpu.multiprocessors * _CACHE_PER_CYCLE * gpu.clock) * exposed // flying,
        _timed(from_memory, gpu.bandwidth) * exposed // flying,
    )


def _timed(amount: IntExpr, rate: float) -> IntExpr:
    """Femtoseconds for an amount at a rate per second."""
    return amount * max(1, round(_FINE * _FEMTO / rate)) // _FINE
