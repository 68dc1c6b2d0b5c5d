"""Saved states of cost models: checks, and outcomes and arrays as JSON."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.models.cost.cost_model import Observation
from autotune.sketches import Candidate, Sketch
from autotune.store.records import Outcome

__all__ = [
    "ObservationLog",
    "arrays_digest",
    "arrays_from_json",
    "arrays_to_json",
    "check_model",
]


def check_model(
    name: str, state: Mapping[str, Any], version: int | str | None = None, file: str | None = None
) -> None:
    """Refuse a state that a cost model cannot continue from.

    Args:
        name: Name of the model.
        state: What was saved.
        version: Meaning of the model's features; None for one without.
        file: Digest of what the model was trained to beforehand; "" for nothing, None where the
            model cannot be.

    Raises:
        InvalidValueError: the state is of another model, its features have another version, or it
            continues from something else.
    """
    if state.get("model") != name:
        raise InvalidValueError(
            f"the state is of cost model {state.get('model')!r}, this one is {name!r}"
        )
    if version is not None and state["feature_version"] != version:
        raise InvalidValueError(
            f"the saved cost model has features of version {state['feature_version']!r}, this one "
            f"computes version {version!r}: train a new one"
        )
    found = state.get("file", "")
    if file is not None and found != file:
        raise InvalidValueError(
            f"the saved cost model continues from the file {found or 'none'}, this one from "
            f"{file or 'none'}: load the file that it was begun with"
        )


class ObservationLog:
    """Candidates and their latencies, in order, each sketch once."""

    def __init__(self) -> None:
        self._sketches: dict[str, tuple[int, dict[str, Any]]] = {}
        self._rows: list[tuple[int, list[int], float | None]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, observations: Sequence[Observation]) -> None:
        """Add candidates; what has no latency has failed."""
        for candidate, outcome in observations:
            sketch = candidate.sketch
            if sketch.spelling not in self._sketches:
                entry = {"sketch": sketch.to_json(), "workload": sketch.workload.to_json()}
                self._sketches[sketch.spelling] = len(self._sketches), entry
            number, _ = self._sketches[sketch.spelling]
            self._rows.append((number, [int(it) for it in candidate.values], outcome.latency))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`read` reads back."""
        return {
            "sketches": [content for _, content in self._sketches.values()],
            "rows": [[number, values] for number, values, _ in self._rows],
            "latencies": [latency for _, _, latency in self._rows],
        }

    @staticmethod
    def read(data: Mapping[str, Any]) -> list[Observation]:
        """The observations, in order, with as much of an outcome as a model learns from.

        Raises:
            InvalidValueError: the object is not what :meth:`to_json` returns.
        """
        try:
            sketches = [
                Sketch.from_json(item["sketch"], Workload.from_json(item["workload"]))
                for item in data["sketches"]
            ]
            # Where there are no rows, an earlier version wrote their halves.
            rows = data["rows"] if "rows" in data else _zipped(data["numbers"], data["values"])
            return [
                (Candidate(sketches[number], tuple(values)), _outcome(latency))
                for (number, values), latency in _zipped(rows, data["latencies"])
            ]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidValueError(f"not outcomes: {type(error).__name__}: {error}") from error


def _zipped(one: Sequence[Any], other: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(one, other, strict=True))


def _outcome(latency: float | None) -> Outcome:
    """Any failure stands for all."""
    return Outcome("crash") if latency is None else Outcome("ok", float(latency))


def arrays_to_json(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Arrays of float32 or int64 as text, by name; 4/3 of their bytes, and fast to read."""
    found = {}
    for name, array in arrays.items():
        little = _little(array)
        text = base64.b64encode(little.tobytes()).decode("ascii")
        found[name] = [little.dtype.str, list(array.shape), text]
    return found


def arrays_from_json(data: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Read what :func:`arrays_to_json` wrote.

    Raises:
        InvalidValueError: the object is none of arrays.
    """
    try:
        return {name: _array(*item) for name, item in data.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidValueError(f"not weights: {type(error).__name__}: {error}") from error


def _array(*item: Any) -> NDArray[Any]:
    """An array; where its type is missing, an earlier version wrote float32."""
    kind, shape, text = item if len(item) != 2 else ("<f4", *item)
    if kind not in ("<f4", "<i8"):
        raise ValueError(f"an array of type {kind!r}")
    found: NDArray[Any] = np.frombuffer(base64.b64decode(text), dtype=kind).reshape(shape)
    return found.astype(found.dtype.newbyteorder("="))


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """16 hexadecimal digits over all names and values."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(name.encode() + _little(array).tobytes())
    return found.hexdigest()[:16]


def _little(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
