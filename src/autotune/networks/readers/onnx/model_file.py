"""Models of ONNX: files and objects, checked, and their tensors and types.

A package that parses a file copies its weights twice. Here only the lengths of fields are read on
the way to them: messages of protobuf come without the large tensors that are in them, which are
left where they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnsupportedWorkload, one_line
from autotune.ir.element_types import element_type
from autotune.networks.graph import Value, constant
from autotune.plugins.installing import install_extra

__all__ = [
    "ModelFile",
    "dtype_of",
    "open_model",
    "sparse_value",
    "split_model",
    "tensor_value",
    "type_name",
    "type_number",
]


# Domains of the operators that onnxruntime writes into a file when it saves an optimised model.
_RUNTIME_ONLY = {
    "com.microsoft": (
        *("BiasSoftmax", "FusedConv", "FusedGemm", "FusedMatMulActivation", "GemmFastGelu"),
        *("NhwcConv", "NhwcFusedConv", "NhwcMaxPool", "QLinearConv"),
    ),
    "com.microsoft.nchwc": (),
    "com.ms.internal.nhwc": (),
}


# Bytes, or elements, of a tensor above which it stays in its file, and the checker gets no copy.
_LARGE = 1 << 12


@frozen(eq=False)
class ModelFile:
    """A model as its file has it.

    Attributes:
        model: The ``ModelProto``; elements of other files are not in it.
        path: Its file, beside which others are looked for; None of a model that is an object.
        text: What a person calls it.
        content: The bytes of the file, for tensors that are said to be in the file called "";
            None where there are none.
    """

    model: Any
    path: Path | None
    text: str
    content: NDArray[np.uint8] | None = None

    @property
    def folder(self) -> Path | None:
        """Folder in which other files are looked for; None of a model that is an object."""
        return None if self.path is None else self.path.parent


def open_model(source: object) -> ModelFile:
    """A model from a path, a string that is one, or a ``ModelProto``, checked.

    Raises:
        InvalidValueError: the package ``onnx`` is missing, or the model is damaged.
        UnsupportedWorkload: onnxruntime optimised it.
    """
    try:
        import onnx
    except ImportError as error:
        raise InvalidValueError(
            "models of ONNX are read with the package onnx, which is not installed: run "
            + install_extra("onnx")
        ) from error
    if isinstance(source, onnx.ModelProto):
        found = ModelFile(source, None, source.graph.name or "model")
    elif isinstance(source, str | Path):
        path = Path(source)
        try:
            model, content = _read(path)
        except Exception as error:  # errors of protobuf and of files share no class
            raise _damaged(repr(str(path)), error) from error
        found = ModelFile(model, path, path.name, content)
    else:
        raise InvalidValueError(
            f"an ONNX model is a path or a ModelProto, not {type(source).__name__}"
        )
    _refuse_optimised(found)
    try:
        onnx.checker.check_model(_without_weights(found.model))
    except Exception as error:  # the checker's errors share no class
        raise _damaged(found.text, error) from error
    return found


def _read(path: Path) -> tuple[Any, NDArray[np.uint8] | None]:
    """A model, and the content of its file where large tensors are left in that."""
    import onnx

    known = onnx.serialization.registry.get_format_from_file_extension(path.suffix)
    if known not in (None, "protobuf"):
        return onnx.load(str(path), load_external_data=False), None
    content = np.fromfile(path, np.uint8)
    light, places = split_model(content.data, _LARGE)
    model = onnx.ModelProto.FromString(light)
    for tensor, place in zip(model.graph.initializer, places, strict=True):
        if place is not None:
            tensor.data_location = onnx.TensorProto.EXTERNAL
            told = {"location": "", "offset": place.begin, "length": place.end - place.begin}
            for key, value in told.items():
                tensor.external_data.add(key=key, value=str(value))
    return model, content


def _without_weights(model: Any) -> Any:
    """The model with inputs in the place of large tensors: the checker would copy these.

    What is in them is checked as they are read.
    """
    import onnx

    light = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name not in ("graph", "opset_import", "functions", "metadata_props"):
            setattr(light, field.name, value)
    for name in ("opset_import", "functions", "metadata_props"):
        getattr(light, name).extend(getattr(model, name))
    graph, given = model.graph, {it.name for it in model.graph.input}
    light.graph.name = graph.name
    for name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(light.graph, name).extend(getattr(graph, name))
    for tensor in graph.initializer:
        if prod(tensor.dims) < _LARGE and tensor.data_location != onnx.TensorProto.EXTERNAL:
            light.graph.initializer.append(tensor)
        elif tensor.name not in given:
            light.graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return light


def _damaged(text: str, error: Exception) -> InvalidValueError:
    return InvalidValueError(
        f"{text} is no valid ONNX model ({one_line(str(error))}); export it again"
    )


def _refuse_optimised(found: ModelFile) -> None:
    for node in found.model.graph.node:
        names = _RUNTIME_ONLY.get(node.domain)
        if names is not None and (not names or node.op_type in names):
            what = f"node {node.name or node.output[0]!r} is {node.domain}.{node.op_type}"
            raise UnsupportedWorkload(
                f"{found.text} was optimised by onnxruntime for itself ({what}): give the model "
                "that was exported"
            )


# Numbers of fields, by message.
_GRAPH = 7  # ModelProto
_INITIALIZER = 5  # GraphProto
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14  # TensorProto

# What follows the key of a field.
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_LONGEST_VARINT = 10


@frozen
class Span:
    """A part of a file, in bytes."""

    begin: int
    end: int


@frozen
class _Field:
    """A field of a message: where all of it is, and where what it holds is."""

    number: int
    kind: int
    whole: Span
    held: Span


def split_model(data: memoryview, least: int) -> tuple[bytes, list[Span | None]]:
    """A model without the bytes of its large tensors, and where these are.

    Args:
        data: A ``ModelProto`` as a file has it.
        least: Bytes of a tensor from which on it is large.

    Returns:
        The other fields, as a message, and for each initializer of its graph the place of its
        bytes where they were left out.

    Raises:
        ValueError: it is cut off, or no such message.
    """
    places: list[Span | None] = []
    light = bytearray()
    for field in _fields(data, Span(0, len(data))):
        if field.number == _GRAPH and field.kind == _LENGTH:
            light += _message(_GRAPH, _split_graph(data, field.held, least, places))
        else:
            light += data[field.whole.begin : field.whole.end]
    return bytes(light), places


def _split_graph(data: memoryview, graph: Span, least: int, places: list[Span | None]) -> bytes:
    light = bytearray()
    for field in _fields(data, graph):
        place = None
        if field.number == _INITIALIZER and field.kind == _LENGTH:
            tensor = data[field.whole.begin : field.whole.end]
            if field.held.end - field.held.begin >= least:
                place, fields = _split_tensor(data, field.held)
                tensor = memoryview(_message(_INITIALIZER, fields) if place else tensor)
            places.append(place)
            light += tensor
        else:
            light += data[field.whole.begin : field.whole.end]
    return bytes(light)


def _split_tensor(data: memoryview, tensor: Span) -> tuple[Span | None, bytes]:
    """Split a tensor into its bytes and all else; None if they are elsewhere, or typed fields."""
    place: Span | None = None
    light = bytearray()
    for field in _fields(data, tensor):
        if field.number in (_EXTERNAL_DATA, _DATA_LOCATION):
            return None, b""
        if field.number == _RAW_DATA and field.kind == _LENGTH:
            place = field.held
        else:
            light += data[field.whole.begin : field.whole.end]
    return place, bytes(light)


def _fields(data: memoryview, message: Span) -> Iterator[_Field]:
    at = message.begin
    while at < message.end:
        begin = at
        key, at = _varint(data, at, message.end)
        number, kind = key >> 3, key & 7
        held = at
        if kind == _VARINT:
            _, at = _varint(data, at, message.end)
        elif kind == _LENGTH:
            length, held = _varint(data, at, message.end)
            at = held + length
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            at += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"byte {begin} begins no field of a message")
        if at > message.end or not number:
            raise ValueError(f"the field at byte {begin} is cut off")
        yield _Field(number, kind, Span(begin, at), Span(held, at))


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = 0
    for place in range(at, min(end, at + _LONGEST_VARINT)):
        byte = data[place]
        value |= (byte & 0x7F) << (7 * (place - at))
        if byte < 0x80:
            return value, place + 1
    raise ValueError(f"the number at byte {at} is cut off")


def _message(number: int, fields: bytes) -> bytes:
    """A message as a field of another one."""
    return _written(number << 3 | _LENGTH) + _written(len(fields)) + fields


def _written(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


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
