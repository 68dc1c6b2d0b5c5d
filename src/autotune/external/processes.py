"""Commands and calls of functions, each in a process of its own.

Every process leads a session, so that it can be killed with all that it has started; whatever has
left its session is found by its environment, which names the folder of the candidate.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from autotune.process.child import describe
from autotune.process.processes import kill_marked, ready

__all__ = ["Call", "Ended", "Isolation", "saved_outputs"]

MOST_OUTPUT = 64 << 20
"""Bytes that a candidate may print."""
_POLL_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_MOST_READ = 1 << 20
_MOST_ARRAYS = 64


@frozen
class Call:
    """A run of a candidate.

    Attributes:
        wall: Seconds that it took.
        value: The number that a function returned; None where there is none.
    """

    wall: float
    value: float | None = None


@frozen
class Ended:
    """End of a process.

    Attributes:
        status: Its status; negative: the number of the signal that ended it; None: it was not
            started, and ``stderr`` says why.
        seconds: Wall time.
        ended: Why it was killed: ``timeout``, ``output``, ``late``, or "".
        stdout: What it printed, the beginning and the end where that is long.
        stderr: What it printed as errors.
        raised: What a call has raised, or "".
        calls: The calls that returned.
    """

    status: int | None
    seconds: float = 0.0
    ended: str = ""
    stdout: str = ""
    stderr: str = ""
    raised: str = ""
    calls: tuple[Call, ...] = ()


@frozen(eq=False)
class Isolation:
    """Bounds in which a candidate is run.

    Attributes:
        directory: Where it runs.
        environment: All variables of a command; of a function those beside this process's.
        folder: Its own, where what it prints goes, and the outputs of a function's first call.
        timeout: Seconds that a command, or a call, may take.
        is_late: Asked while it runs: whether to give it up.
    """

    directory: Path
    environment: Mapping[str, str]
    folder: Path
    timeout: float
    is_late: Callable[[], bool] = lambda: False

    def run(self, words: Sequence[str]) -> Ended:
        """Run a command to its end, or to the end of its time.

        Args:
            words: Command and arguments.
        """
        with contextlib.ExitStack() as stack:
            out, err = (stack.enter_context(path.open("wb")) for path in self._printed)
            begin = time.perf_counter()
            try:
                process = subprocess.Popen(
                    words,
                    cwd=self.directory,
                    env=self._variables,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                said = getattr(error, "strerror", None) or str(error)
                return Ended(None, stderr=f"cannot start {words[0]!r}: {said}")
        return self._end_of(process.pid, process.wait, begin)

    def call(
        self,
        function: Callable[..., Any],
        config: Mapping[str, Any],
        calls: int,
        skipped: int = 0,
        limit: float | None = None,
    ) -> Ended:
        """Call a function several times in one forked process.

        Args:
            function: The function.
            config: Its keyword arguments.
            calls: How many.
            skipped: Calls after which its result is looked at.
            limit: A result above it ends the calls; None for none.
        """
        # In memory, and without a name that the function could remove.
        told = os.memfd_create("calls")
        begin, parent = time.perf_counter(), os.getpid()
        with warnings.catch_warnings():
            # Of threads in this process, which the other does not have: it only calls.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                _die_with(parent)
                os.setsid()
                _redirect(self._printed)
                os.environ.update(self._variables)
                os.chdir(self.directory)
                self._serve_calls(function, config, told, calls, skipped, limit)
            finally:
                os._exit(0)

        def reap() -> int:
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

        try:
            ended = self._end_of(pid, reap, begin, lambda: os.fstat(told).st_size)
            text = os.pread(told, os.fstat(told).st_size, 0)
        finally:
            os.close(told)
        lines = [json.loads(line) for line in text.split(b"\n")[:-1]]
        raised = "".join(line["failed"] for line in lines if "failed" in line)
        done = tuple(Call(**line) for line in lines if "wall" in line)
        return evolve(ended, raised=raised, calls=done)

    @property
    def _printed(self) -> list[Path]:
        return [self.folder / "stdout", self.folder / "stderr"]

    @property
    def _variables(self) -> dict[str, str]:
        """Variables, with those by which it finds what it was built to, and is found itself."""
        folder = str(self.folder)
        return {**self.environment, "TMPDIR": folder, "AUTOTUNE_WORKDIR": folder}

    def _end_of(
        self,
        pid: int,
        reap: Callable[[], int],
        begin: float,
        told: Callable[[], int] = lambda: 0,
    ) -> Ended:
        """Wait for a child, and end what is left; its time begins again when it tells more."""
        ended = "late"
        try:
            ended = self._await_end(pid, told)
            seconds = time.perf_counter() - begin
        finally:
            # Before it is reaped: its number is still its own.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(pid, signal.SIGKILL)
            kill_marked(self.folder)
            status = reap()
        stdout, stderr = map(_read, self._printed)
        return Ended(status, seconds, ended, stdout, stderr)

    def _await_end(self, pid: int, told: Callable[[], int]) -> str:
        """Wait until a child has ended, which is left to be reaped; returns why not, or ""."""
        descriptor = os.pidfd_open(pid)
        known, end = told(), time.perf_counter() + self.timeout
        try:
            while not ready(
                descriptor, select.POLLIN, min(_POLL_SECONDS, end - time.perf_counter())
            ):
                if (now := told()) != known:
                    known, end = now, time.perf_counter() + self.timeout
                if time.perf_counter() >= end:
                    return "timeout"
                if sum(it.stat().st_size for it in self._printed if it.exists()) > MOST_OUTPUT:
                    return "output"
                if self.is_late():
                    return "late"
            return ""
        finally:
            os.close(descriptor)

    def _serve_calls(
        self,
        function: Callable[..., Any],
        config: Mapping[str, Any],
        told: int,
        calls: int,
        skipped: int,
        limit: float | None,
    ) -> None:
        """In the forked process: call, and tell each result in a line of JSON."""

        def tell(message: dict[str, Any]) -> None:
            os.write(told, json.dumps(message).encode() + b"\n")

        try:
            for number in range(calls):
                begin = time.perf_counter()
                returned = function(**config)
                wall = time.perf_counter() - begin
                value, outputs = _taken_apart(returned)
                if number == 0:
                    for place, array in enumerate(outputs):
                        path = self.folder / f"result-{place}.npy"
                        np.save(path, array, allow_pickle=False)
                tell({"wall": wall, "value": value})
                result = wall if value is None else value
                if number >= skipped and limit is not None and result > limit:
                    return
        except BaseException as error:  # whatever it raises is its outcome
            tell({"failed": describe(error)})


def saved_outputs(folder: str | Path) -> list[Path]:
    """Files with the outputs of a function's first call, in order."""
    found = [Path(folder, f"result-{number}.npy") for number in range(_MOST_ARRAYS)]
    return [path for path in found if path.exists()]


def _read(path: Path) -> str:
    """The beginning of a file, and its end where it is long."""
    with path.open("rb") as file:
        head = file.read(_MOST_READ)
        size = file.seek(0, os.SEEK_END)
        if size > 2 * _MOST_READ:
            file.seek(-_MOST_READ, os.SEEK_END)
        else:
            file.seek(len(head))
        return (head + file.read()).decode("utf-8", "replace")


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, whatever ends that."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _redirect(paths: Sequence[Path]) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    for number, path in enumerate(paths, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    if faulthandler.is_enabled():
        faulthandler.enable(2)
    # Other threads may have held the locks of those that there were, and do so for ever here.
    sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, "w", closefd=False), write_through=True)
        for number in (1, 2)
    )


def _taken_apart(returned: object) -> tuple[float | None, list[np.ndarray[Any, Any]]]:
    """The number that a function has returned, or None, and its outputs.

    Raises:
        TypeError: it has returned something else.
    """
    outputs: object = ()
    if isinstance(returned, tuple):
        if len(returned) != 2:
            raise TypeError(f"returned {len(returned)} values; seconds, or seconds and outputs")
        returned, outputs = returned
    if returned is not None and (
        isinstance(returned, bool) or not isinstance(returned, (int, float, np.number))
    ):
        raise TypeError(f"returned {returned!r:.80}, which is no number")
    if isinstance(outputs, Mapping):
        outputs = [outputs[name] for name in sorted(outputs)]
    if isinstance(outputs, np.ndarray) or not isinstance(outputs, (list, tuple)):
        outputs = [outputs]
    arrays = [np.asarray(output) for output in outputs]
    if len(arrays) > _MOST_ARRAYS or any(it.dtype.kind not in "biufc" for it in arrays):
        raise TypeError(f"returned outputs that are not up to {_MOST_ARRAYS} arrays of numbers")
    return None if returned is None else float(returned), arrays
