"""The built-in search space: sketches by rules, exact sampling on their lattices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.spaces.lattice import Lattice, Matrix, build_lattice
from autotune.spaces.limits import ScheduleLimits
from autotune.spaces.rules import (
    ElementwiseRule,
    EpilogueRule,
    GpuElementwiseRule,
    GpuRowFusionRule,
    GpuTilingRule,
    InlineRule,
    MultiLevelTilingRule,
    RowFusionRule,
    SketchRule,
    generate_sketches,
)
from autotune.spaces.search_space import SearchSpace
from autotune.targets import Target
from autotune.workloads import Workload

BUILT_IN_RULES: tuple[SketchRule, ...] = (
    InlineRule(),
    RowFusionRule(),
    EpilogueRule(),
    MultiLevelTilingRule(),
    ElementwiseRule(),
)
"""The built-in rules for CPUs in the order in which they are asked."""

GPU_RULES: tuple[SketchRule, ...] = (
    InlineRule(),
    GpuRowFusionRule(),
    EpilogueRule(),
    GpuTilingRule(),
    GpuElementwiseRule(),
)
"""The built-in rules for GPUs in the order in which they are asked."""

_VERSION = "2"
_NEAREST = 10
_ATTEMPTS = 8


class SketchSpace(SearchSpace):
    """Sketches made by rules for one workload on one target.

    Raises:
        UnsupportedWorkload: no rule applies to a stage, or the backend can replay no sketch.
    """

    name = "sketch"

    def __init__(
        self,
        workload: Workload,
        target: Target,
        limits: ScheduleLimits,
        rules: Sequence[SketchRule] = (),
    ) -> None:
        """``rules`` are asked before the built-in ones; their names become part of the version."""
        self.version = "+".join([_VERSION, *(rule.name for rule in rules)])
        built_in = GPU_RULES if target.kind == "cuda" else BUILT_IN_RULES
        generated = generate_sketches(workload, target, limits, (*rules, *built_in))
        lattices: dict[str, Lattice] = {}
        empty: list[str] = []
        for sketch in generated:
            try:
                lattices[sketch.digest] = build_lattice(sketch)
            except InvalidValueError as error:
                empty.append(str(error))
        if not lattices:
            raise InvalidValueError("; ".join(empty))
        self._lattices = lattices
        self._sketches = tuple(lattice.sketch for lattice in lattices.values())

    def sketches(self) -> tuple[Sketch, ...]:
        return self._sketches

    def sample(self, n: int, rng: np.random.Generator) -> CandidateBatch:
        parts = []
        for share, lattice in zip(self._shares(n, rng), self._lattices.values(), strict=True):
            if share == 0:
                continue
            uniform = lattice.uniform((share + 1) // 2, rng)
            drawn = [uniform]
            if share > 1:
                drawn.append(lattice.stratified(share // 2, rng))
            parts.append((lattice.sketch, rng.permutation(np.concatenate(drawn), axis=0)))
        return CandidateBatch(tuple(parts))

    def _shares(self, n: int, rng: np.random.Generator) -> list[int]:
        """Equal shares per sketch; what does not divide goes to sketches drawn at random."""
        count = len(self._lattices)
        shares = np.full(count, n // count)
        shares[rng.permutation(count)[: n % count]] += 1
        return [int(share) for share in shares]

    def neighbours(self, batch: CandidateBatch, rng: np.random.Generator) -> CandidateBatch:
        parts = []
        for sketch, matrix in batch.parts:
            lattice = self._lattice(sketch)
            parts.append((sketch, _mutated(lattice, matrix, rng)))
        return CandidateBatch(tuple(parts))

    def crossover(
        self, left: CandidateBatch, right: CandidateBatch, rng: np.random.Generator
    ) -> CandidateBatch:
        parts = []
        for (sketch, mothers), (other, fathers) in zip(left.parts, right.parts, strict=True):
            if sketch.digest != other.digest or mothers.shape != fathers.shape:
                raise InvalidValueError("crossover needs two batches over the same sketches")
            parts.append((sketch, _crossed(self._lattice(sketch), mothers, fathers, rng)))
        return CandidateBatch(tuple(parts))

    def contains(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        masks = [np.zeros(0, dtype=np.bool_)]
        for sketch, matrix in batch.parts:
            if sketch.digest in self._lattices:
                masks.append(self._lattices[sketch.digest].contains(matrix))
            else:
                masks.append(np.zeros(len(matrix), dtype=np.bool_))
        return np.concatenate(masks)

    def count(self) -> int:
        return sum(lattice.count for lattice in self._lattices.values())

    def enumerate(self) -> Iterator[Candidate]:
        streams = [(lattice.sketch, lattice.enumerate()) for lattice in self._lattices.values()]
        while streams:
            remaining = []
            for sketch, stream in streams:
                row = next(stream, None)
                if row is not None:
                    yield Candidate(sketch, row)
                    remaining.append((sketch, stream))
            streams = remaining

    def _lattice(self, sketch: Sketch) -> Lattice:
        if sketch.digest not in self._lattices:
            raise InvalidValueError(f"sketch {sketch.name!r} does not belong to this space")
        return self._lattices[sketch.digest]


def _mutated(lattice: Lattice, matrix: Matrix, rng: np.random.Generator) -> Matrix:
    """Each row with one group moved to one of the nearest other rows of its table."""

    def propose(rows: Matrix) -> Matrix:
        result: Matrix = rows.copy()
        movable = [group for group in lattice.groups if len(group.rows) > 1]
        if not movable:
            return result
        chosen = rng.integers(len(movable), size=len(rows))
        for position, group in enumerate(movable):
            where = np.flatnonzero(chosen == position)
            if len(where) == 0:
                continue
            columns = np.array(group.columns)
            current = np.log2(np.maximum(rows[np.ix_(where, columns)], 0.5))
            table = np.log2(np.maximum(group.rows, 0.5))
            distance = np.abs(current[:, None, :] - table[None, :, :]).sum(axis=2)
            distance[distance == 0] = np.inf
            near = min(_NEAREST, len(group.rows) - 1)
            nearest = np.argpartition(distance, near - 1, axis=1)[:, :near]
            pick = nearest[np.arange(len(where)), rng.integers(near, size=len(where))]
            result[np.ix_(where, columns)] = group.rows[pick]
        return result

    return _until_feasible(lattice, matrix, propose)


def _crossed(
    lattice: Lattice, mothers: Matrix, fathers: Matrix, rng: np.random.Generator
) -> Matrix:
    """Each pair mixed group by group."""
    both = np.concatenate([mothers, fathers], axis=1)
    width = mothers.shape[1]

    def propose(rows: Matrix) -> Matrix:
        result: Matrix = rows[:, :width].copy()
        for group in lattice.groups:
            where = np.flatnonzero(rng.random(len(rows)) < 0.5)
            columns = np.array(group.columns)
            result[np.ix_(where, columns)] = rows[np.ix_(where, columns + width)]
        return result

    mixed: Matrix = _until_feasible(lattice, both, propose)
    return mixed


def _until_feasible(
    lattice: Lattice, matrix: Matrix, propose: Callable[[Matrix], Matrix]
) -> Matrix:
    """Proposals for every row, drawn again a few times where infeasible, else the row itself."""
    width = len(lattice.sketch.params)
    result: Matrix = matrix[:, :width].copy()
    pending = np.arange(len(matrix))
    for _ in range(_ATTEMPTS):
        if len(pending) == 0:
            break
        proposed = propose(matrix[pending])
        feasible = lattice.joint_mask(proposed)
        result[pending[feasible]] = proposed[feasible]
        pending = pending[~feasible]
    return result
