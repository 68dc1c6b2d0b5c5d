"""Configurations: matrices of parameter values, and the single row that gets measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.sketches.sketch import Sketch

Matrix = NDArray[np.int64]


@frozen
class Candidate:
    """One configuration of one sketch."""

    sketch: Sketch
    values: tuple[int, ...]

    def __attrs_post_init__(self) -> None:
        if len(self.values) != len(self.sketch.params):
            raise InvalidValueError(
                f"sketch {self.sketch.name!r} has {len(self.sketch.params)} parameters, "
                f"got {len(self.values)} values"
            )

    @cached_property
    def config(self) -> dict[str, int]:
        """Values by parameter name."""
        return dict(zip(self.sketch.param_names, self.values, strict=True))

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over the sketch's digest and the values."""
        text = f"{self.sketch.digest}:{','.join(map(str, self.values))}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the sketch and the values by name."""
        return {"sketch": self.sketch.to_json(), "config": self.config}

    @staticmethod
    def from_json(data: Mapping[str, Any], workload: Workload) -> Candidate:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: a parameter is missing or unknown.
        """
        sketch = Sketch.from_json(data["sketch"], workload)
        return Candidate.from_config(sketch, data["config"])

    @staticmethod
    def from_config(sketch: Sketch, config: Mapping[str, int]) -> Candidate:
        """The candidate with values given by parameter name.

        Raises:
            InvalidValueError: a parameter is missing or unknown.
        """
        if set(config) != set(sketch.param_names):
            raise InvalidValueError(
                f"sketch {sketch.name!r} has parameters {list(sketch.param_names)}, "
                f"got {list(config)}"
            )
        return Candidate(sketch, tuple(int(config[name]) for name in sketch.param_names))


@frozen(eq=False)
class CandidateBatch:
    """Configurations over several sketches: pairs of a sketch and an int64 matrix [n, params]."""

    parts: tuple[tuple[Sketch, Matrix], ...]

    def __len__(self) -> int:
        return sum(len(matrix) for _, matrix in self.parts)

    def __iter__(self) -> Iterator[Candidate]:
        for sketch, matrix in self.parts:
            for row in matrix.tolist():
                yield Candidate(sketch, tuple(row))

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> list[Candidate]:
        """Candidates at the given positions, in the order of ``indices``."""
        starts = np.cumsum([0, *(len(matrix) for _, matrix in self.parts)])
        result = []
        for index in np.asarray(indices, dtype=np.int64).tolist():
            part = int(np.searchsorted(starts, index, side="right")) - 1
            sketch, matrix = self.parts[part]
            result.append(Candidate(sketch, tuple(matrix[index - starts[part]].tolist())))
        return result

    @staticmethod
    def of(candidates: Sequence[Candidate]) -> CandidateBatch:
        """A batch of the given candidates, grouped by sketch in order of first appearance.

        The batch enumerates them group by group; use :func:`order_of` for their positions.
        """
        groups: dict[str, tuple[Sketch, list[tuple[int, ...]]]] = {}
        for candidate in candidates:
            groups.setdefault(candidate.sketch.digest, (candidate.sketch, []))[1].append(
                candidate.values
            )
        return CandidateBatch(
            tuple((sketch, np.array(rows, dtype=np.int64)) for sketch, rows in groups.values())
        )


def order_of(candidates: Sequence[Candidate]) -> list[int]:
    """Position of every candidate in ``CandidateBatch.of(candidates)``."""
    groups: dict[str, list[int]] = {}
    for index, candidate in enumerate(candidates):
        groups.setdefault(candidate.sketch.digest, []).append(index)
    positions = [0] * len(candidates)
    for position, index in enumerate(index for group in groups.values() for index in group):
        positions[index] = position
    return positions
