"""A small search space with a known size and a synthetic latency, for tests of search parts.

Importing it needs neither pytest nor a compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload
from autotune.ir.workloads.builders import gemm
from autotune.sketches import (
    AtMost,
    Candidate,
    CandidateBatch,
    Order,
    Ordinal,
    Parallel,
    Sketch,
    Step,
    Tile,
)
from autotune.sketches.candidates import Matrix
from autotune.spaces.feasible import FeasibleSet, build_feasible_set
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome


class ToySpace(SearchSpace):
    """Two sketches of a square matrix product, sequential and parallel, in powers of two.

    Axes i and j are split in three (``i1, i2, j1, j2`` are the inner factors), k in two (``k1``).
    A register tile ``i2 * j2`` has at most ``limit`` elements: the only constraint other than the
    extents. The default has 760 candidates, ``limit=0`` has none.

    Args:
        extent: Extent of every axis, a power of two.
        limit: Largest register tile.

    Raises:
        InvalidValueError: ``extent`` is not a power of two.
    """

    name = "toy"
    version = "1"

    def __init__(self, extent: int = 8, limit: int = 16) -> None:
        if extent < 1 or extent & (extent - 1):
            raise InvalidValueError(f"the toy space needs a power of two, not {extent}")
        self.workload, self._sketches, self._tables = _made(extent, limit)

    def sketches(self) -> tuple[Sketch, ...]:
        """Sequential, then parallel."""
        return self._sketches

    def sample(self, n: int, rng: np.random.Generator) -> CandidateBatch:
        """``n`` rows with repetition; nothing from an empty space."""
        shares = [n // 2 + n % 2, n // 2]
        return CandidateBatch(
            tuple(
                (sketch, table.sampled(share if len(table.rows) else 0, rng))
                for sketch, table, share in zip(self._sketches, self._tables, shares, strict=True)
            )
        )

    def neighbours(self, batch: CandidateBatch, rng: np.random.Generator) -> CandidateBatch:
        """Each row with one parameter doubled or halved; the row itself where that fails."""
        parts = []
        for sketch, matrix in batch.parts:
            result, open_rows = matrix.copy(), np.arange(len(matrix))
            for _ in range(16):
                moved = matrix[open_rows]
                column = rng.integers(matrix.shape[1], size=len(moved))
                places = np.arange(len(moved)), column
                up = rng.random(len(moved)) < 0.5
                moved[places] = np.where(up, moved[places] * 2, moved[places] // 2)
                good = self._satisfies(sketch, moved)
                result[open_rows[good]] = moved[good]
                open_rows = open_rows[~good]
            parts.append((sketch, result))
        return CandidateBatch(tuple(parts))

    def crossover(
        self, left: CandidateBatch, right: CandidateBatch, rng: np.random.Generator
    ) -> CandidateBatch:
        """Each column from either parent; the left row where that is not feasible."""
        parts = []
        for (sketch, one), (_, other) in zip(left.parts, right.parts, strict=True):
            mixed = np.where(rng.random(one.shape) < 0.5, one, other)
            good = self._satisfies(sketch, mixed)
            parts.append((sketch, np.where(good[:, None], mixed, one)))
        return CandidateBatch(tuple(parts))

    def contains(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        """Return whether each row is in the domains and satisfies the constraints."""
        masks = [self._satisfies(sketch, matrix) for sketch, matrix in batch.parts]
        return np.concatenate([np.zeros(0, dtype=np.bool_), *masks])

    def count(self) -> int:
        """Number of candidates."""
        return sum(len(table.rows) for table in self._tables)

    def enumerate(self) -> Iterator[Candidate]:
        """Every candidate, the sketches in turn."""
        for rows in itertools.zip_longest(*(table.rows.tolist() for table in self._tables)):
            for sketch, row in zip(self._sketches, rows, strict=True):
                if row is not None:
                    yield Candidate(sketch, tuple(row))

    def feasible_set(self, sketch: Sketch) -> FeasibleSet:
        """Build the set as the interface says; the limit on the register tile included."""
        if sketch not in self._sketches:
            raise InvalidValueError(f"sketch {sketch.name!r} does not belong to this space")
        return build_feasible_set(sketch)

    def _satisfies(self, sketch: Sketch, matrix: Matrix) -> NDArray[np.bool_]:
        for own, table in zip(self._sketches, self._tables, strict=True):
            if own is sketch:
                return table.contains(matrix)
        return _satisfies(sketch, matrix)


@frozen(eq=False)
class _Table:
    """The feasible rows of a sketch, to be looked up: tests of searches ask for little else.

    Attributes:
        rows: They themselves, [rows, params].
        exponents: Binary logarithm of each number up to the extent; -1 where there is none.
        feasible: Whether a row is feasible, by the exponents of its values.
        by_value: For each column the rows in the order of its values, and where each value begins.
    """

    rows: Matrix
    exponents: NDArray[np.int64]
    feasible: NDArray[np.bool_]
    by_value: tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]

    @staticmethod
    def of(sketch: Sketch, extent: int) -> _Table:
        domains = [param.values or () for param in sketch.params]
        grid = np.stack(np.meshgrid(*domains, indexing="ij"), axis=-1).astype(np.int64)
        every = grid.reshape(-1, len(domains))
        feasible = _satisfies(sketch, every)
        rows, by_value = every[feasible], []
        for column in rows.T:
            values, owners = np.unique(column, return_inverse=True)
            order = np.argsort(owners, kind="stable")
            starts = np.searchsorted(owners[order], np.arange(len(values) + 1))
            by_value.append((order, starts))
        exponents = np.full(extent + 1, -1)
        exponents[1 << np.arange(extent.bit_length())] = np.arange(extent.bit_length())
        return _Table(rows, exponents, feasible.reshape(grid.shape[:-1]), tuple(by_value))

    def contains(self, matrix: Matrix) -> NDArray[np.bool_]:
        """Return whether each row is feasible."""
        known = (matrix >= 1) & (matrix < len(self.exponents))
        exponents = self.exponents[np.where(known, matrix, 0)]
        found = self.feasible[tuple(exponents.T)]
        return np.asarray(found & (exponents >= 0).all(axis=1))

    def sampled(self, n: int, rng: np.random.Generator) -> Matrix:
        """Half uniform; half uniform over the values of a random column first."""
        if not n:
            return self.rows[:0]
        chosen = [self.rows[rng.integers(len(self.rows), size=n - n // 2)]]
        columns = rng.integers(self.rows.shape[1], size=n // 2)
        for column, (order, starts) in enumerate(self.by_value):
            wanted = rng.integers(len(starts) - 1, size=int((columns == column).sum()))
            within = rng.integers(starts[wanted], starts[wanted + 1])
            chosen.append(self.rows[order[within]])
        return np.concatenate(chosen)


@cache
def _made(extent: int, limit: int) -> tuple[Workload, tuple[Sketch, ...], tuple[_Table, ...]]:
    """Share what equal spaces have in common: tests make thousands of them."""
    workload = gemm(m=extent, n=extent, k=extent)
    sketches = tuple(_sketch(workload, extent, limit, parallel) for parallel in (False, True))
    return workload, sketches, tuple(_Table.of(sketch, extent) for sketch in sketches)


def _sketch(workload: Workload, extent: int, limit: int, parallel: bool) -> Sketch:
    powers = tuple(1 << bit for bit in range(extent.bit_length()))
    i1, i2, j1, j2, k1 = (var(name) for name in ("i1", "i2", "j1", "j2", "k1"))
    steps: list[Step] = [
        Tile("C", "i", (const(extent) // (i1 * i2), i1, i2)),
        Tile("C", "j", (const(extent) // (j1 * j2), j1, j2)),
        Tile("C", "k", (const(extent) // k1, k1)),
        Order("C", ("i.0", "j.0", "k.0", "i.1", "j.1", "k.1", "i.2", "j.2")),
    ]
    if parallel:
        steps.append(Parallel("C", ("i.0", "j.0")))
    return Sketch(
        "toy parallel" if parallel else "toy sequential",
        workload,
        tuple(Ordinal(name, powers) for name in ("i1", "i2", "j1", "j2", "k1")),
        (
            AtMost(i1 * i2, extent, "workload"),
            AtMost(j1 * j2, extent, "workload"),
            AtMost(i2 * j2, limit, "toy", hard=False),
        ),
        tuple(steps),
    )


def _satisfies(sketch: Sketch, matrix: Matrix) -> NDArray[np.bool_]:
    columns = dict(zip(sketch.param_names, matrix.T, strict=True))
    good = np.ones(len(matrix), dtype=np.bool_)
    for param in sketch.params:
        good &= np.isin(columns[param.name], param.values or ())
    for constraint in sketch.constraints:
        if isinstance(constraint, AtMost):
            good &= evaluate(constraint.expression, columns) <= constraint.limit
    return good


def toy_features(batch: CandidateBatch, target: object = None) -> NDArray[np.float64]:
    """Binary logarithms of the values and whether the sketch is parallel; shape [n, 6]."""
    parts = [
        np.column_stack([np.log2(matrix), np.full(len(matrix), sketch.name.endswith("parallel"))])
        for sketch, matrix in batch.parts
    ]
    return np.concatenate([np.zeros((0, 6)), *parts])


def toy_latencies(batch: CandidateBatch) -> NDArray[np.float64]:
    """Synthetic seconds of shape [n], from 1e-3: a bowl in the logarithms with a few bumps."""
    features = toy_features(batch)
    i1, i2, j1, j2, k1, parallel = features.T
    bowl = (i2 - 2) ** 2 + (j2 - 1) ** 2 + 0.5 * (i1 - 1) ** 2 + 0.5 * (j1 - 1) ** 2
    bumps = 0.3 * (k1 - 2) ** 2 + 0.7 * ((i1 + j1 + k1) % 2)
    return np.asarray(1e-3 * (1 + 0.25 * (bowl + bumps)) * np.where(parallel, 1.0, 1.8))


def toy_outcome(candidate: Candidate) -> Outcome:
    """The synthetic outcome: candidates with ``k1 = 1`` and ``i2 = 1`` crash."""
    if candidate.config["k1"] == candidate.config["i2"] == 1:
        return Outcome("crash", message="synthetic")
    latency = float(toy_latencies(CandidateBatch.of([candidate]))[0])
    return Outcome("ok", latency, (latency,))
