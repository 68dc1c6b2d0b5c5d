"""Tell whether a candidate has computed what the default configuration computes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.external.program import Validation

__all__ = ["NUMERIC", "Outputs", "difference", "read_outputs"]

NUMERIC = "biufc"
"""Kinds of element types that can be compared."""
_MAGIC = b"\x93NUMPY"
_LARGEST = 4 << 30
Array = NDArray[Any]


@frozen(eq=False)
class Outputs:
    """Arrays that a run has computed, in order."""

    arrays: tuple[Array, ...]


def read_outputs(paths: Sequence[Path], validation: Validation) -> Outputs:
    """Outputs from files: ``.npy``, or the bytes of elements of ``validation.dtype``.

    Raises:
        InvalidValueError: a file is missing, too large, or no array.
    """
    return Outputs(tuple(_read(path, validation) for path in paths))


def _read(path: Path, validation: Validation) -> Array:
    try:
        if path.stat().st_size > _LARGEST:
            raise InvalidValueError(f"the output has more than {_LARGEST} bytes")
        data = path.read_bytes()
    except OSError:
        raise InvalidValueError("it wrote no output") from None
    if data.startswith(_MAGIC):
        try:
            array = np.asarray(np.load(io.BytesIO(data), allow_pickle=False))
        except (ValueError, EOFError, OSError) as error:
            raise InvalidValueError(f"its output is no array: {error}") from None
        if array.dtype.kind not in NUMERIC:
            raise InvalidValueError(f"its output is an array of {array.dtype}, and not of numbers")
        return array
    dtype = np.dtype(validation.dtype or "uint8")
    if not validation.dtype and validation.method == "allclose":
        raise InvalidValueError(
            "its output is no .npy file: say what its elements are (validate.dtype), or that "
            "bytes are compared (validate.method = 'bitexact')"
        )
    if len(data) % dtype.itemsize:
        raise InvalidValueError(
            f"its output of {len(data)} bytes is no whole number of {dtype.name}"
        )
    return np.frombuffer(data, dtype=dtype)


def difference(found: Outputs, wanted: Outputs, validation: Validation) -> str:
    """Describe an output that is not right within the bounds; "" where all are."""
    if len(found.arrays) != len(wanted.arrays):
        return f"it has {len(found.arrays)} outputs and not {len(wanted.arrays)}"
    for number, (own, right) in enumerate(zip(found.arrays, wanted.arrays, strict=True)):
        if why := _array_difference(own, right, validation):
            return f"output {number}: {why}" if len(wanted.arrays) > 1 else why
    return ""


def _array_difference(own: Array, right: Array, validation: Validation) -> str:
    if own.shape != right.shape:
        return f"its output has shape {list(own.shape)} and not {list(right.shape)}"
    if own.dtype != right.dtype:
        return f"its output is {own.dtype} and not {right.dtype}"
    if validation.method == "bitexact":
        wrong = _bytes(own) != _bytes(right)
        share = float(wrong.mean()) if wrong.size else 0.0
        return f"{share:.3%} of the bytes of its output differ" if share else ""
    close = np.isclose(own, right, rtol=validation.rtol, atol=validation.atol, equal_nan=True)
    if close.all():
        return ""
    with np.errstate(all="ignore"):
        worst = float(np.nanmax(np.abs(own.astype(np.complex128) - right.astype(np.complex128))))
    share = 1 - float(close.mean())
    return (
        f"{share:.3%} of its output differs by more than rtol={validation.rtol:g}, "
        f"atol={validation.atol:g}; at most by {worst:.3g}"
    )


def _bytes(array: Array) -> NDArray[np.uint8]:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), dtype=np.uint8)
