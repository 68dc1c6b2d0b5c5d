"""The tape of a sketch: every quantity of its loop nest that a reader needs."""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.expressions import IntExpr
from autotune.nest.derive import derive_nest
from autotune.nest.loop_nest import LoopNest, Statement
from autotune.nest.quantities import KIND_OUTPUTS, body_depth, buffers_of, nest_quantities
from autotune.nest.tape import Tape, build_tape
from autotune.sketches import Sketch, per_sketch


@frozen(eq=False)
class StatementColumns:
    """Positions of a statement's quantities among the outputs of the tape that features read.

    Attributes:
        statement: The statement.
        buffers: Names of the buffers it touches.
        body: Depth of its straight-line body.
        extents: Column of each loop's extent, [loops].
        trips: Column of the trip count at each depth, [loops + 1]; the last is its executions.
        kinds: Column of each product of loops by kind (``parallel``, ``lanes``, ...).
        operations: Columns of its operations by kind.
        elements: Column of each buffer's region in elements at each depth, [buffers, loops + 1].
        traffic: Column of each buffer's traffic in elements at each depth, [buffers, loops + 1].
        element_bytes: Bytes of one element of each buffer, [buffers].
        written: Whether each buffer is written, [buffers].
    """

    statement: Statement
    buffers: tuple[str, ...]
    body: int
    extents: NDArray[np.int64]
    trips: NDArray[np.int64]
    kinds: dict[str, int]
    operations: NDArray[np.int64]
    elements: NDArray[np.int64]
    traffic: NDArray[np.int64]
    element_bytes: NDArray[np.int64]
    written: NDArray[np.bool_]


@frozen(eq=False)
class NestTape:
    """A loop nest, its tape, and how to find things on it.

    Attributes:
        nest: The loop nest.
        tape: Every quantity of :func:`~autotune.nest.quantities.nest_quantities`; the outputs
            are documented in ``docs/tape.md``.
        feature_tape: The part of it that features read.
        columns: Per statement, where quantities are on the feature tape.
        buffers: Column of every allocation's bytes on the feature tape.
        dominant: Index of the statement that does most of the arithmetic.
    """

    nest: LoopNest
    tape: Tape
    feature_tape: Tape
    columns: tuple[StatementColumns, ...]
    buffers: NDArray[np.int64]
    dominant: int


@per_sketch
def sketch_quantities(sketch: Sketch) -> dict[str, IntExpr]:
    """Quantities of a sketch's nest, by :func:`~autotune.nest.quantities.nest_quantities`."""
    return nest_quantities(derive_nest(sketch))


@per_sketch
def nest_tape(sketch: Sketch) -> NestTape:
    """The tape of ``sketch``; derived once per sketch and process."""
    nest = derive_nest(sketch)
    tape = build_tape(sketch.param_names, sketch_quantities(sketch))
    names = [f"buffer/{buffer.name}" for buffer in nest.buffers]
    for statement in nest.statements:
        names.extend(name for group in _names(statement).values() for name in group)
    features = tape.restricted(names)
    columns = tuple(_columns(nest, statement, features) for statement in nest.statements)
    buffers = np.arange(len(nest.buffers), dtype=np.int64)
    return NestTape(nest, tape, features, columns, buffers, dominant_statement(nest))


def _names(statement: Statement) -> dict[str, list[str]]:
    """Outputs that features read of a statement, by what they are."""
    depths = range(len(statement.loops) + 1)
    places = [f"{buffer}/{depth}" for buffer in buffers_of(statement) for depth in depths]
    wanted = {
        "extents": [f"loop/{index}" for index in range(len(statement.loops))],
        "trips": [f"trips/{depth}" for depth in depths],
        "kinds": list(KIND_OUTPUTS),
        "operations": [f"operations/{kind}" for kind in sorted(statement.operations)],
        "elements": [f"region/{place}" for place in places],
        "traffic": [f"traffic/{place}" for place in places],
    }
    return {
        group: [f"{statement.name}/{name}" for name in names] for group, names in wanted.items()
    }


def _columns(nest: LoopNest, statement: Statement, tape: Tape) -> StatementColumns:
    buffers = buffers_of(statement)
    written = {access.buffer for access in statement.accesses if access.write}
    found = {
        group: np.array([tape.output_index[name] for name in names], dtype=np.int64)
        for group, names in _names(statement).items()
    }
    by_depth = (len(buffers), len(statement.loops) + 1)
    return StatementColumns(
        statement,
        buffers,
        body_depth(statement),
        found["extents"],
        found["trips"],
        dict(zip(KIND_OUTPUTS, found["kinds"].tolist(), strict=True)),
        found["operations"],
        found["elements"].reshape(by_depth),
        found["traffic"].reshape(by_depth),
        np.array([nest.element_bytes(buffer) for buffer in buffers], dtype=np.int64),
        np.array([buffer in written for buffer in buffers], dtype=np.bool_),
    )


def dominant_statement(nest: LoopNest) -> int:
    """Index of the statement that does most of the arithmetic."""

    def work(index: int) -> tuple[int, int]:
        statement = nest.statements[index]
        stage = nest.workload.stage(statement.stage)
        return (stage.flop if statement.role == "compute" else 0, index)

    return max(range(len(nest.statements)), key=work)
