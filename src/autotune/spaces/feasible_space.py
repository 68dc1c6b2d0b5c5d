"""A search space over sketches whose constraints say exactly what is feasible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.spaces.feasible import FeasibleSet, build_feasible_set
from autotune.spaces.search_space import SearchSpace

__all__ = ["FeasibleSpace"]


class FeasibleSpace(SearchSpace):
    """Exact sampling, moves and enumeration over the feasible sets of given sketches.

    The base of a space of one's own. A subclass may override :meth:`sketches`, to leave some out
    or to change their constraints: everything else follows.

    Args:
        feasible: Each sketch with its feasible set, in the order of the space; none is empty. A
            set may be narrower than the constraints of its sketch.
    """

    def __init__(self, feasible: Mapping[Sketch, FeasibleSet]) -> None:
        self._given = dict(feasible)

    def sketches(self) -> tuple[Sketch, ...]:
        return tuple(self._given)

    @cached_property
    def _members(self) -> Mapping[str, tuple[Sketch, FeasibleSet]]:
        """Each sketch with its feasible set, by the sketch's digest, in the order of the space."""
        found: dict[str, tuple[Sketch, FeasibleSet]] = {}
        for sketch in self.sketches():
            feasible = self._given.get(sketch)
            feasible = build_feasible_set(sketch) if feasible is None else feasible
            if not feasible.count:
                raise InvalidValueError(
                    f"sketch {sketch.name!r} of search space {self.name!r} has no feasible "
                    "configuration: leave it out of sketches()"
                )
            found[sketch.digest] = sketch, feasible
        if not found:
            raise InvalidValueError(f"search space {self.name!r} has no sketches")
        return found

    def sample(self, n: int, rng: np.random.Generator) -> CandidateBatch:
        """Sample as the interface says; every other row of a sketch is stratified.

        One number is drawn from ``rng``; everything else follows from it.
        """
        count = len(self._members)
        source = np.random.default_rng(_seed(rng))
        seeds = source.integers(2**64, size=count, dtype=np.uint64).tolist()
        shares = np.full(count, n // count)
        shares[source.permutation(count)[: n % count]] += 1
        parts = []
        for (sketch, feasible), share, seed in zip(
            self._members.values(), shares.tolist(), seeds, strict=True
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
            if sketch.digest in self._members:
                masks.append(self.feasible_set(sketch).contains(matrix))
            else:
                masks.append(np.zeros(len(matrix), dtype=np.bool_))
        return np.concatenate(masks)

    def count(self) -> int:
        return sum(feasible.count for _, feasible in self._members.values())

    def enumerate(self) -> Iterator[Candidate]:
        streams = [(it, feasible.enumerate()) for it, feasible in self._members.values()]
        while streams:
            remaining = []
            for sketch, stream in streams:
                row = next(stream, None)
                if row is not None:
                    yield Candidate(sketch, row)
                    remaining.append((sketch, stream))
            streams = remaining

    def feasible_set(self, sketch: Sketch) -> FeasibleSet:
        if sketch.digest not in self._members:
            raise InvalidValueError(f"sketch {sketch.name!r} does not belong to this space")
        return self._members[sketch.digest][1]


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**64, dtype=np.uint64))
