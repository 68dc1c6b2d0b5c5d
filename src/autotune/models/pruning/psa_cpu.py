"""The draft model for CPUs: PSA's structure for cores, vector units, registers and caches.

The published analyser (Pruner, ASPLOS'25) estimates a GPU kernel from symbols of its loop nest.
Here the same is done for CPUs. For each statement the estimate is

    (max(compute, memory) + overlap * min(compute, memory)) / busy cores

* compute: issue slots, loads, stores and chains of dependent updates of the straight-line body,
  spilled accumulators, and the overhead of the loops that remain;
* memory: what comes in from each level of the hierarchy, held at the outermost depth whose
  working set fits the level, conflicting rows included; and what another core has made.

What is asked for a row ahead, or written a row late, moves while the other statements along a row
compute: only what is left of it when they have is added.

Native code computes it from symbols that a tape gives. Written as expressions of the tape it would
take 1.7 times as long: for the tiles of a matrix product of 512^3 a tape of the coarser estimate
in :mod:`autotune.models.cost.analytic_cpu` evaluates 3.1 million configurations a second where
this scores 5.3 million (one core of a busy Xeon with AMX).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.pruning.psa_cpu_symbols import StatementSymbols, sketch_symbols
from autotune.sketches import Sketch, per_sketch
from autotune.targets import Target

if TYPE_CHECKING:
    from autotune._native import CpuStatement, PsaCpu

__all__ = ["CpuMachine", "CpuScorer", "cpu_machine"]

_WAYS = 16
# Caches below the first hold instructions, page tables and the data of other processes too.
_USABLE = (1.0, 0.5, 0.5)


@frozen
class CpuMachine:
    """The machine parameters of the model; rates are per cycle of one core.

    Attributes:
        cores: Cores that share a parallel loop.
        vector_registers: Registers for accumulators and operands.
        fma_units: Vector operations that start per cycle.
        loads_per_cycle: Vector loads per cycle.
        stores_per_cycle: Vector stores per cycle.
        latency: Cycles from one update of an accumulator to the next.
        capacity: Usable bytes of the three caches for one core; infinite where there is none.
        way_bytes: Distance of addresses that fall on the same set; 0 where it is hashed.
        bandwidth: Bytes per cycle that come into each cache from the next level.
        foreign: Bytes per cycle that come in when another core made them.
        unrolled: Issue slots up to which a compiler unrolls loops by itself.
        iteration: Loop overhead of one iteration, in cycles.
        entry: Cycles each time that an innermost loop is entered.
        spill: Cycles per accumulator beyond the registers and update.
        overlap: Share of the shorter of computing and moving data that is not hidden.
        launch: Cycles to start a parallel loop.
        row: Bytes that a jump to another row of memory costs.
        wide_call: Cost of a call per lane of a vector of more than 32 bytes, over that of a
            narrower one: whole registers are saved around calls, and upper halves extracted.
        contention: Share of loads, stores and issue that does not hide behind the largest.
    """

    cores: float
    vector_registers: float
    fma_units: float
    capacity: tuple[float, float, float]
    way_bytes: tuple[float, float, float]
    loads_per_cycle: float = 2.0
    stores_per_cycle: float = 2.0
    latency: float = 4.0
    bandwidth: tuple[float, float, float] = (64.0, 32.0, 5.0)
    foreign: float = 5.0
    unrolled: float = 100.0
    iteration: float = 1.0
    entry: float = 36.0
    spill: float = 1.0
    overlap: float = 0.8
    launch: float = 15000.0
    row: float = 100.0
    wide_call: float = 1.35
    contention: float = 0.6

    def values(self) -> NDArray[np.float64]:
        """The numbers in the order in which native code takes them."""
        return np.array(
            [
                self.cores,
                self.vector_registers,
                self.fma_units,
                self.loads_per_cycle,
                self.stores_per_cycle,
                self.latency,
                *self.capacity,
                *self.way_bytes,
                *self.bandwidth,
                self.foreign,
                self.unrolled,
                self.iteration,
                self.entry,
                self.spill,
                self.overlap,
                self.launch,
                self.row,
                self.wide_call,
                self.contention,
            ],
            dtype=np.float64,
        )


def cpu_machine(target: Target) -> CpuMachine:
    """The machine parameters of ``target``: nominal rates of x86-64 processors, its own sizes."""
    capacity = [float("inf")] * 3
    ways = [0.0] * 3
    for cache in target.caches:
        if cache.level <= 3:
            sharers = target.cores if cache.shared else 1
            capacity[cache.level - 1] = _USABLE[cache.level - 1] * cache.size_bytes / sharers
            if cache.level == 1:
                # First-level caches are indexed by the offset in a page.
                ways[0] = 4096.0
            elif not cache.shared:
                ways[cache.level - 1] = cache.size_bytes / _WAYS
    return CpuMachine(
        float(target.cores),
        float(target.vector_registers),
        float(target.fma_units),
        (capacity[0], capacity[1], capacity[2]),
        (ways[0], ways[1], ways[2]),
    )


class CpuScorer:
    """Scores configurations of sketches on one CPU.

    Args:
        target: A CPU; cores, vectors and caches count.
        machine: Its machine parameters; None for those of :func:`cpu_machine`.
    """

    def __init__(self, target: Target, machine: CpuMachine | None = None) -> None:
        self._vector_bytes = target.vector_bytes
        self._machine = machine or cpu_machine(target)
        self._model = per_sketch(self._build)

    def cycles(
        self, sketch: Sketch, matrix: NDArray[np.int64], threads: int = 1
    ) -> NDArray[np.float64]:
        """Estimated cycles of each configuration, [n]; lower is faster.

        A program whose loops never run has no estimate: NaN.

        Raises:
            InvalidValueError: the matrix has another shape or type, or a configuration's
                quantities pass what numbers can hold.
        """
        if matrix.dtype != np.int64:
            raise InvalidValueError(
                f"sketch {sketch.name!r}: configurations are of int64, not of {matrix.dtype}"
            )
        try:
            return self._model(sketch).cycles(np.ascontiguousarray(matrix), threads)
        except (OverflowError, ValueError) as error:
            raise InvalidValueError(f"sketch {sketch.name!r}: {error}") from error

    def score(self, sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.float64]:
        """Reciprocal of a million estimated cycles, [n]; higher is better."""
        return np.asarray(1e6 / self.cycles(sketch, matrix))

    def _build(self, sketch: Sketch) -> PsaCpu:
        from autotune._native import PsaCpu

        symbols = sketch_symbols(sketch, self._vector_bytes)
        return PsaCpu(
            symbols.tape.program,
            [_native(statement) for statement in symbols.statements],
            float(symbols.program_bytes),
            float(symbols.nests),
            self._machine.values(),
        )


def _native(symbols: StatementSymbols) -> CpuStatement:
    from autotune._native import CpuStatement

    return CpuStatement(
        extents=symbols.extents,
        parallel=symbols.parallel,
        remains=symbols.remains,
        reduces=symbols.reduces,
        vector=symbols.vector,
        declared=symbols.declared,
        work=symbols.work,
        calls=symbols.calls,
        body=symbols.body,
        lanes=float(symbols.lanes),
        narrow=float(symbols.narrow),
        regions=symbols.regions,
        rows=symbols.rows,
        lines=symbols.lines,
        apart=symbols.apart,
        traffic=symbols.traffic,
        element_bytes=symbols.element_bytes,
        meets=symbols.lanes_meet,
        written=symbols.written,
        aligned=symbols.aligned,
        divided=symbols.divided,
        early=symbols.early,
        hides=symbols.hides,
    )
