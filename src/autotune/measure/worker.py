"""The main loop of a worker process: ``python -m autotune.measure.worker``.

It keeps what it has built until it is asked to run it, or to build for another batch.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from autotune.backends import (
    Backend,
    BuildRequest,
    Executable,
    InvalidSchedule,
    bind_copies,
)
from autotune.backends.backend import Array
from autotune.isolation.channel import Message
from autotune.isolation.child import Connection, Handler, connect, describe, serve
from autotune.measure.backend_lookup import find_backend
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import time_call
from autotune.measure.validation import Expected, expectations, mismatch, read_arrays
from autotune.observers import ObserverSet
from autotune.records import Outcome
from autotune.sketches import Candidate
from autotune.targets import Target
from autotune.workloads import Workload

_MESSAGE_CHARACTERS = 2000

Announce = Callable[[], AbstractContextManager[None]]
Readings = dict[str, "float | None"]


class _Task:
    """What stays the same from candidate to candidate."""

    def __init__(self, message: Message, announce: Announce) -> None:
        self.workload = Workload.from_json(message["workload"])
        self.program: str | None = message["program"]
        self.target = Target.from_json(message["target"])
        self.threads: int = message["threads"]
        self.inputs: list[Array] = read_arrays(message["inputs"])
        self.expected: list[Expected] = expectations(
            self.workload, read_arrays(message["outputs"])
        )
        self.observers = ObserverSet(message["observers"], announce)

    def request(self, candidate: Message | None) -> BuildRequest:
        """The build request of a candidate in its JSON form; None is the untuned program."""
        read = None if candidate is None else Candidate.from_json(candidate, self.workload)
        return BuildRequest(self.workload, self.program, read, self.target, self.threads)


class Worker:
    """Does what one host asks for.

    Args:
        backend: Name or import string of the backend.
        connection: Where phases are announced.
    """

    def __init__(self, backend: str, connection: Connection) -> None:
        self._backend_name = backend
        self._connection = connection
        self._backend: Backend | None = None
        self._task: _Task | None = None
        self._batch: int | None = None
        self._built: dict[int, tuple[Executable, float, Readings]] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """What answers each kind of message."""
        return {
            "hello": self._hello,
            "task": self._set_task,
            "build": self._build,
            "run": self._run,
        }

    def _hello(self, _message: Message) -> Message:
        with self._connection.phase("start"):
            self._backend = find_backend(self._backend_name)
            self._backend.warm_up()
        return {
            "backend_version": self._backend.version,
            "compiler_version": self._backend.compiler_version(),
        }

    def _set_task(self, message: Message) -> Message:
        with self._connection.phase("task"):
            self._built.clear()
            self._task = _Task(message, lambda: self._connection.phase("observe"))
        return {}

    def _build(self, message: Message) -> Message:
        """Build a candidate and keep it under its handle; answers with an outcome on failure."""
        if self._backend is None or self._task is None:
            raise RuntimeError("asked to build before hello and task")
        if message["batch"] != self._batch:
            self._built.clear()
            self._batch = message["batch"]
        timings: dict[str, float] = {}
        observers = self._task.observers if message["observe"] else ObserverSet()
        try:
            with observers.build(), self._connection.phase("build", timings):
                request = self._task.request(message["candidate"])
                executable = self._backend.build(request)
        except InvalidSchedule as error:
            return _failure("invalid", str(error), timings)
        except Exception as error:  # a compiler may raise anything
            return _failure("build_error", describe(error), timings)
        self._built[message["handle"]] = executable, timings["build"], dict(observers.readings)
        return {"seconds": timings["build"], "warnings": observers.take_messages()}

    def _run(self, message: Message) -> Message:
        """Check and time what was built under a handle, then let go of it."""
        if self._task is None:
            raise RuntimeError("asked to run before task")
        executable, build_seconds, readings = self._built.pop(message["handle"])
        observers = self._task.observers if message["observe"] else ObserverSet()
        protocol = MeasureProtocol.from_json(message["protocol"])
        timings = {"build": build_seconds}
        try:
            with self._connection.phase("load", timings):
                call = bind_copies(executable, self._task.workload, self._task.inputs)
            with self._connection.phase("verify", timings):
                call.poison()
                begin = time.perf_counter()
                call.run()
                checked = time.perf_counter() - begin
                wrong = mismatch(self._task.expected, call.outputs())
            if wrong is not None:
                return _failure("wrong_result", wrong, timings)
            with self._connection.phase("run", timings):
                samples = time_call(call, protocol, message["incumbent"], checked)
            if observers.active:
                # Calls of their own: what observers cost is not in the samples.
                calls = observers.calls(statistics.median(samples))
                with observers.run(calls):
                    call.time(calls)
                readings |= observers.readings
        except InvalidSchedule as error:
            return _failure("invalid", str(error), timings)
        except Exception as error:  # a program may raise anything
            return _failure("crash", describe(error), timings)
        outcome = Outcome("ok", statistics.median(samples), samples, timings, readings=readings)
        return {"outcome": outcome.to_json(), "warnings": observers.take_messages()}


def _failure(status: str, message: str, timings: dict[str, float]) -> Message:
    outcome = Outcome(status, timings=timings, message=message[:_MESSAGE_CHARACTERS])
    return {"outcome": outcome.to_json()}


def main() -> None:
    """Run a worker; started by ``WorkerProcess`` only."""
    connection, options = connect("autotune.measure.worker", ["backend"])
    serve(connection, Worker(options["backend"], connection).handlers)


if __name__ == "__main__":
    main()
