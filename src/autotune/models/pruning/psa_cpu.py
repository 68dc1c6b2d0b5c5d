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
in :mod:`autotune.models.cost.components` evaluates 3.1 million configurations a second where
this scores 5.3 million (one core of a busy Xeon with AMX).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
from attrs import asdict, astuple, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, ceildiv, const, less, nontrivial, select
from autotune.nest import Tape, build_tape, derive_nest
from autotune.nest.loop_nest import Access, Loop, LoopNest, Statement
from autotune.nest.quantities import (
    Region,
    body_depth,
    buffers_of,
    held_depth,
    regions_inside,
    reloads,
)
from autotune.sketches import Sketch, per_sketch
from autotune.targets import Target

if TYPE_CHECKING:
    from autotune._native import PsaCpu

__all__ = [
    "CpuMachine",
    "CpuScorer",
    "Reads",
    "SketchSymbols",
    "StatementSymbols",
    "cpu_machine",
    "sketch_symbols",
]

_WAYS = 16
# Caches below the first hold instructions, page tables and the data of other processes too.
_USABLE = (1.0, 0.5, 0.5)


@frozen(kw_only=True)
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
    loads_per_cycle: float = 2.0
    stores_per_cycle: float = 2.0
    latency: float = 4.0
    capacity: tuple[float, float, float]
    way_bytes: tuple[float, float, float]
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
        """The numbers in the order of the fields, as native code takes them."""
        return np.hstack(astuple(self))


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
        cores=float(target.cores),
        vector_registers=float(target.vector_registers),
        fma_units=float(target.fma_units),
        capacity=(capacity[0], capacity[1], capacity[2]),
        way_bytes=(ways[0], ways[1], ways[2]),
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
        from autotune._native import CpuStatement, PsaCpu

        symbols = sketch_symbols(sketch, self._vector_bytes)
        return PsaCpu(
            symbols.tape.program,
            [CpuStatement(**asdict(it, recurse=False)) for it in symbols.statements],
            float(symbols.program_bytes),
            float(symbols.nests),
            self._machine.values(),
        )


_LINE_BYTES = 64
# Issue slots of operations that take more than one. Functions that have a form in
# `autotune.lower.elementary` are its instructions: they become vectors with the rest.
_COST = {
    "div": 8.0,
    "mod": 12.0,
    "sqrt": 12.0,
    "rsqrt": 16.0,
    "exp": 16.0,
    "log": 28.0,
    "tanh": 34.0,
    "sigmoid": 26.0,
    "erf": 32.0,
}
# Cycles per element of functions that compilers call lane by lane.
_CALLS = {"sin": 20.0, "cos": 20.0, "pow": 30.0}


class Reads:
    """Ways in which neighbouring vector lanes meet a buffer."""

    BROADCAST = 0
    CONTIGUOUS = 1
    SCATTERED = 2


@frozen(eq=False)
class StatementSymbols:
    """Symbols of one statement, as native code takes them.

    Columns are those of :attr:`SketchSymbols.tape`. Loops that never run more than once are left
    out, and so are their depths.

    Attributes:
        extents: Column of how often each loop runs, [loops].
        parallel: Whether each loop runs on all cores, [loops].
        remains: Whether each loop is still a loop in the program, [loops].
        reduces: Whether each loop moves no index of what is written, [loops].
        vector: The loop whose iterations are vector lanes, or -1.
        declared: Whether the schedule declares it; otherwise the compiler is expected to.
        work: Issue slots per vector of executions.
        calls: Cycles per execution in functions that are called for each element.
        body: Depth of the straight-line body that the schedule asks for.
        lanes: Elements of the written buffer in one vector register.
        narrow: Elements of it in 32 bytes.
        regions: Column of each buffer's region in elements at each depth, [buffers, loops + 1].
        rows: Column of the contiguous rows of memory of that region, [buffers, loops + 1].
        lines: Column of the bytes that they occupy in whole lines, [buffers, loops + 1].
        apart: Column of the power of two by which rows fall apart, in bytes,
            [buffers, loops + 1].
        traffic: Column of the elements that come in, held at each depth, [buffers, loops + 1].
        element_bytes: [buffers].
        meets: One of :class:`Reads` for each buffer, [buffers].
        written: Position of the written buffer.
        aligned: Column that is 1 where cores read what they themselves made, [buffers]; -1 where
            nothing was made elsewhere.
        divided: Column that is 1 where cores touch different parts of a buffer, [buffers].
        early: Column of the halves of its data that move while other statements compute, because
            they are asked for or written in another iteration; or -1.
        hides: Whether it computes where the data of others moves.
    """

    extents: NDArray[np.int32]
    parallel: NDArray[np.uint8]
    remains: NDArray[np.uint8]
    reduces: NDArray[np.uint8]
    vector: int
    declared: bool
    work: float
    calls: float
    body: int
    lanes: int
    narrow: int
    regions: NDArray[np.int32]
    rows: NDArray[np.int32]
    lines: NDArray[np.int32]
    apart: NDArray[np.int32]
    traffic: NDArray[np.int32]
    element_bytes: NDArray[np.int32]
    meets: NDArray[np.uint8]
    written: int
    aligned: NDArray[np.int32]
    divided: NDArray[np.int32]
    early: int
    hides: bool


@frozen(eq=False)
class SketchSymbols:
    """A sketch as the draft model sees it.

    Attributes:
        tape: Everything that depends on the configuration.
        statements: In program order.
        program_bytes: Bytes of all tensors that the program touches outside its loops.
        nests: Number of parallel loop nests.
    """

    tape: Tape
    statements: tuple[StatementSymbols, ...]
    program_bytes: int
    nests: int


def sketch_symbols(sketch: Sketch, vector_bytes: int) -> SketchSymbols:
    """Symbols of ``sketch`` for vector registers of ``vector_bytes``."""
    nest = derive_nest(sketch)
    outputs: dict[str, IntExpr] = {}
    for statement in nest.statements:
        outputs.update(_outputs(nest, statement))
    early, loops = _early(nest)
    outputs.update({f"{name}/early": choice for name, choice in early.items()})
    tape = build_tape(sketch.param_names, outputs)
    statements = tuple(_symbols(nest, item, tape, vector_bytes, loops) for item in nest.statements)
    return SketchSymbols(tape, statements, _program_bytes(nest), _parallel_nests(nest))


def _early(nest: LoopNest) -> tuple[dict[str, IntExpr], frozenset[str]]:
    """Statements whose data moves in another iteration than they are in, and of which loops.

    Returns:
        By name of the statement the halves of it that do, and names of the loops. Stores wait in
        a queue anyway: writing late gained half as much as asking early where both were measured.
    """
    found: dict[str, IntExpr] = {}
    loops = set[str]()
    for statement in nest.statements:
        for early in statement.early:
            loops.add(early.loop)
            found[statement.name] = early.choice * 2
        if statement.pipelined is not None:
            loops.add(statement.pipelined[0])
            found[statement.name] = const(1)
    return found, frozenset(loops)


def _is_inside(statement: Statement, loops: Collection[str]) -> bool:
    return any(loop.name in loops for loop in statement.loops)


def _outputs(nest: LoopNest, statement: Statement) -> dict[str, IntExpr]:
    name, depths = statement.name, _depths(statement)
    outputs = {f"{name}/loop/{d}": statement.iterations(d - 1) for d in depths[1:]}
    for buffer in buffers_of(statement):
        held = held_depth(nest, buffer)
        brought = reloads(nest, statement, buffer)
        touched = regions_inside(statement, buffer, sorted({max(it, held) for it in depths}))
        laid_out = {
            depth: _rows(nest, statement, buffer, region) for depth, region in touched.items()
        }
        for depth in depths:
            inside = max(depth, held)
            region = touched[inside].elements
            rows, line_bytes, apart = laid_out[inside]
            outputs[f"{name}/region/{buffer}/{depth}"] = region
            outputs[f"{name}/traffic/{buffer}/{depth}"] = region * brought[depth]
            outputs[f"{name}/rows/{buffer}/{depth}"] = rows
            outputs[f"{name}/lines/{buffer}/{depth}"] = line_bytes
            outputs[f"{name}/apart/{buffer}/{depth}"] = apart
        moved = _divided_dimension(statement, buffer)
        outputs[f"{name}/divided/{buffer}"] = less(0, moved)
        maker = _made_elsewhere(nest, statement, buffer)
        if maker is not None:
            made = _divided_dimension(maker, buffer)
            outputs[f"{name}/aligned/{buffer}"] = 1 - less(made, moved) - less(moved, made)
    return outputs


def _depths(statement: Statement) -> list[int]:
    """Depth 0, and the depth after every loop that may run more than once."""
    return [0, *(i + 1 for i, loop in enumerate(statement.loops) if loop.extent.value != 1)]


def _rows(
    nest: LoopNest, statement: Statement, buffer: str, region: Region
) -> tuple[IntExpr, IntExpr, IntExpr]:
    """Contiguous rows of what is touched, the bytes of their lines, how far apart they fall.

    The last is the largest power of two, in bytes, that divides the distance of two rows: sets
    of a cache repeat after such distances. A buffer in blocks is laid out as it is used: one row.
    """
    run, rows, apart = region.elements, const(1), const(_LINE_BYTES)
    sizes = nest.bounds(statement, buffer)
    element = nest.element_bytes(buffer)
    if region.dimensions and len(sizes) == len(region.dimensions):
        trailing: list[IntExpr] = [const(1)]
        for size in reversed(sizes):
            trailing.append(trailing[-1] * size)
        run, outer = trailing.pop(), const(1)
        # From the first dimension to the last: the last one that is not covered decides.
        for touched, size in zip(region.dimensions, sizes, strict=True):
            below = trailing.pop()
            partial = less(touched, size)
            run = select(partial, touched * below, run)
            rows = select(partial, outer, rows)
            outer = outer * touched
            apart = select(partial, const(_apart(size * below, element)), apart)
    lines = ceildiv(run * element, _LINE_BYTES) * _LINE_BYTES
    return rows, rows * lines, apart


def _apart(elements: IntExpr, element_bytes: int) -> int:
    """Largest power of two that divides a distance in memory; one line where it varies."""
    if elements.value is None:
        return _LINE_BYTES
    distance = elements.value * element_bytes
    return max(_LINE_BYTES, distance & -distance)


def _divided_dimension(statement: Statement, buffer: str) -> IntExpr:
    """1 + the dimension of ``buffer`` by which cores divide the work; 0 if they do not by it.

    Cores get consecutive iterations of the fused parallel loop, so its first part decides that
    runs more than once.
    """
    loop = next((loop for loop in statement.loops if loop.kind == "parallel"), None)
    result = const(0)
    for axis, extent in reversed(loop.parts if loop else ()):
        result = select(nontrivial(extent), _dimension_of(statement, buffer, axis) + 1, result)
    return result


def _dimension_of(statement: Statement, buffer: str, axis: str) -> int:
    """The first dimension of ``buffer`` that ``axis`` moves; -1 if there is none."""
    own = {axis, *(inner for inner, outer in statement.corners.items() if axis in outer)}
    for access in statement.accesses:
        if access.buffer == buffer:
            for dimension, form in enumerate(access.forms):
                if own & form.axes:
                    return dimension
    return -1


def _made_elsewhere(nest: LoopNest, statement: Statement, buffer: str) -> Statement | None:
    """The earlier statement in another parallel nest that writes what this one reads."""
    if not any(a.buffer == buffer and not a.write for a in statement.accesses):
        return None
    found: Statement | None = None
    for other in nest.statements:
        if other is statement:
            break
        if any(access.write and access.buffer == buffer for access in other.accesses):
            found = other
    return None if found is None or _root(found) == _root(statement) else found


def _root(statement: Statement) -> str:
    return statement.loops[0].name if statement.loops else statement.name


def _program_bytes(nest: LoopNest) -> int:
    """Bytes of the tensors that outlive every loop; a packed tensor counts for its copy too."""
    outside = {buffer.name for buffer in nest.buffers if buffer.depth == 0}
    inside = {buffer.name for buffer in nest.buffers} - outside
    total = 0
    for name in {buffer for item in nest.statements for buffer in buffers_of(item)} - inside:
        tensor = nest.workload.tensors[name.split(".", maxsplit=1)[0]]
        total += math.prod(tensor.shape) * nest.element_bytes(name)
    return total


def _parallel_nests(nest: LoopNest) -> int:
    return len(
        {_root(s) for s in nest.statements if any(loop.kind == "parallel" for loop in s.loops)}
    )


def _symbols(
    nest: LoopNest,
    statement: Statement,
    tape: Tape,
    vector_bytes: int,
    overlapping: Collection[str],
) -> StatementSymbols:
    name, buffers, depths = statement.name, buffers_of(statement), _depths(statement)
    loops = [statement.loops[depth - 1] for depth in depths[1:]]
    written = statement.stored
    column = tape.output_index
    vector, declared = _vector_loop(statement, loops)
    body = body_depth(statement)

    def columns(quantity: str) -> NDArray[np.int32]:
        return np.array(
            [[column[f"{name}/{quantity}/{b}/{d}"] for d in depths] for b in buffers],
            dtype=np.int32,
        )

    return StatementSymbols(
        extents=np.array([column[f"{name}/loop/{d}"] for d in depths[1:]], dtype=np.int32),
        parallel=np.array([loop.kind == "parallel" for loop in loops], dtype=np.uint8),
        remains=np.array([it.kind in ("serial", "parallel") for it in loops], dtype=np.uint8),
        reduces=np.array(
            [all(axis not in written.axes for axis, _ in loop.parts) for loop in loops],
            dtype=np.uint8,
        ),
        vector=vector,
        declared=declared,
        work=_work(statement.operations),
        calls=sum(_CALLS.get(kind, 0.0) * n for kind, n in statement.operations.items()),
        body=sum(depth <= body for depth in depths[1:]),
        lanes=max(1, vector_bytes // nest.element_bytes(written.buffer)),
        narrow=max(1, 32 // nest.element_bytes(written.buffer)),
        regions=columns("region"),
        rows=columns("rows"),
        lines=columns("lines"),
        apart=columns("apart"),
        traffic=columns("traffic"),
        element_bytes=np.array([nest.element_bytes(buffer) for buffer in buffers], dtype=np.int32),
        meets=np.array(
            [_reads(statement, b, loops[vector] if vector >= 0 else None) for b in buffers],
            dtype=np.uint8,
        ),
        written=buffers.index(written.buffer),
        aligned=np.array([column.get(f"{name}/aligned/{b}", -1) for b in buffers], dtype=np.int32),
        divided=np.array([column[f"{name}/divided/{b}"] for b in buffers], dtype=np.int32),
        early=column.get(f"{name}/early", -1),
        hides=_is_inside(statement, overlapping),
    )


def _vector_loop(statement: Statement, loops: list[Loop]) -> tuple[int, bool]:
    """The loop of the vector lanes, and whether the schedule declares it.

    Compilers turn an innermost loop into vectors by themselves where it walks through memory
    element by element and carries nothing.
    """
    for index, loop in enumerate(loops):
        if loop.kind == "vectorized":
            return index, True
    if not loops or loops[-1].kind != "serial":
        return -1, False
    meets = [_reads(statement, buffer, loops[-1]) for buffer in buffers_of(statement)]
    own = meets[buffers_of(statement).index(statement.stored.buffer)]
    works = Reads.SCATTERED not in meets and own == Reads.CONTIGUOUS
    return (len(loops) - 1, False) if works else (-1, False)


def _reads(statement: Statement, buffer: str, vector: Loop | None) -> int:
    """Way in which the lanes of the loop ``vector`` meet ``buffer``."""
    if vector is None:
        return Reads.BROADCAST
    axes = {axis for axis, _ in vector.parts}
    access: Access = next(item for item in statement.accesses if item.buffer == buffer)
    steps = [sum(abs(form.step(axis)) for axis in axes) for form in access.forms]
    if not any(steps):
        return Reads.BROADCAST
    return Reads.CONTIGUOUS if steps[-1] == 1 and not any(steps[:-1]) else Reads.SCATTERED


def _work(operations: dict[str, int]) -> float:
    """Issue slots of one execution; a multiplication and an addition are one."""
    total = sum(
        _COST.get(kind, 1.0) * count for kind, count in operations.items() if kind not in _CALLS
    )
    return total - min(operations.get("mul", 0), operations.get("add", 0))
