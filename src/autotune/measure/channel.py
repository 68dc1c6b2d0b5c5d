"""Messages between host and worker: JSON objects, each behind a magic word and its length."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

Message = dict[str, Any]

_HEADER = struct.Struct(">4sI")
_MAGIC = b"ATM1"
_MAX_BYTES = 1 << 28


class NotAMessage(Exception):
    """What arrived is not a message: something else writes to the pipe."""


def encode(message: Mapping[str, Any]) -> bytes:
    """The bytes of one message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return _HEADER.pack(_MAGIC, len(body)) + body


class Decoder:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that ``data`` completes.

        Raises:
            NotAMessage: the stream is damaged; nothing that follows can be understood.
        """
        self._bytes += data
        messages = []
        while len(self._bytes) >= _HEADER.size:
            magic, length = _HEADER.unpack_from(self._bytes)
            if magic != _MAGIC or length > _MAX_BYTES:
                raise NotAMessage(repr(bytes(self._bytes[:32])))
            end = _HEADER.size + length
            if len(self._bytes) < end:
                break
            messages.append(_parse(bytes(self._bytes[_HEADER.size : end])))
            del self._bytes[:end]
        return messages


def _parse(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise NotAMessage(repr(body[:32])) from error
    if not isinstance(message, dict):
        raise NotAMessage(repr(body[:32]))
    return message
