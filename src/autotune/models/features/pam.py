"""Features of statements and of their data flow, for batches of configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr
from autotune.models.features.quantities import (
    ARITHMETIC,
    BUFFER_OUTPUTS,
    FEATURE_COLUMNS,
    Conventions,
    buffer_outputs,
    conventions_for,
    dataflow_accesses,
    depth_outputs,
    operation_classes,
    statement_outputs,
)
from autotune.nest import (
    LoopNest,
    Statement,
    build_tape,
    derive_nest,
    dominant_statement,
    sketch_quantities,
)
from autotune.nest.quantities import buffers_of
from autotune.sketches import Sketch, per_sketch
from autotune.targets import Target

if TYPE_CHECKING:
    from autotune._native import PamPlan


__all__ = ["PAM_VERSION", "PamFeatures", "pam_features"]

PAM_VERSION = "pam-1"
"""Meaning of the columns; a model trained with another one is not to be used."""


@frozen(eq=False)
class PamFeatures:
    """Features of ``n`` configurations.

    Attributes:
        values: float32 ``[rows, 164]``, in the order of ``FEATURE_COLUMNS``: the rows of the
            first configuration, then those of the second, ...
        offsets: int64 ``[n + 1]``: configuration ``i`` has the rows ``offsets[i]`` up to
            ``offsets[i + 1]``.
        statements: Names of the statements behind the rows of each configuration, in program
            order: one per stored buffer. An initialisation is part of its update.
        dataflow: float32 ``[n, 8, 23]``, in the order of ``DATAFLOW_COLUMNS``.
    """

    values: NDArray[np.float32]
    offsets: NDArray[np.int64]
    statements: tuple[str, ...]
    dataflow: NDArray[np.float32]


def pam_features(
    sketch: Sketch,
    matrix: NDArray[np.int64],
    target: Target,
    fidelity: str = "corrected",
    threads: int = 1,
) -> PamFeatures:
    """Features of the configurations ``[n, params]`` of one sketch.

    The 164 columns are Ansor's (OSDI'20) with the definitions of TVM's extractor; the data-flow
    block is that of Pruner (ASPLOS'25). ``docs/pam-features.md`` lists them all.

    Args:
        sketch: The sketch.
        matrix: int64, one configuration a row.
        target: What the program is for; its kind says whether it is a GPU program.
        fidelity: ``"corrected"``, or with the errors of the ``"published"`` extractor, or with
            the conventions of ``"tvm"``.
        threads: Threads to share the rows out to.

    Raises:
        InvalidValueError: the matrix does not fit the sketch, or for some configuration a
            quantity passes 2^53 or something is divided by zero.
        UnknownNameError: there is no such fidelity.
    """
    plan, statements = _plan(sketch, conventions_for(fidelity), target.kind == "cuda")
    if matrix.ndim != 2 or matrix.shape[1] != len(sketch.param_names):
        raise InvalidValueError(
            f"sketch {sketch.name!r} has {len(sketch.param_names)} parameters; "
            f"got a matrix {matrix.shape}"
        )
    if matrix.dtype != np.int64:
        raise InvalidValueError(f"configurations are int64, not {matrix.dtype}")
    try:
        values, dataflow = plan.evaluate(np.ascontiguousarray(matrix), threads)
    except (OverflowError, ValueError) as error:
        raise InvalidValueError(f"sketch {sketch.name!r}: {error}") from error
    rows = len(statements)
    offsets = np.arange(len(matrix) + 1, dtype=np.int64) * rows
    flat = values.reshape(len(matrix) * rows, values.shape[2])
    return PamFeatures(flat, offsets, statements, dataflow)


_RAW = ("is_gpu",)


@per_sketch
def _plan(sketch: Sketch, conventions: Conventions, gpu: bool) -> tuple[PamPlan, tuple[str, ...]]:
    """Native plan of computing the features of a sketch, and names of the statements of rows."""
    return _Planner(sketch, conventions, gpu).plan()


def rows_of(nest: LoopNest) -> list[int]:
    """The row of each statement: one per stored buffer; -1 for what its update overwrites."""
    rows: list[int] = []
    for statement in nest.statements:
        rows.append(-1 if statement.role == "init" else max(rows, default=-1) + 1)
    return rows


class _Planner:
    """Collects outputs of the tape, and tables of where they are, statement by statement."""

    def __init__(self, sketch: Sketch, conventions: Conventions, gpu: bool) -> None:
        self.sketch = sketch
        self.conventions = conventions
        self.gpu = gpu
        self.nest = derive_nest(sketch)
        self.known = sketch_quantities(sketch)
        self.outputs: dict[str, IntExpr] = {}
        self.index: dict[IntExpr, int] = {}
        self.columns: list[tuple[int, int, int, int]] = []
        self.scales: list[float] = []
        self.buffers: list[tuple[int, ...]] = []
        self.places: dict[tuple[int, str], int] = {}
        self.loops: list[tuple[int, ...]] = []
        self.operations: list[float] = []

    def output(self, expression: IntExpr) -> int:
        """Index of the output that holds ``expression``; equal ones share an output."""
        if expression not in self.index:
            self.index[expression] = len(self.index)
            self.outputs[str(len(self.outputs))] = expression
        return self.index[expression]

    def plan(self) -> tuple[PamPlan, tuple[str, ...]]:
        for index, statement in enumerate(self.nest.statements):
            self._columns(index, statement)
            self._buffers(index, statement)
            for extent, counts, touched in depth_outputs(
                self.nest, statement, self.known, self.conventions
            ):
                outputs = (self.output(extent), self.output(counts), self.output(touched))
                self.loops.append((index, *outputs))
        accesses, operations = self._accesses()
        rows = rows_of(self.nest)
        tape = build_tape(self.sketch.param_names, self.outputs)
        from autotune._native import PamPlan

        native = PamPlan(
            tape.program,
            np.array(rows, dtype=np.int32),
            np.array(self.operations, dtype=np.float64),
            np.array(self.columns, dtype=np.int32).reshape(-1, 4),
            np.array(self.scales, dtype=np.float64),
            np.array(self.buffers, dtype=np.int32).reshape(-1, 3 + len(BUFFER_OUTPUTS)),
            np.array(self.loops, dtype=np.int32).reshape(-1, 4),
            np.array(accesses, dtype=np.int32),
            np.array(operations, dtype=np.float64),
            self.conventions.operations_squared,
        )
        names = [s.name for s, row in zip(self.nest.statements, rows, strict=True) if row >= 0]
        return native, tuple(names)

    def _columns(self, index: int, statement: Statement) -> None:
        place: Callable[[str], int] = FEATURE_COLUMNS.index
        found = statement_outputs(self.nest, statement, self.conventions, self.gpu)
        classes = operation_classes(
            self.nest, statement, guards_as_functions=self.conventions.guards_as_functions
        )
        self.operations.append(
            float(sum(count for name, count in classes.items() if name.startswith("float_")))
        )
        for name in ARITHMETIC:
            if name in classes:
                executions = self.output(found["executions"])
                self.columns.append((index, place(name), executions, 1))
                self.scales.append(float(classes[name]))
        for name, expression in found.items():
            raw = name in _RAW or name.endswith(("_none", "_mixed"))
            self.columns.append((index, place(name), self.output(expression), int(not raw)))
            self.scales.append(1.0)

    def _buffers(self, index: int, statement: Statement) -> None:
        for buffer in sorted(buffers_of(statement)):
            kinds = {a.write for a in statement.accesses if a.buffer == buffer}
            access = 2 if len(kinds) == 2 else int(True in kinds)
            found = buffer_outputs(self.nest, statement, buffer, self.known, self.conventions)
            outputs = [self.output(found[name]) for name in BUFFER_OUTPUTS]
            self.places[index, buffer] = len(self.buffers)
            width = self.nest.element_bytes(buffer)
            self.buffers.append((index, access, width, *outputs))

    def _accesses(self) -> tuple[list[tuple[int, int, int]], list[float]]:
        """Rows and operations of the data-flow block."""
        accesses, operations = [], []
        allocated = {buffer.name: buffer.bytes for buffer in self.nest.buffers}
        for access in dataflow_accesses(
            self.nest,
            dominant_statement(self.nest),
            generalised=self.conventions.dataflow_generalised,
        ):
            if access is None:
                accesses.append((-1, 0, -1))
                operations.append(0.0)
                continue
            size = allocated.get(access.buffer) if access.place else None
            output = -1 if size is None else self.output(size)
            accesses.append((self.places[access.statement, access.buffer], access.place, output))
            operations.append(self.operations[access.statement])
        return accesses, operations
