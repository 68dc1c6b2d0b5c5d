"""Messages between host and worker: JSON objects, each behind a magic word and its length.

A message may carry ``attachments``: byte strings, such as the content of arrays, which travel as
they are, behind the object. One without them is encoded as if there were no such thing.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]

ATTACHMENTS = "attachments"
"""Key of a message's attachments: a list of objects with a contiguous buffer, of ``bytes`` where
a message arrives."""

_HEADER = struct.Struct(">4sI")
_LENGTH = struct.Struct(">I")
_MAGIC = b"ATM1"
_MAGIC_WITH_ATTACHMENTS = b"ATM2"
_MAX_BYTES = 1 << 28


class NotAMessage(Exception):
    """Malformed message: something else writes to the pipe."""


def encode(message: Mapping[str, Any]) -> bytes:
    """The bytes of one message."""
    if ATTACHMENTS not in message:
        body = _json(message)
        return _HEADER.pack(_MAGIC, len(body)) + body
    attachments: Sequence[Any] = message[ATTACHMENTS]
    content = {key: value for key, value in message.items() if key != ATTACHMENTS}
    sizes = [memoryview(attachment).nbytes for attachment in attachments]
    body = _json([content, sizes])
    length = _LENGTH.size + len(body) + sum(sizes)
    header = _HEADER.pack(_MAGIC_WITH_ATTACHMENTS, length) + _LENGTH.pack(len(body))
    return b"".join([header, body, *attachments])


def _json(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class Decoder:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that ``data`` completes.

        Raises:
            NotAMessage: the stream is damaged; nothing that follows can be understood. Messages
                before the damage are returned first, the next call raises.
        """
        self._bytes += data
        messages = []
        while len(self._bytes) >= _HEADER.size:
            magic, length = _HEADER.unpack_from(self._bytes)
            end = _HEADER.size + length
            is_header = magic in _PARSERS and length <= _MAX_BYTES
            if is_header and len(self._bytes) < end:
                break
            message = None
            if is_header:
                message = _PARSERS[magic](bytes(self._bytes[_HEADER.size : end]))
            if message is not None:
                messages.append(message)
                del self._bytes[:end]
            elif messages:
                break
            else:
                raise NotAMessage(repr(bytes(self._bytes[:32])))
        return messages


def _parse(body: bytes) -> Message | None:
    """The message, or None if it is none."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _parse_with_attachments(body: bytes) -> Message | None:
    """The message with its attachments, or None if it is none."""
    if len(body) < _LENGTH.size:
        return None
    start = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    try:
        message, sizes = json.loads(body[_LENGTH.size : start])
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(sizes, list):
        return None
    if not all(type(size) is int and size >= 0 for size in sizes):
        return None
    if start + sum(sizes) != len(body):
        return None
    message[ATTACHMENTS] = []
    for size in sizes:
        message[ATTACHMENTS].append(body[start : start + size])
        start += size
    return message


_PARSERS = {_MAGIC: _parse, _MAGIC_WITH_ATTACHMENTS: _parse_with_attachments}
