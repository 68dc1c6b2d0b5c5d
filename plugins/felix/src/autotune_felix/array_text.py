"""Arrays of float32 as text in JSON, and what tells them apart."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError

__all__ = ["arrays_digest", "arrays_from_json", "arrays_to_json"]


def arrays_to_json(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The arrays as text, by name."""
    return {
        name: [list(array.shape), base64.b64encode(_bytes(array)).decode("ascii")]
        for name, array in arrays.items()
    }


def arrays_from_json(data: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Read what :func:`arrays_to_json` wrote.

    Raises:
        InvalidValueError: the object is none of arrays.
    """
    try:
        return {
            name: np.frombuffer(base64.b64decode(text), dtype="<f4").reshape(shape).copy()
            for name, (shape, text) in data.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidValueError(f"not weights: {type(error).__name__}: {error}") from error


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """16 hexadecimal digits over all names and values."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(name.encode() + _bytes(array))
    return found.hexdigest()[:16]


def _bytes(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array, dtype="<f4").tobytes()
