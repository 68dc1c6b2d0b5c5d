"""Transport of candidates, outcomes and states to the process of the models and back.

Matrices travel as their bytes, and a sketch once in the life of a process; floating-point numbers
arrive bit by bit as they were sent.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, PluginError
from autotune.ir.workloads import Workload
from autotune.models.cost import DifferentiableCostModel, Observation
from autotune.plugins.manager import manager
from autotune.process import ATTACHMENTS, Message
from autotune.sketches import Candidate, CandidateBatch, Sketch, per_sketch
from autotune.store.records import Outcome

__all__ = [
    "SketchReader",
    "SketchWriter",
    "differentiable_names",
    "pack_state",
    "pieces",
    "unpack_state",
]

# A message has at most 256 MiB. Smaller ones also keep two copies of an array from being much.
_PIECE_BYTES = 1 << 25
# Sketches that are kept to know them again; one that is forgotten is sent again.
_MOST_KNOWN = 4096
_FLOAT = np.dtype("<f8")
_WHOLE = np.dtype("<i8")


class SketchWriter:
    """Turns candidates into messages for a process that starts without knowing any sketch.

    Sketches are distinguished by their whole content: models may look at more than makes their
    digest.
    """

    def __init__(self) -> None:
        self._count = 0
        self._unsent: list[Message] = []
        self._number = per_sketch(self._add, exact=True, most=_MOST_KNOWN)

    def batch(self, batch: CandidateBatch) -> Message:
        """A message part for :meth:`SketchReader.batch`."""
        parts = [[self._number(sketch), len(matrix)] for sketch, matrix in batch.parts]
        rows = [np.ascontiguousarray(matrix, dtype=_WHOLE) for _, matrix in batch.parts]
        return {"sketches": self._new_sketches(), "parts": parts, ATTACHMENTS: rows}

    def points(self, sketch: Sketch, rows: NDArray[np.float64]) -> Message:
        """A message part for :meth:`SketchReader.points`."""
        number = self._number(sketch)
        data = np.ascontiguousarray(rows, dtype=_FLOAT)
        return {"sketches": self._new_sketches(), "sketch": number, ATTACHMENTS: [data]}

    def outcomes(self, outcomes: Sequence[Observation]) -> Message:
        """A message part for :meth:`SketchReader.outcomes`."""
        told = [
            [
                self._number(candidate.sketch),
                [int(value) for value in candidate.values],
                outcome.to_json(),
                outcome.cached,
            ]
            for candidate, outcome in outcomes
        ]
        return {"sketches": self._new_sketches(), "outcomes": told}

    def _add(self, sketch: Sketch) -> int:
        self._unsent.append({"sketch": sketch.to_json(), "workload": sketch.workload.to_json()})
        self._count += 1
        return self._count - 1

    def _new_sketches(self) -> list[Message]:
        unsent, self._unsent = self._unsent, []
        return unsent


class SketchReader:
    """Reads what a :class:`SketchWriter` wrote, in the order in which it was written."""

    def __init__(self) -> None:
        self._sketches: list[Sketch] = []
        self._workloads: dict[str, Workload] = {}

    def batch(self, message: Message) -> CandidateBatch:
        """The batch, with arrays that may be written to, as in the other process."""
        self._learn(message["sketches"])
        parts = []
        for (number, rows), data in zip(message["parts"], message[ATTACHMENTS], strict=True):
            sketch = self._sketches[number]
            matrix = np.frombuffer(data, dtype=_WHOLE).reshape(rows, len(sketch.params))
            parts.append((sketch, matrix.astype(np.int64)))
        return CandidateBatch(tuple(parts))

    def points(self, message: Message) -> tuple[Sketch, NDArray[np.float64]]:
        """A sketch, and a matrix with a column for each of its parameters."""
        self._learn(message["sketches"])
        sketch = self._sketches[message["sketch"]]
        [data] = message[ATTACHMENTS]
        rows = np.frombuffer(data, dtype=_FLOAT).reshape(-1, len(sketch.params))
        return sketch, rows.astype(np.float64)

    def outcomes(self, message: Message) -> list[Observation]:
        """Pairs of candidate and outcome."""
        self._learn(message["sketches"])
        return [
            (
                Candidate(self._sketches[number], tuple(values)),
                evolve(Outcome.from_json(outcome), cached=cached),
            )
            for number, values, outcome, cached in message["outcomes"]
        ]

    def _learn(self, sketches: Iterable[Message]) -> None:
        for content in sketches:
            text = json.dumps(content["workload"])
            if text not in self._workloads:
                self._workloads[text] = Workload.from_json(content["workload"])
            sketch = Sketch.from_json(content["sketch"], self._workloads[text])
            self._sketches.append(sketch)


def pieces(batch: CandidateBatch, most_bytes: int = _PIECE_BYTES) -> Iterator[CandidateBatch]:
    """The batch in pieces, in order, each small enough for a message; at least one."""
    taken: list[tuple[Sketch, NDArray[np.int64]]] = []
    room = most_bytes
    for sketch, matrix in batch.parts:
        row_bytes = max(1, matrix.shape[1] * _WHOLE.itemsize)
        start = 0
        while len(matrix) - start > room // row_bytes:
            count = room // row_bytes
            taken.append((sketch, matrix[start : start + count]))
            yield CandidateBatch(tuple(taken))
            taken, room, start = [], max(most_bytes, row_bytes), start + count
        taken.append((sketch, matrix[start:]))
        room -= (len(matrix) - start) * row_bytes
    yield CandidateBatch(tuple(taken))


_Path = tuple[str | int, ...]
_Packed = list[tuple[_Path, NDArray[np.float64]]]


def pack_state(state: Mapping[str, Any]) -> Message:
    """A model's state as a message part for :func:`unpack_state`.

    Lists of floats, which are nearly all of a trained model, travel as bytes: written as text
    and read again, they would take longer than a round of training.

    Raises:
        TypeError: the state is not a JSON object.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"a state must be a JSON object, not a {type(state).__name__}")
    packed: _Packed = []
    rest = _cut(state, (), packed)
    return {
        "state": json.loads(json.dumps(rest)),
        "packed": [[list(path), list(numbers.shape)] for path, numbers in packed],
        ATTACHMENTS: [numbers for _, numbers in packed],
    }


def unpack_state(message: Message) -> dict[str, Any]:
    """Read what :func:`pack_state` wrote.

    Raises:
        InvalidValueError: the message is not a state.
    """
    state = message.get("state")
    if not isinstance(state, dict):
        raise InvalidValueError(f"a state must be a JSON object, not a {type(state).__name__}")
    try:
        attachments = message.get(ATTACHMENTS, [])
        for (path, shape), data in zip(message["packed"], attachments, strict=True):
            place: Any = state
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = np.frombuffer(data, dtype=_FLOAT).reshape(shape).tolist()
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise InvalidValueError(f"not a state: {error!r}") from error
    return state


def _cut(value: Any, path: _Path, packed: _Packed) -> Any:
    """A copy of a state without its lists of floats, which are added to ``packed``.

    They may be lists of equally many floats each.
    """
    if isinstance(value, Mapping):
        # A key that is no string has another place once it was written as JSON.
        return {
            key: _cut(item, (*path, key), packed) if isinstance(key, str) else item
            for key, item in value.items()
        }
    if not isinstance(value, (list, tuple)):
        return value
    if _is_numbers(value):
        packed.append((path, np.array(value, dtype=_FLOAT)))
        return []
    return [_cut(item, (*path, index), packed) for index, item in enumerate(value)]


def _is_numbers(value: Sequence[Any]) -> bool:
    kinds = set(map(type, value))
    if kinds == {float}:
        return True
    if not kinds or not kinds <= {list, tuple} or len(set(map(len, value))) != 1:
        return False
    return set(map(type, itertools.chain.from_iterable(value))) == {float}


def differentiable_names() -> list[str]:
    """Registered cost models that have a gradient, as far as they can be imported."""
    found = []
    for name in manager().names("cost_model"):
        with suppress(PluginError):
            factory = manager().get("cost_model", name).resolve()
            if isinstance(factory, type) and issubclass(factory, DifferentiableCostModel):
                found.append(name)
    return found
