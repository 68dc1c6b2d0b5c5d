"""A server of the tracker, leased for as long as a session lasts, and again when that is over."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune_tvm import runtime
from autotune_tvm.compiler import brief
from autotune_tvm.rpc.options import RPCOptions
from autotune_tvm.rpc.toolchain import Toolchain
from autotune_tvm.rpc.tracker import Tracker, TrackerError

__all__ = ["OtherMachine", "ProgramFailed", "ServerLost", "Session", "end_process"]

# A server answers the greeting at once, unless its process is stopped or its machine is gone.
_GREETING_SECONDS = 10.0
_MOST_ATTEMPTS = 3
_RETRY_SECONDS = 1.0
_MOST_REFUSED = 16
# How long to wait for another server than those that were refused.
_REFUSED_SECONDS = 5.0


class OtherMachine(Exception):
    """A server is not on a machine like that of the session before."""


class ServerLost(Exception):
    """The connection to the server ended while nothing of a candidate was running."""


class ProgramFailed(Exception):
    """A program said that it failed, or the server ended the session while it ran."""


@define(eq=False)
class Session:
    """The connection to one server, and what was put there.

    A tracker's server serves one client at a time, so a session is a lease. The server ends it
    after ``session_timeout`` seconds, whatever runs: it is renewed before that, where the tracker
    may give another server. What holds something of an earlier session notices by
    :attr:`generation`. Servers that are refused go back to the tracker when another one is found.

    Attributes:
        options: Where the tracker is, and what to ask it for.
        accept: Called with each new session; raises OtherMachine to have another server.
        patience: Seconds to wait for a server while all are in use.
        toolchain: Makes the probe.
        folder: For files.
        generation: How many sessions there have been.
        server: The address of the server, or "".
    """

    options: RPCOptions
    toolchain: Toolchain
    folder: Path
    accept: Callable[[Session], object] = lambda _session: None
    patience: float = 60.0
    generation: int = 0
    server: str = ""
    _remote: Any = field(default=None, init=False)
    _ends: float = field(default=0.0, init=False)
    _modules: dict[str, Any] = field(factory=dict, init=False)
    _probe: Path | None = field(default=None, init=False)

    @property
    def is_open(self) -> bool:
        """True if there is a session that has not run out."""
        return self._remote is not None and time.monotonic() < self._ends

    def ensure(self, seconds: float) -> None:
        """Have a session that lasts at least so many more seconds, as far as sessions do.

        Raises:
            TrackerError: the tracker gives none; says why.
        """
        least = min(seconds, self.options.session_timeout / 2)
        if self._remote is None or time.monotonic() + least > self._ends:
            self.close()
            self._open()

    def close(self) -> None:
        """Free the server. Calling it again does nothing."""
        self._modules.clear()
        self._remote, self.server = None, ""

    def module(self, digest: str, path: Path) -> Any:
        """The module of a shared library, which is sent to the server once in a session.

        Raises:
            ProgramFailed: the server cannot load it.
            ServerLost: the connection has ended.
        """
        if digest not in self._modules:
            name = f"{digest[:32]}.so"
            with self.talking():
                self._remote.upload(str(path), name)
                self._modules[digest] = self._remote.load_module(name)
        return self._modules[digest]

    def probe(self) -> Any:
        """The module of the probe."""
        if self._probe is None:
            self._probe = self.toolchain.probe(self.folder)
        return self.module("autotune_probe", self._probe)

    def call(self, name: str, *arguments: Any) -> Any:
        """A global function of the server's runtime.

        Raises:
            ProgramFailed: it raises.
            ServerLost: the connection has ended.
        """
        with self.talking():
            return self._remote.get_function(name)(*arguments)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """An array on the server."""
        with self.talking():
            return runtime.load().runtime.empty(shape, dtype, self._remote.cpu(0))

    def sent(self, array: NDArray[Any], dtype: str) -> Any:
        """A copy on the server of an array of the host.

        Args:
            array: Its elements, as the host stores them.
            dtype: Their type.
        """
        remote = self.empty(array.shape, dtype)
        with self.talking():
            remote.copyfrom(np.ascontiguousarray(array))
        return remote

    @contextmanager
    def talking(self) -> Iterator[None]:
        """Tell a failure of what is called inside from one of the connection.

        Raises:
            ProgramFailed: the server answered with an error.
            ServerLost: it did not answer.
        """
        if self._remote is None:
            raise ServerLost("there is no session with a server")
        try:
            yield
        except Exception as error:  # TVM raises whatever the server says
            if type(error).__name__ == "RPCError":
                raise ProgramFailed(_said(error)) from error
            server = self.server
            expired = type(error).__name__ == "RPCSessionTimeoutError"
            self.close()
            timeout = f"{self.options.session_timeout:g} s"
            why = f"its session of {timeout} is over" if expired else _said(error)
            raise ServerLost(f"RPC server {server}: {why}") from error

    @contextmanager
    def running(self) -> Iterator[None]:
        """Talk as :meth:`talking`, where a program runs: one that ends its server has failed.

        Raises:
            ProgramFailed: it has failed.
        """
        server = self.server
        try:
            with self.talking():
                yield
        except ServerLost as error:
            raise ProgramFailed(
                f"the connection to RPC server {server} ended while the program ran: {error}"
            ) from error

    def _open(self) -> None:
        """Ask for servers until one answers and is accepted."""
        refused: list[Any] = []
        last: Exception | None = None
        attempts = _MOST_ATTEMPTS
        while len(refused) <= _MOST_REFUSED:
            try:
                self._remote = self._connect(_REFUSED_SECONDS if refused else self.patience)
                self._ends = time.monotonic() + self.options.session_timeout
                self.generation += 1
                self.accept(self)
                return
            except (OtherMachine, ProgramFailed) as error:
                # Kept until the end: the tracker would offer it again.
                refused.append(self._remote)
                self.close()
                last = error
            except TrackerError as error:
                if refused:
                    raise TrackerError(str(last)) from error
                raise
            except Exception as error:  # a server that was offered may be gone
                self.close()
                last = error
                attempts -= 1
                if attempts == 0:
                    break
                time.sleep(_RETRY_SECONDS)
        if refused:
            raise TrackerError(str(last))
        raise TrackerError(
            f"{_MOST_ATTEMPTS} RPC servers with key {self.options.key!r} did not answer, the last "
            f"one with: {_said(last)}"
        )

    def _connect(self, patience: float) -> Any:
        options = self.options
        with Tracker(options.address) as tracker:
            tracker.servers(options.key)
            offer = tracker.request(options.key, options.priority, patience)
        self.server = str(offer.address)
        rpc = runtime.load().rpc
        with _ending_the_process(f"RPC server {offer.address} does not answer"):
            return rpc.connect(
                offer.address.host,
                offer.address.port,
                offer.match_key,
                session_timeout=options.session_timeout,
            )


def end_process(message: str) -> NoReturn:
    """End this process, which is of no use without a server; the message is its last word."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    os._exit(1)


@contextmanager
def _ending_the_process(message: str) -> Iterator[None]:
    """End this process unless what is inside is over soon, as TVM knows no limit."""

    late = f"{message} within {_GREETING_SECONDS:g} s"
    watch = threading.Timer(_GREETING_SECONDS, end_process, [late])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _said(error: BaseException | None) -> str:
    if error is None:
        return "no message"
    text = brief(error)
    if "kShutdown" in text or "Broken pipe" in text or "Connection reset" in text:
        return "it ended the connection"
    return text.replace("RPCError: Error caught from RPC call: ", "")
