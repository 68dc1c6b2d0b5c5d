"""Messages of protobuf without the large tensors that are in them, which are left where they are.

A package that parses a file copies its weights twice. Here only the lengths of fields are read on
the way to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

__all__ = ["Span", "split_model"]

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
