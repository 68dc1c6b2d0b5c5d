"""The tape of a sketch: every quantity of its loop nest that features need."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.expressions import IntExpr, const, maximum, minimum
from autotune.nest.derive import derive_nest
from autotune.nest.loop_nest import LoopNest, Statement
from autotune.nest.tape import Tape, build_tape
from autotune.sketches import Sketch


@frozen(eq=False)
class StatementColumns:
    """Where a statement's quantities are among the tape's outputs.

    Attributes:
        statement: The statement.
        buffers: Names of the buffers it touches.
        extents: Column of each loop's extent, [loops].
        elements: Column of each buffer's region in elements at each depth, [buffers, loops + 1].
        element_bytes: Bytes of one element of each buffer, [buffers].
        reloaded: For a region held at each depth, the number of outer loops that bring it in
            again: all up to the innermost one that moves the buffer, [buffers, loops + 1].
        written: Whether each buffer is written, [buffers].
    """

    statement: Statement
    buffers: tuple[str, ...]
    extents: NDArray[np.int64]
    elements: NDArray[np.int64]
    element_bytes: NDArray[np.int64]
    reloaded: NDArray[np.int64]
    written: NDArray[np.bool_]


@frozen(eq=False)
class NestTape:
    """A loop nest, its tape, and how to find things on it.

    Attributes:
        nest: The loop nest.
        tape: Outputs ``STATEMENT/loop/INDEX`` (extent), ``STATEMENT/region/BUFFER/DEPTH``
            (elements) and ``buffer/NAME`` (allocated bytes).
        columns: Per statement.
        buffers: Column of every allocation's bytes.
        dominant: Index of the statement that does most of the arithmetic.
    """

    nest: LoopNest
    tape: Tape
    columns: tuple[StatementColumns, ...]
    buffers: NDArray[np.int64]
    dominant: int


def nest_tape(sketch: Sketch) -> NestTape:
    """The tape of ``sketch``; derived once per sketch and process."""
    return _cached(_BySketch(sketch))


class _BySketch:
    """Cache key: sketches are equal when their digests are."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    def __hash__(self) -> int:
        return hash(self.sketch.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BySketch) and other.sketch.digest == self.sketch.digest


@lru_cache(maxsize=256)
def _cached(key: _BySketch) -> NestTape:
    sketch = key.sketch
    nest = derive_nest(sketch)
    outputs: dict[str, IntExpr] = {}
    local = {buffer.name: buffer for buffer in nest.buffers}
    for statement in nest.statements:
        for index, loop in enumerate(statement.loops):
            outputs[f"{statement.name}/loop/{index}"] = loop.extent
        for buffer in _buffers(statement):
            for depth in range(len(statement.loops) + 1):
                elements = _elements(statement, buffer, depth)
                if buffer in local and depth < local[buffer].depth:
                    elements = minimum(elements, local[buffer].elements)
                outputs[f"{statement.name}/region/{buffer}/{depth}"] = elements
    for allocated in nest.buffers:
        outputs[f"buffer/{allocated.name}"] = allocated.bytes
    tape = build_tape(sketch.param_names, outputs)
    columns = tuple(_columns(nest, statement, tape) for statement in nest.statements)
    buffers = np.array(
        [tape.output_index[f"buffer/{b.name}"] for b in nest.buffers], dtype=np.int64
    )
    return NestTape(nest, tape, columns, buffers, _dominant(nest))


def _buffers(statement: Statement) -> tuple[str, ...]:
    return tuple(dict.fromkeys(access.buffer for access in statement.accesses))


def _elements(statement: Statement, buffer: str, depth: int) -> IntExpr:
    """Elements of the largest region by which the statement touches ``buffer``."""
    result: IntExpr | None = None
    for access in statement.accesses:
        if access.buffer != buffer:
            continue
        total = const(1)
        for extent in statement.region(access, depth):
            total = total * extent
        result = total if result is None else maximum(result, total)
    return const(0) if result is None else result


def _columns(nest: LoopNest, statement: Statement, tape: Tape) -> StatementColumns:
    buffers = _buffers(statement)
    depths = range(len(statement.loops) + 1)
    index = tape.output_index
    reloaded = np.zeros((len(buffers), len(depths)), dtype=np.int64)
    for row, buffer in enumerate(buffers):
        axes = {
            axis
            for access in statement.accesses
            if access.buffer == buffer
            for form in access.forms
            for axis in form.coefficients
        }
        # A buffer of the schedule is the same memory in every iteration of the loops outside it.
        held = next((b.depth for b in nest.buffers if b.name == buffer), 0)
        axes |= {outer for axis in axes for outer in statement.corners.get(axis, {})}
        for depth, loop in enumerate(statement.loops, start=1):
            moved = depth > held and any(axis in axes for axis, _ in loop.parts)
            reloaded[row, depth] = depth if moved else reloaded[row, depth - 1]
    return StatementColumns(
        statement,
        buffers,
        np.array([index[f"{statement.name}/loop/{i}"] for i in range(len(statement.loops))]),
        np.array([[index[f"{statement.name}/region/{b}/{d}"] for d in depths] for b in buffers]),
        np.array([nest.element_bytes(buffer) for buffer in buffers], dtype=np.int64),
        reloaded,
        np.array(
            [any(a.write for a in statement.accesses if a.buffer == b) for b in buffers],
            dtype=np.bool_,
        ),
    )


def _dominant(nest: LoopNest) -> int:
    def work(index: int) -> tuple[int, int]:
        statement = nest.statements[index]
        stage = nest.workload.stage(statement.stage)
        return (stage.flop if statement.role == "compute" else 0, index)

    return max(range(len(nest.statements)), key=work)
