"""TVM's own tracker and servers, as processes that listen on the loopback interface only."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from autotune_tvm.rpc.tracker import Address, Tracker, TrackerError

_PATIENCE = 300.0
HOST = "127.0.0.1"


def free_port() -> int:
    """A port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so, on a busy machine, too."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, f"{what} within {_PATIENCE:g} s"
        time.sleep(0.05)


class RPCFleet:
    """A tracker with servers; a context manager that ends all of them, with what they started.

    Args:
        folder: For their output.
        servers: How many.
        key: Of the servers.
    """

    def __init__(self, folder: Path, servers: int = 2, key: str = "board") -> None:
        self.key = key
        self.tracker = Address(HOST, free_port())
        self._folder = folder
        self._count = servers
        self._tracker_process: subprocess.Popen[bytes] | None = None
        self.servers: list[subprocess.Popen[bytes]] = []

    @property
    def tracker_pid(self) -> int:
        """Process id of the tracker."""
        assert self._tracker_process is not None
        return self._tracker_process.pid

    def __enter__(self) -> RPCFleet:
        self.start_tracker()
        for _ in range(self._count):
            self.start_server()
        self.await_free(self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in (*self.servers, self._tracker_process):
            if process is not None:
                self.kill(process)

    def start_tracker(self) -> None:
        """Start the tracker, at the same address as before, and wait until it answers."""
        port = self.tracker.port
        arguments = ["--port", str(port), "--port-end", str(port + 1), "--silent"]
        self._tracker_process = self._start("tracker", arguments)
        wait_for(lambda: self._summary() is not None, "the tracker answers")

    def start_server(self, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start one more server."""
        port = free_port()
        arguments = ["--port", str(port), "--port-end", str(port + 1), "--key", self.key]
        process = self._start("server", [*arguments, "--tracker", str(self.tracker)], environment)
        self.servers.append(process)
        return process

    def await_free(self, count: int) -> None:
        """Wait until so many servers wait for a client."""

        def enough() -> bool:
            keys = self._summary() or {}
            return self.key in keys and keys[self.key].free >= count

        wait_for(enough, f"{count} servers are free")

    def kill_tracker(self) -> None:
        """End the tracker."""
        assert self._tracker_process is not None
        self.kill(self._tracker_process)

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """End a process and all that it has started, as by a lack of memory."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    @staticmethod
    def signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Send a signal to a process and all that it has started."""
        os.killpg(process.pid, number)

    def options(self, **others: object) -> dict[str, object]:
        """Options of the runner ``rpc`` that find the servers."""
        return {"tracker": str(self.tracker), "key": self.key, **others}

    def _summary(self) -> dict[str, object] | None:
        try:
            with Tracker(self.tracker, 2.0) as tracker:
                return dict(tracker.keys())
        except TrackerError:
            return None

    def _start(
        self, kind: str, arguments: list[str], environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"tvm.exec.rpc_{kind}", "--host", HOST, *arguments]
        with open(self._folder / f"{kind}.log", "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TVM_NUM_THREADS": "1", **(environment or {})},
                cwd=self._folder,
                start_new_session=True,
            )
