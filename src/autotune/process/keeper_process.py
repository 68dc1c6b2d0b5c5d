"""The host's handle of a keeper, which starts a worker and ends it with all that it started."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from autotune.process.processes import kill_marked, ready

__all__ = ["KeeperProcess", "describe_exit"]

_SCRIPT = str(Path(__file__).with_name("keeper.py"))
_PATIENCE_SECONDS = 5.0


class KeeperProcess:
    """Starts ``python -m module`` under a keeper; see :mod:`autotune.process.keeper`.

    It dies with the thread that created it, by the kernel's doing, and takes the worker along.

    Args:
        module: The worker's module.
        arguments: The worker's arguments.
        environment: The environment of both, whose ``TMPDIR`` is ``folder``.
        output: Descriptor for what they print.
        descriptors: What the worker inherits.
        folder: The worker's folder, which exists and is removed at the end.

    Raises:
        OSError: no process can be started.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
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
        self._status, theirs = os.pipe()
        with ExitStack() as always, ExitStack() as on_failure:
            always.callback(os.close, theirs)
            on_failure.callback(os.close, self._status)
            os.set_blocking(self._status, False)
            command = [sys.executable, _SCRIPT, str(theirs), str(os.getpid()), str(folder)]
            command += [",".join(map(str, descriptors)), module, *arguments]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(theirs, *descriptors),
                start_new_session=True,
            )
            on_failure.pop_all()

    @property
    def pid(self) -> int:
        """Process id of the keeper."""
        return self._process.pid

    @property
    def worker_pid(self) -> int:
        """Process id of the worker; the keeper's until the worker has said anything."""
        self.finished()
        return int(self._field(b"worker") or self._process.pid)

    def finished(self, seconds: float = 0.0) -> bool:
        """Return whether worker and keeper are gone, or are so within ``seconds``."""
        end = time.monotonic() + seconds
        while not self._finished:
            if not ready(self._status, select.POLLIN, end - time.monotonic()):
                return False
            data = os.read(self._status, 1 << 12)
            self._text += data
            # No data: the keeper was killed, and its worker with it.
            self._finished = not data or self._field(b"gone") is not None
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
        keeper_code = self._process.wait()
        if self._field(b"gone") is None:
            kill_marked(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._how(keeper_code)

    def close(self) -> None:
        """Close the status; no more queries are possible."""
        os.close(self._status)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _how(self, keeper_code: int) -> str:
        code = self._field(b"gone")
        if code:
            return describe_exit(int(code))
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
