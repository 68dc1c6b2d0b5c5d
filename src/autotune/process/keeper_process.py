"""The host's handle of a keeper, which starts a worker and ends it with all that it started."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from autotune.process.fork_server_process import fork_keeper
from autotune.process.processes import kill_marked, ready

__all__ = ["KeeperProcess", "describe_exit"]

_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 1.0


class KeeperProcess:
    """Runs the ``main`` of a module under a keeper; see :mod:`autotune.process.keeper`.

    It dies with the thread that created it, by the kernel's doing, and takes the worker along.

    Args:
        module: The worker's module.
        arguments: The worker's arguments.
        imported: As of :func:`fork_keeper`.
        environment: The environment of both, whose ``TMPDIR`` is ``folder``.
        output: Descriptor for what they print.
        descriptors: What the worker receives from, and what it sends to.
        folder: The worker's folder, which exists and is removed at the end.

    Raises:
        OSError: no process can be started.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        imported: Sequence[str],
        environment: Mapping[str, str],
        output: int,
        descriptors: Sequence[int],
        folder: Path,
    ) -> None:
        self._folder = folder
        self._text = b""
        self._finished = False
        self._killed = False
        self._ordered = False
        self._code: int | None = None
        self._status, theirs = os.pipe()
        with ExitStack() as always, ExitStack() as on_failure:
            always.callback(os.close, theirs)
            on_failure.callback(os.close, self._status)
            os.set_blocking(self._status, False)
            given = (theirs, output, *descriptors)
            fork_keeper(module, arguments, imported, environment, folder, given)
            on_failure.pop_all()

    @property
    def pid(self) -> int:
        """Process id of the keeper, which is waited for; 0 if none could be forked."""
        self._wait_for(b"keeper")
        return int(self._field(b"keeper") or 0)

    @property
    def worker_pid(self) -> int:
        """Process id of the worker; the keeper's until there is one."""
        self.finished()
        return int(self._field(b"worker") or self.pid)

    def finished(self, seconds: float = 0.0) -> bool:
        """Return whether worker and keeper are gone, or are so within ``seconds``."""
        end = time.monotonic() + seconds
        while not self._finished:
            if not ready(self._status, select.POLLIN, end - time.monotonic()):
                return False
            self._read()
        return True

    def end(self) -> str:
        """End the worker and everything it started, if that has not happened; says how it ended.

        May be repeated, also after an interrupt, until :meth:`close`.
        """
        if not self.finished():
            self._ordered = True
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # it may have been stopped
            if not self.finished(_PATIENCE_SECONDS):
                self._killed = True
                self._signal(signal.SIGKILL)
        keeper_code = self._reaped()
        if self._field(b"gone") is None:
            kill_marked(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._how(keeper_code)

    def close(self) -> None:
        """Close the status; no more queries are possible."""
        os.close(self._status)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid and self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _reaped(self) -> int:
        """The exit code of the keeper, once it has ended; 0 where that is not known."""
        if self._code is None:
            try:
                code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) if self.pid else 0
            except ChildProcessError:  # the host ignores how its children end
                code = 0
            self._code = code
        return self._code

    def _wait_for(self, name: bytes) -> None:
        """Wait for a line of the status, or for its end."""
        while self._field(name) is None and not self._finished:
            ready(self._status, select.POLLIN, _POLL_SECONDS)
            with contextlib.suppress(BlockingIOError):
                self._read()

    def _read(self) -> None:
        data = os.read(self._status, 1 << 12)
        self._text += data
        # No data: the keeper was killed, and its worker with it, or there never was one.
        self._finished = not data or self._field(b"gone") is not None

    def _how(self, keeper_code: int) -> str:
        code = self._field(b"gone")
        if code:
            return describe_exit(int(code))
        if (why := self._field(b"refused")) is not None:
            return f"could not be started: {why.decode()}"
        if self._field(b"keeper") is None:
            return "ended before it had begun"
        if self._field(b"told") is not None:
            return "made to end from outside"
        # One that has only just been started does not take orders yet.
        obeyed = self._killed or self._ordered and keeper_code == -signal.SIGTERM
        if keeper_code and not obeyed:
            return f"its keeper was {describe_exit(keeper_code)}"
        return "killed by its host"

    def _field(self, name: bytes) -> bytes | None:
        """Read a line of the status; None if there is no such line yet."""
        for line in self._text.splitlines(keepends=True):
            if line.startswith(name) and line.endswith(b"\n"):
                return line[len(name) :].strip()
        return None


def describe_exit(code: int) -> str:
    """Describe the end of a process by its exit code (negative: the number of a signal)."""
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
