"""Tensors and types of ONNX as values of graphs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.element_types import element_type
from autotune.networks.graph import Value, constant

__all__ = ["dtype_of", "sparse_value", "tensor_value", "type_name", "type_number"]

Array = NDArray[Any]

# By the numbers that ONNX has for element types.
_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}


def type_name(number: int) -> str:
    """ONNX's name of an element type."""
    from onnx import TensorProto

    names: dict[int, str] = {value: key for key, value in TensorProto.DataType.items()}
    return names.get(number, str(number)).lower()


def dtype_of(number: int) -> str:
    """The element type that ONNX has this number for.

    Raises:
        UnsupportedWorkload: graphs have no such type.
    """
    if number not in _DTYPES:
        raise UnsupportedWorkload(
            f"elements of type {type_name(number)} are not supported; there are "
            f"{', '.join(sorted(_DTYPES.values()))}"
        )
    return _DTYPES[number]


def type_number(dtype: str) -> int:
    """The number that ONNX has for an element type."""
    return next(number for number, name in _DTYPES.items() if name == dtype)


def sparse_value(sparse: Any, folder: Path | None) -> Value:
    """A sparse tensor of a file as a dense constant; as :func:`tensor_value`."""
    values = tensor_value(sparse.values, folder)
    places = np.asarray(tensor_value(sparse.indices, folder).constant)
    shape = tuple(sparse.dims)
    dense = np.zeros(shape, element_type(values.dtype).dtype)
    flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), shape)
    dense.reshape(-1)[flat] = values.constant
    return constant(dense, values.dtype, sparse.values.name)


def tensor_value(
    tensor: Any, folder: Path | None, name: str = "", content: NDArray[np.uint8] | None = None
) -> Value:
    """A tensor of a file as a constant; what lies in another file is mapped, not copied.

    Args:
        tensor: A ``TensorProto``.
        folder: Where the model's file lies; None of a model without one.
        name: What it is called.
        content: The bytes of the model's file, of which a tensor in the file ``""`` is a part.

    Raises:
        InvalidValueError: its elements are not where it says.
        UnsupportedWorkload: graphs have no such type.
    """
    from onnx import TensorProto, numpy_helper

    dtype = dtype_of(tensor.data_type)
    shape = tuple(tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        return constant(_external(tensor, folder, dtype, shape, content), dtype, name)
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError) as error:
        raise InvalidValueError(f"tensor {tensor.name!r} is damaged: {error}") from error
    stored = array.view(np.uint16) if dtype == "bfloat16" else array
    return constant(stored.reshape(shape), dtype, name)


def _external(
    tensor: Any,
    folder: Path | None,
    dtype: str,
    shape: tuple[int, ...],
    content: NDArray[np.uint8] | None,
) -> Array:
    """The elements of a tensor that the file of the model holds, or one beside it."""
    told = {entry.key: entry.value for entry in tensor.external_data}
    if content is not None and not told.get("location"):
        return _own(tensor, content, dtype, shape, told)
    where = f"tensor {tensor.name!r} is in the file {told.get('location', '')!r}"
    if folder is None:
        raise InvalidValueError(
            f"{where}, and a model that is an object has no folder: give the path of its file, or "
            "load it with its external data"
        )
    path = (folder / told.get("location", "")).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InvalidValueError(f"{where}, which is outside of the folder of the model")
    kind = element_type(dtype).dtype.newbyteorder("<")
    size = math.prod(shape) * kind.itemsize
    try:
        offset, length = int(told.get("offset", 0)), int(told.get("length", size))
        if length != size or offset < 0 or offset + size > path.stat().st_size:
            raise InvalidValueError(
                f"{where}, which does not hold {size} bytes for it at {offset}: export it again"
            )
        if not size:
            return np.empty(shape, kind)
        return np.memmap(path, kind, "r", offset, shape or (1,)).reshape(shape)
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"{where}, which cannot be read: {error}") from error


def _own(
    tensor: Any,
    content: NDArray[np.uint8],
    dtype: str,
    shape: tuple[int, ...],
    told: Mapping[str, str],
) -> Array:
    """The elements of a tensor that the file of the model holds."""
    kind = element_type(dtype).dtype.newbyteorder("<")
    try:
        offset, length = int(told.get("offset", 0)), int(told.get("length", 0))
    except ValueError as error:
        raise InvalidValueError(f"tensor {tensor.name!r} is damaged: {error}") from error
    size = math.prod(shape) * kind.itemsize
    if length != size or offset < 0 or offset + size > content.size:
        raise InvalidValueError(
            f"tensor {tensor.name!r} is damaged: it has {length} bytes, and {dtype}{list(shape)} "
            f"takes {size}"
        )
    found: Array = content[offset : offset + size].view(kind).reshape(shape)
    return found
