"""Configurations: matrices of parameter values, and the single row that gets measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, wraps
from operator import index as as_index
from operator import is_
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, SupportsIndex, TypeVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, json_forms, to_json
from autotune.ir.workloads import Stage, Workload
from autotune.sketches.sketch import Sketch
from autotune.sketches.steps import Prepack

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["is_prepackable", "per_sketch", "prepacked_operands"]

Matrix = NDArray[np.int64]
Positions = NDArray[np.int64]
"""Positions of rows in a batch, counted over its parts in order."""


@frozen
class Candidate:
    """Configuration of a sketch."""

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
        return self._digest_over(self.sketch.digest)

    @property
    def spelling(self) -> str:
        """16 hexadecimal digits over the sketch's spelling and the values."""
        return self._digest_over(self.sketch.spelling)

    def _digest_over(self, sketch: str) -> str:
        text = f"{sketch}:{','.join(map(str, self.values))}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def on(self, workload: Workload) -> Candidate:
        """The same candidate of an equal workload: with that one's names.

        Raises:
            InvalidValueError: the workloads are not equal.
        """
        sketch = self.sketch.on(workload)
        return self if sketch is self.sketch else Candidate(sketch, self.values)

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the sketch and the values by name."""
        return dict(to_json(self))

    @staticmethod
    def from_json(data: Mapping[str, Any], workload: Workload) -> Candidate:
        """Read what :meth:`to_json` wrote.

        Raises:
            InvalidValueError: a parameter is missing or unknown, or its value no integer.
        """
        return from_json(Candidate, {**data, "workload": workload})

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
        return Candidate(
            sketch, tuple(_integer(name, config[name]) for name in sketch.param_names)
        )


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidValueError(f"parameter {name!r} is not a whole number: {str(value)[:80]}")
    return as_index(value)


@json_forms
def _forms(converter: Converter) -> None:
    def write(candidate: Candidate) -> dict[str, Any]:
        return {"sketch": converter.unstructure(candidate.sketch), "config": candidate.config}

    def read(data: Any, _: Any) -> Candidate:
        workload = converter.structure(data["workload"], Workload)
        sketch = converter.structure({**data["sketch"], "workload": workload}, Sketch)
        return Candidate.from_config(sketch, data["config"])

    converter.register_unstructure_hook(Candidate, write)
    converter.register_structure_hook(Candidate, read)


@frozen(eq=False)
class CandidateBatch:
    """Configurations over several sketches: pairs of a sketch and an int64 matrix [n, params].

    A part may be empty. Positions count rows over the parts in order.
    """

    parts: tuple[tuple[Sketch, Matrix], ...]

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

    @staticmethod
    def of_rows(
        sketches: Sequence[Sketch],
        rows: Iterable[Matrix | Sequence[Sequence[int] | NDArray[np.int64]]],
    ) -> CandidateBatch:
        """A batch with one part for each sketch, from lists of rows that may be empty."""
        return CandidateBatch(
            tuple(
                (sketch, np.array(own, dtype=np.int64).reshape(len(own), len(sketch.params)))
                for sketch, own in zip(sketches, rows, strict=True)
            )
        )

    def over(self, sketches: Sequence[Sketch]) -> CandidateBatch:
        """The same rows with one part, if an empty one, for each of the sketches, in order.

        Raises:
            InvalidValueError: the batch has a sketch that is not among ``sketches``.
        """
        if len(self.parts) == len(sketches) and all(map(is_, self.sketches, sketches)):
            return self
        found: dict[str, list[Matrix]] = {sketch.digest: [] for sketch in sketches}
        for sketch, matrix in self.parts:
            if sketch.digest not in found:
                raise InvalidValueError(f"sketch {sketch.name!r} is not one of this space")
            found[sketch.digest].append(matrix)
        return CandidateBatch(
            tuple((sketch, _stacked(sketch, found[sketch.digest])) for sketch in sketches)
        )

    def without_empty(self) -> CandidateBatch:
        """The parts that have rows."""
        return CandidateBatch(tuple(part for part in self.parts if len(part[1])))

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __iter__(self) -> Iterator[Candidate]:
        for sketch, matrix in self.parts:
            for row in matrix.tolist():
                yield Candidate(sketch, tuple(row))

    @cached_property
    def sketches(self) -> tuple[Sketch, ...]:
        """The sketch of each part."""
        return tuple(sketch for sketch, _ in self.parts)

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The rows of each part."""
        return tuple(matrix for _, matrix in self.parts)

    @cached_property
    def starts(self) -> Positions:
        """Position of the first row of each part, then the number of rows."""
        return np.cumsum([0, *map(len, self.matrices)], dtype=np.int64)

    @cached_property
    def owners(self) -> Positions:
        """Index of the part of each row; shape [n]."""
        return np.repeat(np.arange(len(self.parts)), np.diff(self.starts))

    @cached_property
    def keys(self) -> list[bytes]:
        """:func:`row_key` of each row: equal for equal rows of a part only."""
        keys: list[bytes] = []
        for index, matrix in enumerate(self.matrices):
            indexed = np.full((len(matrix), matrix.shape[1] + 1), index, dtype=np.int64)
            indexed[:, 1:] = matrix
            keys += indexed.view(np.dtype((np.void, indexed.shape[1] * 8))).ravel().tolist()
        return keys

    def positions_of(self, part: int) -> Positions:
        """Positions of the rows of one part."""
        return np.arange(self.starts[part], self.starts[part + 1])

    def by_part(self, order: Positions) -> list[Positions]:
        """Positions among the given ones that are of each part, in the order given."""
        owners = self.owners[order]
        return [order[owners == index] for index in range(len(self.parts))]

    def each(self, of: Callable[[Sketch, Matrix], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Numbers that a function of a sketch and its rows gives, of all parts; [n, ...]."""
        found = [of(sketch, matrix) for sketch, matrix in self.parts]
        return np.concatenate(found) if found else np.zeros(0)

    def take(self, indices: Sequence[int] | Positions) -> list[Candidate]:
        """Candidates at the given positions, in the order of ``indices``."""
        positions = np.asarray(indices, dtype=np.int64)
        owners = np.searchsorted(self.starts, positions, side="right") - 1
        result = []
        for owner, row in zip(owners.tolist(), positions - self.starts[owners], strict=True):
            sketch, matrix = self.parts[owner]
            result.append(Candidate(sketch, tuple(matrix[row].tolist())))
        return result

    def without(self, known: Container[bytes]) -> CandidateBatch:
        """The rows whose :attr:`keys` are not known, each once, with the same parts."""
        firsts: dict[bytes, int] = {}
        for place, key in enumerate(self.keys):
            if key not in known:
                firsts.setdefault(key, place)
        return self.select(np.array([*firsts.values()], dtype=np.int64))

    def select(self, positions: Positions | NDArray[np.bool_]) -> CandidateBatch:
        """The rows at the given positions or where the mask is true, grouped by part.

        All parts stay, if empty. Within a part rows keep the order given; a position may occur
        more than once.
        """
        chosen = np.arange(len(self))[positions]
        groups = zip(self.parts, self.by_part(chosen), self.starts, strict=False)
        return CandidateBatch(
            tuple((sketch, matrix[own - start]) for (sketch, matrix), own, start in groups)
        )

    def __add__(self, other: CandidateBatch) -> CandidateBatch:
        """The rows of both, with one part for each sketch that either has.

        Those of a sketch are its own here followed by those of ``other``; the sketches are in
        order of first appearance.
        """
        if not isinstance(other, CandidateBatch):
            return NotImplemented
        both = CandidateBatch(self.parts + other.parts)
        sketches: dict[str, Sketch] = {}
        for sketch in both.sketches:
            sketches.setdefault(sketch.digest, sketch)
        return both.over(tuple(sketches.values()))


def _stacked(sketch: Sketch, matrices: list[Matrix]) -> Matrix:
    if len(matrices) == 1:
        return matrices[0]
    return np.concatenate([np.zeros((0, len(sketch.params)), dtype=np.int64), *matrices])


def row_key(part: int, values: tuple[int, ...]) -> bytes:
    """The key of a row of a part, as in :attr:`CandidateBatch.keys`."""
    return np.array([part, *values], dtype=np.int64).tobytes()


def order_of(candidates: Sequence[Candidate]) -> list[int]:
    """Position of every candidate in ``CandidateBatch.of(candidates)``."""
    groups: dict[str, list[int]] = {}
    for index, candidate in enumerate(candidates):
        groups.setdefault(candidate.sketch.digest, []).append(index)
    positions = [0] * len(candidates)
    for position, index in enumerate(index for group in groups.values() for index in group):
        positions[index] = position
    return positions


def in_order(
    candidates: Sequence[Candidate], of: Callable[[CandidateBatch], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Numbers that a function of a batch gives for candidates, in their own order; [n, ...]."""
    return of(CandidateBatch.of(candidates))[order_of(candidates)]


Given = ParamSpec("Given")
Made = TypeVar("Made")

MOST_KEPT = 256


def per_sketch(
    make: Callable[Concatenate[Sketch, Given], Made],
    *,
    exact: bool = False,
    most: int = MOST_KEPT,
) -> Callable[Concatenate[Sketch, Given], Made]:
    """Remember what a function makes of sketches: a decorator, also for bound methods.

    Threads may share it. What was asked for longest ago is forgotten first.

    Args:
        make: Makes it of a sketch and of other arguments, which must be hashable.
        exact: Whether sketches must be equal in all that is in them to share it, also in names,
            domains and constraints. Otherwise those share it that mean the same programs and spell
            them alike: what is made of a sketch names its stages.
        most: How many results are kept.
    """
    kind = _Exactly if exact else _Program

    def made(key: _Program, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        return make(key.sketch, *args, **kwargs)

    kept: Callable[..., Made] = lru_cache(maxsize=most)(made)

    @wraps(make)
    def found(sketch: Sketch, /, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        return kept(kind(sketch), *args, **kwargs)

    return found


class _Program:
    """A sketch as a key that equals those that are spelled alike."""

    __slots__ = ("sketch",)

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    def __hash__(self) -> int:
        return hash(self.sketch.spelling)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Program) and self.sketch.spelling == other.sketch.spelling


class _Exactly(_Program):
    """A sketch as a key that equals those of equal sketches."""

    __slots__ = ()
    __hash__ = _Program.__hash__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Exactly):
            return False
        # By identity first: comparing sketches takes as long as reading a tape.
        return self.sketch is other.sketch or self.sketch == other.sketch


def is_prepackable(workload: Workload, stage: Stage, operand: str) -> bool:
    """Return whether an operand of a stage is a constant input that nothing else reads.

    Args:
        workload: What is computed.
        stage: One of its stages.
        operand: Name of a tensor.
    """
    readers = [it.name for it in workload.stages for read in it.accesses if read.tensor == operand]
    constant = any(it.name == operand and it.constant for it in workload.inputs)
    return constant and readers == [stage.name]


def prepacked_operands(candidate: Candidate | None) -> tuple[str, ...]:
    """The operands that a candidate's program is given packed; None is the untuned program."""
    if candidate is None:
        return ()
    steps = candidate.sketch.core_steps
    return tuple(step.operand for step in steps if isinstance(step, Prepack))
