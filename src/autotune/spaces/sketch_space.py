"""The built-in search space: sketches by rules, exact sampling on their feasible sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.spaces.feasible import FeasibleSet
from autotune.spaces.limits import ScheduleLimits
from autotune.spaces.loosening import loosen
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
    TensorTilingRule,
    generate_sketches,
)
from autotune.spaces.search_space import SearchSpace
from autotune.targets import Target

BUILT_IN_RULES: tuple[SketchRule, ...] = (
    InlineRule(),
    RowFusionRule(),
    EpilogueRule(),
    TensorTilingRule(),
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

_VERSION = "3"


class EmptySpace(InvalidValueError):
    """No sketch has a feasible configuration.

    Attributes:
        sketches: What the rules made, without those that the backend cannot replay.
    """

    def __init__(self, message: str, sketches: Sequence[Sketch]) -> None:
        super().__init__(message)
        self.sketches = tuple(sketches)

    def __reduce__(self) -> tuple[type[EmptySpace], tuple[str, tuple[Sketch, ...]]]:
        return EmptySpace, (str(self), self.sketches)


class SketchSpace(SearchSpace):
    """Sketches made by rules for one workload on one target.

    Raises:
        UnsupportedWorkload: no rule applies to a stage, or the backend can replay no sketch.
        EmptySpace: no sketch has a feasible configuration.
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
        feasible_sets: dict[str, FeasibleSet] = {}
        sketches: list[Sketch] = []
        self.left_out = left_out = dict(generated.left_out)
        loosened: dict[str, tuple[str, ...]] = {}
        for made in generated.sketches:
            sketch, feasible, dropped = loosen(made)
            if not feasible.count:
                left_out[sketch.name] = "has no feasible configuration"
                continue
            feasible_sets[sketch.digest] = feasible
            sketches.append(sketch)
            if dropped:
                loosened[sketch.name] = dropped
        if not feasible_sets:
            reasons = [f"sketch {name!r} {why}" for name, why in left_out.items()]
            raise EmptySpace("; ".join(reasons), generated.sketches)
        self.loosened = loosened
        if loosened:
            self.version += "+loosened"
        self._feasible = feasible_sets
        self._sketches = tuple(sketches)

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
