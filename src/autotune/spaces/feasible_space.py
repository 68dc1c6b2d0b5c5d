"""A search space over sketches whose constraints say exactly what is feasible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.spaces.feasible import FeasibleSet
from autotune.spaces.search_space import SearchSpace

__all__ = ["FeasibleSpace"]


class FeasibleSpace(SearchSpace):
    """Exact sampling, moves and enumeration over the feasible sets of given sketches.

    Args:
        feasible: Each sketch with its feasible set, in the order of the space; none is empty.
    """

    def __init__(self, feasible: Mapping[Sketch, FeasibleSet]) -> None:
        self._sketches = tuple(feasible)
        self._feasible = {sketch.digest: found for sketch, found in feasible.items()}

    def sketches(self) -> tuple[Sketch, ...]:
        return self._sketches

    def sample(self, n: int, rng: np.random.Generator) -> CandidateBatch:
        """As the interface says; every other row of a sketch is stratified.

        One number is drawn from ``rng``; everything else follows from it.
        """
        count = len(self._feasible)
        source = np.random.default_rng(_seed(rng))
        seeds = source.integers(2**64, size=count, dtype=np.uint64).tolist()
        shares = np.full(count, n // count)
        shares[source.permutation(count)[: n % count]] += 1
        parts = []
        for sketch, share, seed, feasible in zip(
            self._sketches, shares.tolist(), seeds, self._feasible.values(), strict=True
        ):
            if share:
                matrix = np.empty((share, len(feasible.columns)), dtype=np.int64)
                matrix[::2] = feasible.uniform((share + 1) // 2, seed)
                matrix[1::2] = feasible.stratified(share // 2, seed)
                parts.append((sketch, matrix))
        return CandidateBatch(tuple(parts))

    def neighbours(self, batch: CandidateBatch, rng: np.random.Generator) -> CandidateBatch:
        parts = []
        for sketch, matrix in batch.parts:
            parts.append((sketch, self.feasible_set(sketch).neighbours(matrix, _seed(rng))))
        return CandidateBatch(tuple(parts))

    def crossover(
        self, left: CandidateBatch, right: CandidateBatch, rng: np.random.Generator
    ) -> CandidateBatch:
        parts = []
        for (sketch, mothers), (other, fathers) in zip(left.parts, right.parts, strict=True):
            if sketch.digest != other.digest or mothers.shape != fathers.shape:
                raise InvalidValueError("crossover needs two batches over the same sketches")
            feasible = self.feasible_set(sketch)
            parts.append((sketch, feasible.crossover(mothers, fathers, _seed(rng))))
        return CandidateBatch(tuple(parts))

    def contains(self, batch: CandidateBatch) -> NDArray[np.bool_]:
        masks = [np.zeros(0, dtype=np.bool_)]
        for sketch, matrix in batch.parts:
            if sketch.digest in self._feasible:
                masks.append(self._feasible[sketch.digest].contains(matrix))
            else:
                masks.append(np.zeros(len(matrix), dtype=np.bool_))
        return np.concatenate(masks)

    def count(self) -> int:
        return sum(feasible.count for feasible in self._feasible.values())

    def enumerate(self) -> Iterator[Candidate]:
        streams = [(it, self._feasible[it.digest].enumerate()) for it in self._sketches]
        while streams:
            remaining = []
            for sketch, stream in streams:
                row = next(stream, None)
                if row is not None:
                    yield Candidate(sketch, row)
                    remaining.append((sketch, stream))
            streams = remaining

    def feasible_set(self, sketch: Sketch) -> FeasibleSet:
        if sketch.digest not in self._feasible:
            raise InvalidValueError(f"sketch {sketch.name!r} does not belong to this space")
        return self._feasible[sketch.digest]


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**64, dtype=np.uint64))
