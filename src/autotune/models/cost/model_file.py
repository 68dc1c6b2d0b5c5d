"""Files of trained models: arrays in npz, with a descriptive header."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.models.cost.cost_model import Observation
from autotune.plugins.manager import manager
from autotune.plugins.parts import create_part
from autotune.sketches import Candidate, Sketch
from autotune.store.records import Outcome

__all__ = [
    "ModelFile",
    "ObservationLog",
    "SavedModel",
    "arrays_digest",
    "arrays_from_json",
    "arrays_to_json",
    "check_model",
    "read_model",
    "trained_model",
    "write_model",
]

FORMAT = "autotune.cost_model"
FORMAT_VERSION = 1
_HEADER = "header"
# The largest model of this package is a thousandth of it.
_MOST_BYTES = 1 << 30
# What numpy and the libraries below it raise when bytes are no npz file.
_DAMAGE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    TypeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


@frozen
class ModelFile:
    """A file with a trained model, as it was when it was named.

    Attributes:
        path: Where it is, absolute.
        digest: Of its content.
    """

    path: str
    digest: str

    @staticmethod
    def at(path: str | os.PathLike[str]) -> ModelFile:
        """The file as it is now.

        Raises:
            InvalidValueError: it cannot be read.
        """
        return ModelFile(os.path.abspath(path), _digest(_content(path)))

    def open(self) -> BinaryIO:
        """Its content, for :meth:`autotune.models.cost.TrainableCostModel.load`.

        Raises:
            InvalidValueError: it cannot be read, or is not what it was.
        """
        content = _content(self.path)
        if _digest(content) != self.digest:
            raise InvalidValueError(
                f"the cost model in {self.path!r} has changed since it was named"
            )
        return io.BytesIO(content)


@frozen(eq=False)
class SavedModel:
    """The content of a file.

    Attributes:
        arrays: By name.
        facts: JSON values, by name.
    """

    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


def write_model(
    stream: BinaryIO,
    model: str,
    feature_version: int | str,
    arrays: Mapping[str, NDArray[Any]],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a model that :func:`read_model` reads; equal models give equal bytes.

    Args:
        stream: Where to.
        model: Name of the cost model.
        feature_version: Version of the features that it was trained on.
        arrays: Its weights, by name; not of Python objects.
        facts: What else is to be known, as JSON values.

    Raises:
        InvalidValueError: an array has the name of the header.
    """
    if _HEADER in arrays:
        raise InvalidValueError(f"an array of a model file may not be called {_HEADER!r}")
    header = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "model": model,
        "feature_version": feature_version,
        "facts": dict(facts or {}),
    }
    text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
    content = {_HEADER: np.frombuffer(text, dtype=np.uint8), **arrays}
    np.savez(stream, allow_pickle=False, **content)


def read_model(stream: BinaryIO, model: str, feature_version: int | str) -> SavedModel:
    """Read what :func:`write_model` wrote. Nothing that the file holds is executed.

    Args:
        stream: Where from.
        model: Name of the cost model that is to be read.
        feature_version: Version of the features that this installation computes.

    Raises:
        InvalidValueError: it is no such file, or one of another model, or of other features.
    """
    # Of other bytes, numpy says only that they may be pickled, and how to trust them.
    if not zipfile.is_zipfile(stream):
        raise InvalidValueError("this is no file of a cost model: it is no .npz archive of arrays")
    stream.seek(0)
    try:
        with np.load(stream, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
        is_known = header["format"] == FORMAT and header["version"] == FORMAT_VERSION
        facts = dict(header["facts"])
        found_model, found_version = header["model"], header["feature_version"]
    except (*_DAMAGE, AttributeError) as error:
        raise InvalidValueError(f"this is no file of a cost model: {error}") from error
    if not is_known:
        raise InvalidValueError(
            f"a cost model of format {header['format']!r}, version {header['version']!r}; "
            f"this autotune reads {FORMAT!r}, version {FORMAT_VERSION}"
        )
    if found_model != model:
        raise InvalidValueError(
            f"the file is of cost model {found_model!r}, this one is {model!r}; "
            f"choose {found_model!r}"
        )
    if found_version != feature_version:
        raise InvalidValueError(
            f"the cost model was trained on features of version {found_version!r}, this autotune "
            f"computes version {feature_version!r}: train a new one"
        )
    return SavedModel(arrays, facts)


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        # Looked at first: opening a pipe waits for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InvalidValueError(
                f"the cost model in {os.fspath(path)!r} cannot be read: it is no regular file"
            )
        with Path(path).open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidValueError(
            f"the cost model in {os.fspath(path)!r} cannot be read: {error.strerror}"
        ) from error
    if len(content) > _MOST_BYTES:
        raise InvalidValueError(
            f"the cost model in {os.fspath(path)!r} is larger than {_MOST_BYTES} bytes"
        )
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def trained_model(given: str | os.PathLike[str]) -> ModelFile:
    """The pretrained weights of a cost model.

    Args:
        given: Name of a trained model that a plugin brings, or the path of a file. A file in the
            current folder that is called like a trained model is meant by ``./`` before its name.

    Raises:
        UnknownNameError: it could be a name, but is none, and there is no such file.
        InvalidValueError: the file cannot be read.
    """
    names = manager().names("trained_model")
    if given in names:
        return ModelFile.at(create_part("trained_model", str(given)))
    # What has a suffix or a folder is meant to be a file.
    is_plain = isinstance(given, str) and given.replace("-", "").replace("_", "").isalnum()
    if is_plain and not os.path.exists(given):
        extra = manager().where_it_may_be("trained_model", str(given))
        raise UnknownNameError(
            "trained model", str(given), names, extra or "There is no such file either."
        )
    return ModelFile.at(given)


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
