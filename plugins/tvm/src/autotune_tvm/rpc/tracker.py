"""Protocol of TVM's RPC tracker and of its servers, with a limit on every wait.

TVM's own client waits a minute for a tracker that is not there, and for ever for a server. The
messages are those of ``tvm/rpc/tracker.py``: a magic number each way, then JSON behind its length.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from difflib import get_close_matches
from typing import Any

from attrs import define, field, frozen

from autotune.errors import AutotuneError, InvalidValueError

__all__ = ["Address", "Free", "ServerOffer", "Tracker", "TrackerError", "parse_address"]

_MAGIC = 0x2F271
_SUCCESS, _REQUEST, _SUMMARY = 0, 4, 6
_MOST_BYTES = 1 << 20
_SIZE = struct.Struct("<i")


class TrackerError(AutotuneError):
    """A tracker cannot be reached, is none, or has no server to give."""


@frozen
class Address:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT``.

    Raises:
        InvalidValueError: it is no such thing.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidValueError(
            f"the RPC tracker's address is HOST:PORT, such as 127.0.0.1:9190, not {text!r}"
        )
    return Address(host.strip("[]"), int(port))


@frozen
class ServerOffer:
    """A server that the tracker gave to the client that asked, and to nobody else.

    Attributes:
        address: Where it listens.
        match_key: What it expects to be greeted with; of use once.
    """

    address: Address
    match_key: str


@frozen
class Free:
    """Answer of the tracker on a key.

    Attributes:
        servers: Addresses of the servers with it, those in use included.
        free: How many of them wait for a client.
        pending: How many clients wait for one of them.
    """

    servers: tuple[str, ...]
    free: int
    pending: int


@define
class Tracker:
    """Connection to a tracker; a context manager.

    A tracker that closes the connection, or is silent, has failed: connect again.

    Args:
        address: Where it listens.
        patience: Seconds that a connection or an answer may take.
    """

    address: Address
    patience: float = 5.0
    _socket: socket.socket = field(init=False)

    def __attrs_post_init__(self) -> None:
        try:
            place = (self.address.host, self.address.port)
            self._socket = socket.create_connection(place, self.patience)
        except OSError as error:
            why = error.strerror or str(error)
            raise TrackerError(f"no RPC tracker at {self.address}: {why}") from error
        try:
            self._socket.sendall(_SIZE.pack(_MAGIC))
            magic = _SIZE.unpack(self._receive(_SIZE.size))[0]
        except (OSError, TrackerError) as error:
            self.close()
            raise TrackerError(f"what listens at {self.address} is no RPC tracker") from error
        if magic != _MAGIC:
            self.close()
            raise TrackerError(f"what listens at {self.address} is no RPC tracker")

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; a request that waits is withdrawn by that."""
        self._socket.close()

    def keys(self) -> dict[str, Free]:
        """Servers that there are, by key.

        Raises:
            TrackerError: there is no answer, or one that makes no sense.
        """
        answer = self._ask([_SUMMARY], self.patience)
        try:
            queues, servers = answer["queue_info"], answer["server_info"]
            found: dict[str, list[str]] = {name: [] for name in queues}
            for server in servers:
                host, port = server["addr"]
                found.setdefault(server["key"].partition(":")[2], []).append(f"{host}:{port}")
            return {
                name: Free(
                    tuple(sorted(addresses)),
                    int(queues.get(name, {}).get("free", 0)),
                    int(queues.get(name, {}).get("pending", 0)),
                )
                for name, addresses in found.items()
                if addresses
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._nonsense() from error

    def servers(self, key: str) -> Free:
        """The servers with a key.

        Raises:
            TrackerError: there is none; names the keys that there are, and the nearest.
        """
        keys = self.keys()
        if key in keys:
            return keys[key]
        if not keys:
            raise TrackerError(
                f"the RPC tracker at {self.address} has no server with key {key!r}, nor any other"
            )
        near = get_close_matches(key, keys, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise TrackerError(
            f"the RPC tracker at {self.address} has no server with key {key!r}; "
            f"it has servers with: {', '.join(sorted(keys))}{meant}"
        )

    def request(self, key: str, priority: int, seconds: float) -> ServerOffer:
        """Wait for a server: clients of a higher priority get theirs first.

        Args:
            key: Of the server.
            priority: Of this client.
            seconds: How long to wait.

        Raises:
            TrackerError: none became free in that time, or the tracker is gone.
        """
        began = time.monotonic()
        try:
            answer = self._ask([_REQUEST, key, "", priority], seconds)
        except TimeoutError as error:
            waited = time.monotonic() - began
            raise TrackerError(
                f"no server with key {key!r} became free within {waited:.0f} s, says the RPC "
                f"tracker at {self.address}"
            ) from error
        try:
            host, port, match_key = answer
            return ServerOffer(Address(str(host), int(port)), str(match_key))
        except (TypeError, ValueError) as error:
            raise self._nonsense() from error

    def _ask(self, question: list[Any], seconds: float) -> Any:
        body = json.dumps(question).encode()
        try:
            self._socket.settimeout(self.patience)
            self._socket.sendall(_SIZE.pack(len(body)) + body)
            self._socket.settimeout(seconds)
            size = _SIZE.unpack(self._receive(_SIZE.size))[0]
            if not 0 < size <= _MOST_BYTES:
                raise self._nonsense()
            self._socket.settimeout(self.patience)
            answer = json.loads(self._receive(size))
            code, value = answer
        except TimeoutError:
            if question[0] == _REQUEST:
                raise
            raise TrackerError(
                f"the RPC tracker at {self.address} does not answer within {seconds:g} s"
            ) from None
        except OSError as error:
            why = error.strerror or str(error)
            raise TrackerError(f"the RPC tracker at {self.address} is gone: {why}") from error
        except (ValueError, TypeError) as error:
            raise self._nonsense() from error
        if code != _SUCCESS:
            raise self._nonsense()
        return value

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise TrackerError(f"the RPC tracker at {self.address} is gone: it hung up")
            data += part
        return bytes(data)

    def _nonsense(self) -> TrackerError:
        return TrackerError(f"what listens at {self.address} does not answer as RPC trackers do")
