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
            NotAMessage: the stream is damaged; nothing that follows can be understood. Messages
                before the damage are returned first, the next call raises.
        """
        self._bytes += data
        messages = []
        while len(self._bytes) >= _HEADER.size:
            magic, length = _HEADER.unpack_from(self._bytes)
            end = _HEADER.size + length
            is_header = magic == _MAGIC and length <= _MAX_BYTES
            if is_header and len(self._bytes) < end:
                break
            message = _parse(bytes(self._bytes[_HEADER.size : end])) if is_header else None
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
    except ValueError:
        return None
    return message if isinstance(message, dict) else None
