"""The main loop of a worker process: ``python -m autotune.measure.worker``.

A worker serves one host. It answers each message with ``{"done": ...}`` or ``{"failed": message}``
and announces the phases in between with ``{"phase": name}``, so that the host knows which
deadline runs and what it was doing when it died.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from autotune.backends import Backend, BuildRequest, Executable, InvalidSchedule
from autotune.backends.backend import Array
from autotune.measure.backend_lookup import find_backend
from autotune.measure.channel import Decoder, Message, encode
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import time_call
from autotune.measure.validation import Expected, expectations, mismatch, read_arrays
from autotune.records import Outcome
from autotune.sketches import Candidate
from autotune.targets import Target
from autotune.workloads import Workload

_PR_SET_PDEATHSIG = 1
_MESSAGE_CHARACTERS = 2000


class _Task:
    """What stays the same from candidate to candidate."""

    def __init__(self, message: Message) -> None:
        self.workload = Workload.from_json(message["workload"])
        self.program: str | None = message["program"]
        self.target = Target.from_json(message["target"])
        self.threads: int = message["threads"]
        self.inputs: list[Array] = read_arrays(message["inputs"])
        self.expected: list[Expected] = expectations(
            self.workload, read_arrays(message["outputs"])
        )

    def request(self, candidate: Message | None) -> BuildRequest:
        """The build request of a candidate in its JSON form; None is the untuned program."""
        read = None if candidate is None else Candidate.from_json(candidate, self.workload)
        return BuildRequest(self.workload, self.program, read, self.target, self.threads)


class Worker:
    """Serves the messages of one host.

    Args:
        backend: Name or import string of the backend.
        receive: File descriptor to read messages from.
        send: File descriptor to write answers to.
    """

    def __init__(self, backend: str, receive: int, send: int) -> None:
        self._backend_name = backend
        self._receive = receive
        self._send = send
        self._backend: Backend | None = None
        self._task: _Task | None = None
        self._batch: int | None = None
        self._built: dict[int, tuple[Executable, float]] = {}

    def serve(self) -> None:
        """Answer messages until the host closes its end."""
        decoder = Decoder()
        while data := os.read(self._receive, 1 << 16):
            for message in decoder.feed(data):
                self._answer(self._handle(message))

    def _answer(self, message: Message) -> None:
        data = encode(message)
        while data:
            data = data[os.write(self._send, data) :]

    def _handle(self, message: Message) -> Message:
        operations = {
            "hello": self._hello,
            "task": self._set_task,
            "build": self._build,
            "run": self._run,
        }
        try:
            return {"done": operations[message["op"]](message)}
        except Exception as error:  # the host decides what a failure means
            return {"failed": _describe(error)}

    @contextlib.contextmanager
    def _phase(self, name: str, timings: dict[str, float] | None = None) -> Iterator[None]:
        self._answer({"phase": name})
        begin = time.perf_counter()
        try:
            yield
        finally:
            if timings is not None:
                timings[name] = time.perf_counter() - begin

    def _hello(self, message: Message) -> Message:
        with self._phase("start"):
            self._backend = find_backend(self._backend_name)
            self._backend.warm_up()
        return {
            "backend_version": self._backend.version,
            "compiler_version": self._backend.compiler_version(),
        }

    def _set_task(self, message: Message) -> Message:
        with self._phase("task"):
            self._built.clear()
            self._task = _Task(message)
        return {}

    def _build(self, message: Message) -> Message:
        """Build a candidate and keep it under its handle; answers with an outcome on failure."""
        if self._backend is None or self._task is None:
            raise RuntimeError("asked to build before hello and task")
        if message["batch"] != self._batch:
            self._built.clear()
            self._batch = message["batch"]
        timings: dict[str, float] = {}
        try:
            with self._phase("build", timings):
                request = self._task.request(message["candidate"])
                executable = self._backend.build(request)
        except InvalidSchedule as error:
            return _failure("invalid", str(error), timings)
        except Exception as error:  # a compiler may raise anything
            return _failure("build_error", _describe(error), timings)
        self._built[message["handle"]] = executable, timings["build"]
        return {"seconds": timings["build"]}

    def _run(self, message: Message) -> Message:
        """Check and time what was built under a handle, then let go of it."""
        if self._task is None:
            raise RuntimeError("asked to run before task")
        executable, build_seconds = self._built.pop(message["handle"])
        protocol = MeasureProtocol.from_json(message["protocol"])
        timings = {"build": build_seconds}
        try:
            with self._phase("load", timings):
                call = executable.bind(self._task.inputs)
            with self._phase("verify", timings):
                call.poison()
                begin = time.perf_counter()
                call.run()
                checked = time.perf_counter() - begin
                wrong = mismatch(self._task.expected, call.outputs())
            if wrong is not None:
                return _failure("wrong_result", wrong, timings)
            with self._phase("run", timings):
                samples = time_call(call, protocol, message["incumbent"], checked)
        except InvalidSchedule as error:
            return _failure("invalid", str(error), timings)
        except Exception as error:  # a program may raise anything
            return _failure("crash", _describe(error), timings)
        outcome = Outcome("ok", statistics.median(samples), samples, timings)
        return {"outcome": outcome.to_json()}


def _failure(status: str, message: str, timings: dict[str, float]) -> Message:
    outcome = Outcome(status, timings=timings, message=message[:_MESSAGE_CHARACTERS])
    return {"outcome": outcome.to_json()}


def _describe(error: Exception) -> str:
    text = str(error) or "(no message)"
    return f"{type(error).__name__}: {text}"[:_MESSAGE_CHARACTERS]


def _bind_to_parent(parent: int) -> None:
    """Die when the host dies, however it dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(0)


def _limit_memory(size: int) -> None:
    """Make a candidate that exhausts memory fail by itself, before anybody else suffers."""
    if size > 0:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or size < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a worker; started by ``WorkerProcess`` only."""
    parser = argparse.ArgumentParser(prog="python -m autotune.measure.worker")
    parser.add_argument("--backend", required=True)
    for name in ("--receive", "--send", "--parent", "--memory"):
        parser.add_argument(name, type=int, required=True)
    options: Any = parser.parse_args(arguments)
    _bind_to_parent(options.parent)
    _limit_memory(options.memory)
    for descriptor in (options.receive, options.send):
        os.set_inheritable(descriptor, False)
    Worker(options.backend, options.receive, options.send).serve()


if __name__ == "__main__":
    main()
    # Unloading compilers at interpreter exit is slow and may crash; nothing is left to save.
    os._exit(0)
