"""Features of candidates, read off the tape without a compiler.

Per statement there is one row of ``STATEMENT_FEATURES``; :func:`pooled_features` reduces them to
a fixed width for tree models: magnitudes as ``log2(1 + x)``, additive columns summed over all
statements, every column of the statement that does most of the arithmetic, and the allocations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.nest.flattening import NestTape, StatementColumns, nest_tape
from autotune.sketches import CandidateBatch
from autotune.targets import Target

Values = NDArray[np.float64]

FEATURE_VERSION = "pooled-2"

STATEMENT_FEATURES = (
    "flop",
    "executions",
    "parallel",
    "parallel_efficiency",
    "vector_lanes",
    "unrolled",
    "traffic_l1",
    "traffic_l2",
    "traffic_l3",
    "bytes_once",
    "bytes_written",
    "body_bytes",
    "body_intensity",
    "tile_vectors",
    "iterations",
    "reduction_in_tile",
    "contiguous_bytes",
)
_ADDITIVE = (
    "flop",
    "executions",
    "traffic_l1",
    "traffic_l2",
    "traffic_l3",
    "bytes_once",
    "bytes_written",
    "iterations",
)
_RATIOS = ("parallel_efficiency",)
_CACHE_LEVELS = 3
# Caches are shared with what the statement does not touch: count on a part of them.
_USABLE = 0.75

FEATURE_NAMES = (
    *(f"all.{name}" for name in _ADDITIVE),
    *(f"main.{name}" for name in STATEMENT_FEATURES),
    "allocated_bytes",
    "largest_allocation",
    "statements",
    "copied_share",
    "estimate",
)


def statement_features(
    tape: NestTape, matrix: NDArray[np.int64], target: Target
) -> NDArray[np.float64]:
    """Features ``[n, statements, len(STATEMENT_FEATURES)]`` of configurations of one sketch.

    Magnitudes are plain (bytes, counts), not logarithms. ``traffic_l1`` is what passes between
    the first cache and the next level, and so on; a level that the target lacks counts as
    infinitely large.
    """
    return _by_statement(tape, tape.feature_tape.evaluate(matrix).astype(np.float64), target)


def _by_statement(tape: NestTape, values: Values, target: Target) -> Values:
    rows = [_statement(columns, values, target) for columns in tape.columns]
    return np.stack(rows, axis=1)


def pooled_features(batch: CandidateBatch, target: Target) -> NDArray[np.float64]:
    """Features ``[n, len(FEATURE_NAMES)]``, in the order of ``FEATURE_NAMES``."""
    parts = [np.zeros((0, len(FEATURE_NAMES)))]
    for sketch, matrix in batch.parts:
        tape = nest_tape(sketch)
        parts.append(_pooled(tape, matrix, target))
    return np.concatenate(parts)


def _pooled(tape: NestTape, matrix: NDArray[np.int64], target: Target) -> Values:
    values = tape.feature_tape.evaluate(matrix).astype(np.float64)
    features = _by_statement(tape, values, target)
    position = {name: index for index, name in enumerate(STATEMENT_FEATURES)}
    summed = np.log2(1 + features[:, :, [position[name] for name in _ADDITIVE]].sum(axis=1))
    main = features[:, tape.dominant, :].copy()
    logarithmic = [i for name, i in position.items() if name not in _RATIOS]
    main[:, logarithmic] = np.log2(1 + main[:, logarithmic])
    allocated = values[:, tape.buffers]
    if allocated.shape[1] == 0:
        allocated = np.zeros((len(matrix), 1))
    copies = [i for i, c in enumerate(tape.columns) if c.statement.role in ("pack", "write")]
    executions = features[:, :, position["executions"]]
    extra = np.column_stack(
        [
            np.log2(1 + allocated.sum(axis=1)),
            np.log2(1 + allocated.max(axis=1)),
            np.full(len(matrix), float(len(tape.columns))),
            executions[:, copies].sum(axis=1) / executions.sum(axis=1),
            np.log2(estimated_seconds(features, target)),
        ]
    )
    return np.column_stack([summed, main, extra])


def estimated_seconds(features: Values, target: Target) -> Values:
    """A roofline estimate ``[n]``: for each statement the slowest of arithmetic and traffic.

    Rates are nominal (one multiply-add and one load of a vector per unit and cycle); only ratios
    between candidates of one task mean anything.
    """
    position = {name: index for index, name in enumerate(STATEMENT_FEATURES)}

    def column(name: str) -> Values:
        return np.asarray(features[:, :, position[name]])

    cores = target.cores * column("parallel_efficiency")
    vector = np.maximum(column("vector_lanes"), 1.0)
    flop_per_cycle = 2 * target.fma_units * vector
    load_bytes_per_cycle = 2.0 * target.vector_bytes
    arithmetic = column("flop") / flop_per_cycle
    issued = column("executions") / vector / 2
    loads = column("iterations") * column("body_bytes") / load_bytes_per_cycle
    l1 = column("traffic_l1") / 48.0
    l2 = column("traffic_l2") / 16.0
    l3 = column("traffic_l3") / 6.0
    cycles = np.maximum(np.maximum(arithmetic, issued), loads) + l1 + l2 + l3
    return np.asarray((cycles / cores).sum(axis=1) / 2.5e9)


def _statement(columns: StatementColumns, values: Values, target: Target) -> Values:
    body = columns.body
    size = values[:, columns.elements] * columns.element_bytes[None, :, None]
    executions = values[:, columns.trips[-1]]
    iterations = values[:, columns.trips[body]]
    parallel = values[:, columns.kinds["parallel"]]
    body_bytes = size[:, :, body].sum(axis=1)
    flop = values[:, columns.operations].sum(axis=1)
    written = size[:, columns.written, body].sum(axis=1)
    traffic = [
        _traffic(columns, values, size, _cache_bytes(target, level))
        for level in range(1, _CACHE_LEVELS + 1)
    ]
    return np.column_stack(
        [
            flop,
            executions,
            parallel,
            parallel / (np.ceil(parallel / target.cores) * target.cores),
            values[:, columns.kinds["lanes"]],
            values[:, columns.kinds["unrolled"]],
            *traffic,
            size[:, :, 0].sum(axis=1),
            written * iterations,
            body_bytes,
            flop / np.maximum(iterations * body_bytes, 1),
            written / target.vector_bytes,
            iterations,
            _reduction(columns, values),
            size[:, :, body].min(axis=1),
        ]
    )


def _reduction(columns: StatementColumns, values: Values) -> Values:
    """Product of the extents of loops that do not move what is written, [n]."""
    statement = columns.statement
    kept = [
        index
        for index, loop in enumerate(statement.loops)
        if all(axis not in statement.stored.axes for axis, _ in loop.parts)
    ]
    return np.asarray(values[:, columns.extents[kept]].prod(axis=1))


def _cache_bytes(target: Target, level: int) -> float:
    """Usable bytes of a cache level for one core; infinite for a level that does not exist."""
    for cache in target.caches:
        if cache.level == level:
            share = target.cores if cache.shared else 1
            return _USABLE * cache.size_bytes / share
    return float("inf")


def _traffic(columns: StatementColumns, values: Values, size: Values, capacity: float) -> Values:
    """Bytes that pass a cache of ``capacity`` bytes.

    The outermost depth whose working set fits is loaded once per iteration of the loops outside;
    a buffer stays while the loops directly around that depth do not move it.
    """
    fits = size.sum(axis=1) <= capacity
    fits[:, -1] = True
    depth = fits.argmax(axis=1)
    rows = np.arange(len(values))
    elements = values[rows[:, None], columns.traffic[:, depth].T]
    return np.asarray((elements * columns.element_bytes).sum(axis=1))
