"""The host's handle of one worker process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from autotune.isolation.channel import Decoder, Message, NotAMessage, encode
from autotune.isolation.processes import kill_session

_LOG_BYTES = 1 << 20
_TAIL_BYTES = 2000
_SEND_SECONDS = 30.0

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class WorkerDied(Exception):
    """The worker is gone, or no longer makes sense; the message says how it ended."""


class WorkerProcess:
    """A worker in a session of its own, talked to over a pair of pipes.

    It dies with the thread that created it, by the kernel's doing. Its standard output and
    error go to a file without a name, of which the end is quoted when it dies.

    Args:
        module: The module to run, whose ``main`` begins with ``child.connect``.
        options: Options for it, by name.
        threads: Threads that a program in the worker may use.
        environment: Further environment variables, such as a backend asks for.
        memory_bytes: Memory that it may allocate.
        folder: Where its temporary files go; made here and removed with the worker.
    """

    def __init__(
        self,
        module: str,
        options: Mapping[str, str],
        threads: int,
        environment: Mapping[str, str],
        memory_bytes: int,
        folder: Path,
    ) -> None:
        self._decoder = Decoder()
        self._folder = folder
        self._closed = False
        folder.mkdir()
        self._log: IO[bytes] = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        # Appending, so that the file can be cut short while the worker writes to it.
        flags = fcntl.fcntl(self._log, fcntl.F_GETFL)
        fcntl.fcntl(self._log, fcntl.F_SETFL, flags | os.O_APPEND)
        their_receive, self._send_end = os.pipe()
        self._receive_end, their_send = os.pipe()
        command = [sys.executable, "-m", module]
        command += [part for name, value in options.items() for part in (f"--{name}", value)]
        command += ["--receive", str(their_receive), "--send", str(their_send)]
        command += ["--parent", str(os.getpid()), "--memory", str(memory_bytes)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=worker_environment(threads, environment, folder),
                pass_fds=(their_receive, their_send),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._send_end)
            os.close(self._receive_end)
            self._log.close()
            raise
        finally:
            os.close(their_receive)
            os.close(their_send)
        os.set_blocking(self._send_end, False)
        os.set_blocking(self._receive_end, False)

    @property
    def pid(self) -> int:
        """Process id, which is also that of its group and session."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs. It is not reaped here, so that its id stays its own."""
        return not self._closed and not self._has_ended()

    def fileno(self) -> int:
        """The descriptor that becomes readable when the worker has said something."""
        return self._receive_end

    def send(self, message: Message) -> None:
        """Send a message to a worker that waits for one.

        Raises:
            WorkerDied: it does not take the message.
        """
        data = memoryview(encode(message))
        end = time.monotonic() + _SEND_SECONDS
        while data:
            try:
                data = data[os.write(self._send_end, data) :]
            except BlockingIOError:
                if time.monotonic() > end:
                    raise WorkerDied("does not read its messages") from None
                select.select([], [self._send_end], [], 0.05)
            except OSError as error:  # its end of the pipe is closed
                raise WorkerDied(f"takes no message: {error}") from None

    def receive(self) -> list[Message]:
        """Messages that have arrived; does not wait.

        Raises:
            WorkerDied: nothing more will come. Messages that came before were returned.
        """
        # Asked first: what a dead process has written is all in the pipe by then.
        alive = self.alive
        try:
            # Damage behind messages that were returned shows now.
            messages = self._decoder.feed(b"")
            while not messages:
                data = os.read(self._receive_end, 1 << 16)
                if not data:
                    alive = False
                    break
                messages = self._decoder.feed(data)
        except BlockingIOError:
            pass
        except NotAMessage as error:
            self.end()
            raise WorkerDied(f"sent something that is not a message: {error}") from None
        if not alive and not messages:
            raise WorkerDied(self.end())
        self._bound_log()
        return messages

    def end(self) -> str:
        """Kill the worker with everything it started; returns how it ended and its last words.

        Calling it again does nothing and returns "".
        """
        if self._closed:
            return ""
        # Every line up to the flag may be repeated: an interrupt can come between any two.
        ended_by_itself = self._wait_briefly()
        if self._process.returncode is None:
            kill_session(self._process.pid)
        code = self._process.wait()
        self._closed = True
        last_words = self._tail()
        for descriptor in (self._send_end, self._receive_end):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        how = _describe_exit(code) if ended_by_itself else "killed by its host"
        return f"{how}\n{last_words}" if last_words else how

    def _wait_briefly(self) -> bool:
        """Whether the process has ended, once a closed pipe had time to become an exit code."""
        closed = bool(select.select([self._receive_end], [], [], 0)[0])
        for _ in range(50 if closed else 1):
            if self._has_ended():
                return True
            time.sleep(0.001)
        return False

    def _has_ended(self) -> bool:
        if self._process.returncode is not None:
            return True
        try:
            options = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:  # somebody else in the host has reaped it
            return True

    def _bound_log(self) -> None:
        """Keep only the end of a log that has grown large."""
        descriptor = self._log.fileno()
        if os.fstat(descriptor).st_size > _LOG_BYTES:
            tail = self._tail()
            os.ftruncate(descriptor, 0)
            os.write(descriptor, tail.encode())

    def _tail(self) -> str:
        descriptor = self._log.fileno()
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, 4 * _TAIL_BYTES, max(0, size - 4 * _TAIL_BYTES))
        lines = data.decode(errors="replace").splitlines()
        # The fault handler ends with a long list that says nothing about the fault.
        text = "\n".join(line for line in lines if not line.startswith("Extension modules:"))
        return text.strip()[-_TAIL_BYTES:]


def worker_environment(
    threads: int, additions: Mapping[str, str], folder: Path | None = None
) -> dict[str, str]:
    """The environment of a worker: the host's, thread caps, then ``additions``.

    The host's import path is passed on, so that a worker finds what the host found.
    """
    environment = dict(os.environ)
    environment.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    environment["PYTHONFAULTHANDLER"] = "1"
    if folder is not None:
        environment["TMPDIR"] = str(folder)
    environment.update(additions)
    return environment


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
