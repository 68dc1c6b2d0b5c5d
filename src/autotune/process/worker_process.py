"""The host's handle of one worker process."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from autotune.process.channel import Decoder, Message, NotAMessage, encode
from autotune.process.errors import WorkerStartFailed
from autotune.process.fork_server_process import fork_keeper, import_early, worker_environment
from autotune.process.private_folder import writing_temporary_files
from autotune.process.processes import describe_exit, is_exiting, kill_marked, ready

_LOG_BYTES = 1 << 20
_TAIL_BYTES = 2000
_SHOWN_CHARACTERS = 80
_SEND_SECONDS = 30.0
# That nothing takes which is ending, unless the kernel or its keeper is stuck.
_ENDING_SECONDS = 30.0
# How long a keeper may take to end what there is.
_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 1.0


class WorkerDied(Exception):
    """The worker is gone, or no longer makes sense; the message says how it ended."""


class WorkerProcess:
    """A worker in a session of its own, talked to over a pair of pipes.

    It dies with the thread that created it, by the kernel's doing. Its standard output and
    error go to a file without a name, of which the end is quoted when it dies.

    Args:
        module: The module whose ``main`` is run, which begins with ``child.connect``.
        options: Options for it, by name.
        threads: Threads that a program in the worker may use.
        environment: Further environment variables, such as a backend asks for.
        memory_bytes: Memory that it may allocate.
        folder: Where its temporary files go; made here and removed with the worker.
        imported: What it is going to import, as of :func:`fork_keeper`.

    Raises:
        WorkerStartFailed: the folder cannot be made, or no process be started.
    """

    def __init__(
        self,
        module: str,
        options: Mapping[str, str],
        threads: int,
        environment: Mapping[str, str],
        memory_bytes: int,
        folder: Path,
        imported: Sequence[str] = (),
    ) -> None:
        self._decoder = Decoder()
        self._rest: list[Message] = []
        self._closed = False
        self._folder = folder
        # Lines that the keeper has said; see :mod:`autotune.process.keeper`.
        self._text = b""
        self._is_finished = self._is_killed = self._ordered = False
        self._code: int | None = None
        with _starting(), ExitStack() as always, ExitStack() as on_failure:
            with writing_temporary_files():
                folder.mkdir()
            on_failure.callback(shutil.rmtree, folder, ignore_errors=True)
            # In memory: what a worker says last must not be lost to a full disk. Appending, so
            # that it can be cut short while the worker writes.
            self._log = os.memfd_create("worker-output")
            on_failure.callback(os.close, self._log)
            flags = fcntl.fcntl(self._log, fcntl.F_GETFL)
            fcntl.fcntl(self._log, fcntl.F_SETFL, flags | os.O_APPEND)
            their_receive, self._send_end = _pipe(always, on_failure, theirs=0)
            self._receive_end, their_send = _pipe(always, on_failure, theirs=1)
            self._status, their_status = _pipe(always, on_failure, theirs=1)
            arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
            arguments += ["--memory", str(memory_bytes)]
            variables = worker_environment(threads, environment, folder)
            given = (their_status, self._log, their_receive, their_send)
            fork_keeper(module, arguments, imported, variables, folder, given)
            on_failure.pop_all()

    @property
    def pid(self) -> int:
        """Process id, which is also that of its group and session.

        The keeper's, which goes the same way, until the worker has said anything.
        """
        self.finished()
        return int(self._field(b"worker") or self.keeper_pid)

    @property
    def keeper_pid(self) -> int:
        """Process id of the keeper, whose descendants are the worker and all that it starts.

        It is waited for; 0 if none could be forked.
        """
        self._wait_for(b"keeper")
        return int(self._field(b"keeper") or 0)

    @property
    def alive(self) -> bool:
        """True if the process runs."""
        return not self._closed and not self.finished()

    def finished(self, seconds: float = 0.0) -> bool:
        """Return whether worker and keeper are gone, or are so within ``seconds``."""
        end = time.monotonic() + seconds
        while not self._is_finished:
            if not ready(self._status, select.POLLIN, end - time.monotonic()):
                return False
            self._read()
        return True

    def fileno(self) -> int:
        """The descriptor that becomes readable when the worker has said something."""
        return self._receive_end

    def send(self, message: Message) -> None:
        """Send a message to a worker that waits for one.

        Raises:
            WorkerDied: it does not take the message.
        """
        self._check_open()
        data = memoryview(encode(message))
        end = time.monotonic() + _SEND_SECONDS
        while data:
            try:
                data = data[os.write(self._send_end, data) :]
            except BlockingIOError:
                if time.monotonic() > end:
                    raise WorkerDied("does not read its messages") from None
                ready(self._send_end, select.POLLOUT, 0.05)
            except OSError as error:  # its end of the pipe is closed
                raise WorkerDied(f"takes no message: {error}") from None

    def receive(self) -> list[Message]:
        """Messages that have arrived; does not wait.

        Raises:
            WorkerDied: nothing more will come. Messages that came before were returned.
        """
        self._check_open()
        # Asked first: what a dead process has written is all in the pipe by then.
        alive = self.alive
        messages: list[Message] = []
        try:
            # Damage behind messages that were returned shows now.
            messages = self._understood(self._decoder.feed(b""))
            while not messages:
                data = os.read(self._receive_end, 1 << 16)
                if not data:
                    alive = False
                    break
                messages = self._understood(self._decoder.feed(data))
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
        # A pipe closes just before its process has ended: how, is to be known.
        closed = ready(self._receive_end, select.POLLIN, 0)
        self.finished(_ENDING_SECONDS if closed and is_exiting(self.pid) else 0.0)
        how = self._end()
        self._closed = True
        last_words = self._tail()
        for descriptor in (self._send_end, self._receive_end, self._log, self._status):
            os.close(descriptor)
        return f"{how}\n{last_words}" if last_words else how

    def _end(self) -> str:
        """End the worker and everything it started, if that has not happened; says how it ended.

        May be repeated, also after an interrupt.
        """
        if not self.finished():
            self._ordered = True
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # it may have been stopped
            if not self.finished(_PATIENCE_SECONDS):
                self._is_killed = True
                self._signal(signal.SIGKILL)
        keeper_code = self._reaped()
        if self._field(b"gone") is None:
            kill_marked(self._folder)
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._how(keeper_code)

    def _signal(self, number: signal.Signals) -> None:
        if self.keeper_pid and self._code is None:
            with suppress(ProcessLookupError):
                os.kill(self.keeper_pid, number)

    def _reaped(self) -> int:
        """The exit code of the keeper, once it has ended; 0 where that is not known."""
        if self._code is None:
            status = 0
            # Not where the host ignores how its children end.
            with suppress(ChildProcessError):
                status = os.waitpid(self.keeper_pid, 0)[1] if self.keeper_pid else 0
            self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def _wait_for(self, name: bytes) -> None:
        """Wait for a line of the status, or for its end."""
        while self._field(name) is None and not self._is_finished:
            ready(self._status, select.POLLIN, _POLL_SECONDS)
            with suppress(BlockingIOError):
                self._read()

    def _read(self) -> None:
        data = os.read(self._status, 1 << 12)
        self._text += data
        # No data: the keeper was killed, and its worker with it, or there never was one.
        self._is_finished = not data or self._field(b"gone") is not None

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
        obeyed = self._is_killed or self._ordered and keeper_code == -signal.SIGTERM
        if keeper_code and not obeyed:
            return f"its keeper was {describe_exit(keeper_code)}"
        return "killed by its host"

    def _field(self, name: bytes) -> bytes | None:
        """Read a line of the status; None if there is no such line yet."""
        for line in self._text.splitlines(keepends=True):
            if line.startswith(name) and line.endswith(b"\n"):
                return line[len(name) :].strip()
        return None

    def _check_open(self) -> None:
        if self._closed:
            raise WorkerDied("has been ended")

    def _understood(self, messages: list[Message]) -> list[Message]:
        """The messages up to one that no worker sends; that is damage, see ``Decoder.feed``."""
        messages = [*self._rest, *messages]
        known = list(takewhile(_is_known, messages))
        self._rest = messages[len(known) :]
        if self._rest and not known:
            raise NotAMessage(str(self._rest[0])[:_SHOWN_CHARACTERS])
        return known

    def _bound_log(self) -> None:
        """Keep only the end of a log that has grown large."""
        if os.fstat(self._log).st_size > _LOG_BYTES:
            tail = self._tail()
            os.ftruncate(self._log, 0)
            os.write(self._log, tail.encode())

    def _tail(self) -> str:
        size = os.fstat(self._log).st_size
        data = os.pread(self._log, 4 * _TAIL_BYTES, max(0, size - 4 * _TAIL_BYTES))
        lines = data.decode(errors="replace").splitlines()
        # The fault handler ends with a long list unrelated to the fault.
        text = "\n".join(line for line in lines if not line.startswith("Extension modules:"))
        return _last_words(text.strip())


def _pipe(always: ExitStack, on_failure: ExitStack, *, theirs: int) -> tuple[int, int]:
    """A pipe one of whose ends is inherited and closed here; the other one never blocks."""
    ends = os.pipe()
    always.callback(os.close, ends[theirs])
    on_failure.callback(os.close, ends[1 - theirs])
    os.set_blocking(ends[1 - theirs], False)
    return ends


def _last_words(text: str) -> str:
    """The end of what a worker wrote, with the innermost calls of the fault handler's report.

    The report names the most recent call first, and paths can make it longer than what is kept.
    """
    words, sign, report = text.rpartition("Fatal Python error")
    if len(text) <= _TAIL_BYTES or not sign:
        return text[-_TAIL_BYTES:]
    kept = sign + report[: _TAIL_BYTES // 2]
    return words[len(kept) - _TAIL_BYTES :] + kept


def prepare_workers(*imported: str) -> None:
    """Begin to import what workers of this thread are going to need, and return at once.

    Args:
        imported: As of :class:`WorkerProcess`.
    """
    with suppress(OSError):  # who starts a worker hears of it
        import_early(imported, worker_environment(1, {}))


@contextmanager
def _starting() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # too many processes or open files, or too little memory
        raise WorkerStartFailed(f"cannot start a worker process: {error}") from error


def _is_known(message: Message) -> bool:
    """Return whether it is one of the kinds that :mod:`autotune.process.child` sends."""
    return (
        isinstance(message.get("phase"), str)
        or isinstance(message.get("done"), dict)
        or isinstance(message.get("failed"), str)
    )
