"""The statement features between configurations, with their derivatives.

The columns are those of :func:`autotune.models.features.pam_features` without the curve of
arithmetic intensity, as Felix (ASPLOS'24, section on features) has them, on a relaxed tape.
Two things differ, because they would not be smooth: the buffers of a statement keep their
places (what is written first, then what is read, in the order of the accesses), and only
quantities whose derivative exists are there. At whole numbers a column is off by what the
smooth forms are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.expressions import IntExpr, const, maximum, minimum
from autotune.models.features.quantities import (
    ARITHMETIC,
    BUFFERS,
    FEATURE_COLUMNS,
    Conventions,
    buffer_outputs,
    conventions_for,
    operation_classes,
    statement_outputs,
)
from autotune.nest import LoopNest, Statement, build_tape, derive_nest, sketch_quantities
from autotune.nest.quantities import buffers_of
from autotune.nest.relaxed import RelaxedTape, Smoothing, param_bounds
from autotune.sketches import Sketch, per_sketch
from autotune.targets import Target

__all__ = [
    "RELAXED_COLUMNS",
    "RELAXED_RAW_COLUMNS",
    "RELAXED_VERSION",
    "RelaxedFeatures",
    "RelaxedPoints",
]

Values = NDArray[np.float64]

RELAXED_VERSION = "relaxed-pam-1"
"""Meaning of the columns; a model trained with another one is not to be used."""

RELAXED_COLUMNS = tuple(name for name in FEATURE_COLUMNS if not name.startswith("intensity"))

_LINE_BYTES = 64
# Relaxed counts may miss zero by the width of a smooth minimum.
_LEAST = -0.5
_RAW = ("is_gpu", "read", "write", "read_write", "reuse_loop", "reuse_serial", "reuse_none")

RELAXED_RAW_COLUMNS = tuple(
    name
    for name in RELAXED_COLUMNS
    if name.endswith(("_none", "_mixed")) or name.partition("_")[2] in _RAW or name in _RAW
)
"""Columns that are as they are; the others are ``log2(1 + x)``."""


@frozen(eq=False)
class RelaxedPoints:
    """Features of points, and what their gradient needs.

    Attributes:
        values: float64 ``[n, statements, columns]``, in the order of ``RELAXED_COLUMNS``: one
            statement for each stored buffer.
    """

    values: Values
    _rows: Values
    _outputs: Values
    _plan: _Plan

    def gradient(self, cotangent: Values) -> Values:
        """Gradient ``[n, params]`` of the sum over all features of ``cotangent * values``.

        Args:
            cotangent: Weights, of the shape of ``values``.
        """
        plan = self._plan
        weights = np.zeros_like(self._outputs)
        scattered = cotangent.reshape(len(cotangent), -1)[:, plan.places]
        scattered = np.where(
            plan.logarithmic,
            scattered / ((1.0 + self._outputs[:, plan.columns]) * np.log(2)),
            scattered,
        )
        # An output may be that of several columns.
        np.add.at(weights.T, plan.columns, scattered.T)
        weights[self._outputs <= _LEAST] = 0.0
        return plan.tape.vjp(self._rows, weights)


@frozen(eq=False)
class _Plan:
    """Sources of the columns of one sketch.

    Attributes:
        tape: What varies.
        fixed: ``[statements, columns]``: what does not.
        places: Flat positions in it of what varies, [m].
        columns: Output of the tape for each of these, [m].
        logarithmic: Whether the column is ``log2(1 + output)``, [m].
    """

    tape: RelaxedTape
    fixed: Values
    places: NDArray[np.int64]
    columns: NDArray[np.int64]
    logarithmic: NDArray[np.bool_]


class RelaxedFeatures:
    """Relaxed features of any sketch for one target.

    Args:
        target: What the programs are for; its kind says whether they are GPU programs.
        smoothing: Widths of the smooth forms.
    """

    def __init__(self, target: Target, smoothing: Smoothing | None = None) -> None:
        self._gpu = target.kind == "cuda"
        self._smoothing = smoothing
        self._plan = per_sketch(self._make_plan, exact=True)

    def at(self, sketch: Sketch, rows: Values) -> RelaxedPoints:
        """Features at points ``[n, params]``.

        Raises:
            InvalidValueError: the points do not fit the sketch or are outside its bounds, or the
                sketch cannot be relaxed.
        """
        plan = self._plan(sketch)
        outputs = np.maximum(plan.tape.values(rows), _LEAST)
        values = np.repeat(plan.fixed[None], len(rows), axis=0)
        found = outputs[:, plan.columns]
        flat = values.reshape(len(rows), plan.fixed.size)
        flat[:, plan.places] = np.where(plan.logarithmic, np.log2(1.0 + found), found)
        return RelaxedPoints(values, rows, outputs, plan)

    def _make_plan(self, sketch: Sketch) -> _Plan:
        nest, conventions = derive_nest(sketch), conventions_for("corrected")
        known = sketch_quantities(sketch)
        stored = [item for item in nest.statements if item.role != "init"]
        position = {name: place for place, name in enumerate(RELAXED_COLUMNS)}
        fixed = np.zeros((len(stored), len(RELAXED_COLUMNS)))
        index: dict[IntExpr, int] = {}
        varying: list[tuple[int, int, bool]] = []
        for row, statement in enumerate(stored):
            for name, expression in _columns(nest, statement, known, conventions, self._gpu):
                place, raw = row * len(position) + position[name], name in RELAXED_RAW_COLUMNS
                if expression.value is None:
                    output = index.setdefault(expression, len(index))
                    varying.append((place, output, not raw))
                else:
                    value = float(expression.value)
                    fixed.flat[place] = value if raw else np.log2(1.0 + value)
        tape = build_tape(sketch.param_names, {str(i): e for e, i in index.items()})
        places, columns, logarithmic = np.array(varying, dtype=np.int64).reshape(-1, 3).T
        return _Plan(
            RelaxedTape(tape, "relaxed", param_bounds(sketch), self._smoothing),
            fixed,
            places,
            columns,
            logarithmic == 1,
        )


def _columns(
    nest: LoopNest,
    statement: Statement,
    known: dict[str, IntExpr],
    conventions: Conventions,
    gpu: bool,
) -> Iterator[tuple[str, IntExpr]]:
    """Columns of a statement that are not always zero, before logarithms."""
    found = statement_outputs(nest, statement, conventions, gpu)
    yield from found.items()
    classes = operation_classes(
        nest, statement, guards_as_functions=conventions.guards_as_functions
    )
    for name in ARITHMETIC:
        if name in classes:
            yield name, found["executions"] * classes[name]
    written = statement.stored.buffer
    others = [buffer for buffer in buffers_of(statement) if buffer != written]
    for slot, buffer in enumerate([written, *others][:BUFFERS]):
        outputs = buffer_outputs(nest, statement, buffer, known, conventions)
        for name, expression in _buffer_columns(nest, statement, buffer, outputs).items():
            yield f"buffer{slot}_{name}", expression


def _buffer_columns(
    nest: LoopNest, statement: Statement, buffer: str, found: dict[str, IntExpr]
) -> dict[str, IntExpr]:
    """Columns of one buffer from what they follow from, as native code has them."""
    width = nest.element_bytes(buffer)
    kinds = {access.write for access in statement.accesses if access.buffer == buffer}
    size, unique = found["executions"] * width, found["region"] * width
    lines = maximum(found["line_bytes"], _LINE_BYTES) // _LINE_BYTES
    run = maximum(minimum(found["contiguous_bytes"], _LINE_BYTES), 1)
    unique_lines = maximum(unique, run) // run
    # Without reuse, half a use is assumed.
    twice = maximum(found["reuse_count"] * 2, 1)
    share = maximum(found["reuse_share"], 1)
    return {
        "read": const(int(kinds == {False})),
        "write": const(int(kinds == {True})),
        "read_write": const(int(len(kinds) == 2)),
        "bytes": size,
        "unique_bytes": unique,
        "lines": lines,
        "unique_lines": unique_lines,
        "reuse_loop": found["reuse_loop"],
        "reuse_serial": found["reuse_serial"],
        "reuse_none": 1 - found["reuse_loop"] - found["reuse_serial"],
        "reuse_iterations": found["reuse_iterations"] // share,
        "reuse_bytes": found["reuse_bytes"] // share,
        "reuse_count": found["reuse_count"],
        "bytes_per_reuse": size * 2 // twice,
        "unique_bytes_per_reuse": unique * 2 // twice,
        "lines_per_reuse": lines * 2 // twice,
        "unique_lines_per_reuse": unique_lines * 2 // twice,
        "stride": found["stride"],
    }
