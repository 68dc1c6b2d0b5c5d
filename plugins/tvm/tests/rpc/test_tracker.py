"""Messages on trackers that are not there, are none, or have no server."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from autotune_tvm.rpc.tracker import Address, Tracker, TrackerError, parse_address
from rpc_servers import HOST

from autotune.errors import InvalidValueError

MAGIC = struct.pack("<i", 0x2F271)
Answer = Callable[[socket.socket], None]
# Seconds that only a failing test waits.
_PATIENCE = 60.0


@contextmanager
def listening(answer: Answer) -> Iterator[Address]:
    """Accept one connection, and give the answers that this was made with."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield Address(HOST, server.getsockname()[1])
        thread.join()


def replies(*answers: object, raw: bytes = b"") -> Answer:
    """A tracker that gives these answers in order, then these bytes, and hangs up."""

    def answer(connection: socket.socket) -> None:
        assert connection.recv(4) == MAGIC
        connection.sendall(MAGIC)
        for content in answers:
            size = struct.unpack("<i", connection.recv(4))[0]
            assert json.loads(connection.recv(size))
            body = json.dumps(content).encode()
            connection.sendall(struct.pack("<i", len(body)) + body)
        connection.sendall(raw)

    return answer


def silence(connection: socket.socket) -> None:
    """Stay silent until the other side hangs up."""
    with suppress(ConnectionError):
        while connection.recv(64):
            pass


def summary(*keys: str) -> list[object]:
    servers = [{"key": f"server:{key}", "addr": ["10.0.0.1", 9090]} for key in keys]
    return [0, {"queue_info": {key: {"free": 1, "pending": 0} for key in keys},
                "server_info": servers}]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9190", "host:x", "host:0", "host:70000", "host:-1", "host:٣"]
)
def test_an_address_is_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"HOST:PORT, such as 127\.0\.0\.1:9190"):
        parse_address(text)


def test_addresses_of_both_protocols() -> None:
    assert parse_address("board.lan:9190") == Address("board.lan", 9190)
    assert parse_address("[::1]:9190") == Address("::1", 9190)


def test_no_tracker_is_named_at_once() -> None:
    # Nobody else can listen where a socket is bound that does not.
    with socket.socket() as deaf:
        deaf.bind((HOST, 0))
        address = Address(HOST, deaf.getsockname()[1])
        with pytest.raises(TrackerError, match=f"no RPC tracker at {address}: Connection refused"):
            Tracker(address, _PATIENCE)


@pytest.mark.parametrize("said", [b"", b"SSH-2.0", b"\0\0\0\0"])
def test_what_is_no_tracker_is_named(said: bytes) -> None:
    refused = pytest.raises(TrackerError, match="is no RPC tracker")
    with listening(lambda connection: connection.sendall(said)) as address, refused:
        Tracker(address, _PATIENCE)


def test_a_silent_listener_is_given_up_on() -> None:
    refused = pytest.raises(TrackerError, match="is no RPC tracker")
    with listening(silence) as address, refused:
        Tracker(address, 0.2)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "is gone: it hung up"),
        (struct.pack("<i", -1), "does not answer as RPC trackers do"),
        (struct.pack("<i", 1 << 30), "does not answer as RPC trackers do"),
        (struct.pack("<i", 2) + b"{]", "does not answer as RPC trackers do"),
        (struct.pack("<i", 7) + b"[-1, 0]", "does not answer as RPC trackers do"),
        (struct.pack("<i", 6) + b"[0, 1]", "does not answer as RPC trackers do"),
        (struct.pack("<i", 20) + b"[0", "is gone: it hung up"),
    ],
)
def test_answers_that_make_no_sense(raw: bytes, message: str) -> None:
    def answer(connection: socket.socket) -> None:
        replies()(connection)
        connection.recv(64)
        connection.sendall(raw)

    failed = pytest.raises(TrackerError, match=message)
    with listening(answer) as address, Tracker(address, _PATIENCE) as tracker, failed:
        tracker.keys()


def test_a_key_that_no_server_has_is_named_with_the_nearest() -> None:
    said = "no server with key 'pi5'; it has servers with: jetson, pi4; did you mean 'pi4'"
    with listening(replies(summary("pi4", "jetson"))) as address, Tracker(address) as tracker:
        with pytest.raises(TrackerError) as raised:
            tracker.servers("pi5")
        assert said in str(raised.value)


def test_a_tracker_without_servers() -> None:
    failed = pytest.raises(TrackerError, match="no server with key 'pi4', nor any other")
    with listening(replies(summary())) as address, Tracker(address) as tracker, failed:
        tracker.servers("pi4")


def test_what_the_tracker_says_of_a_key() -> None:
    with listening(replies(summary("pi4"))) as address, Tracker(address) as tracker:
        found = tracker.servers("pi4")
    assert found.servers == ("10.0.0.1:9090",) and (found.free, found.pending) == (1, 0)


def test_waiting_for_a_server_ends() -> None:
    def answer(connection: socket.socket) -> None:
        replies()(connection)
        silence(connection)

    failed = pytest.raises(TrackerError, match="no server with key 'pi4' became free within 0 s")
    with listening(answer) as address, Tracker(address) as tracker, failed:
        tracker.request("pi4", 1, 0.2)


def test_an_offer_names_server_and_key() -> None:
    offer = [0, ["10.0.0.1", 9090, "pi4:0.5"]]
    with listening(replies(offer)) as address, Tracker(address) as tracker:
        given = tracker.request("pi4", 1, _PATIENCE)
    assert (str(given.address), given.match_key) == ("10.0.0.1:9090", "pi4:0.5")
    failed = pytest.raises(TrackerError, match="does not answer as RPC trackers do")
    with listening(replies([0, "nothing"])) as address, Tracker(address) as tracker, failed:
        tracker.request("pi4", 1, _PATIENCE)
