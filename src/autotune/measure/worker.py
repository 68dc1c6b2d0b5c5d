"""The main loop of a measuring process: ``python -m autotune.measure.worker``.

It holds what it has built under numbers, until a message releases it. All its programs run on
the same arrays, one after the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from attrs import define, field

from autotune.backends import (
    Backend,
    BoundCall,
    BuildFailed,
    BuildRequest,
    Executable,
    InvalidSchedule,
)
from autotune.backends.backend import Array
from autotune.ir.workloads import Workload
from autotune.measure.arena import Arena
from autotune.measure.cold import CacheFlusher
from autotune.measure.observers import ObserverSet
from autotune.measure.pinning import pinned
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import CheckedCall, Timed, time_call
from autotune.measure.validation import expectations, mismatch, read_arrays
from autotune.plugins.parts import create_part
from autotune.process.channel import Message
from autotune.process.child import Connection, Handler, connect, describe, serve
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target

Announce = Callable[[], AbstractContextManager[None]]

# A call this long is not repeated to make it warm.
_LONG_SECONDS = 0.02
_DIGEST_CHARACTERS = 200


class _Task:
    """State shared by all candidates."""

    def __init__(self, message: Message, announce: Announce) -> None:
        self.workload = Workload.from_json(message["workload"])
        self.program: str | None = message["program"]
        self.target = Target.from_json(message["target"])
        self.threads: int = message["threads"]
        self.cpus: Sequence[int] = message["cpus"]
        self.protocol = MeasureProtocol.from_json(message["protocol"])
        inputs = read_arrays(message["inputs"])
        references = read_arrays(message["outputs"])
        self.expected = expectations(self.workload, references)
        self.flusher = CacheFlusher(self.cpus) if self.protocol.cold else None
        self.arena = Arena(
            self.workload, inputs, placements=self.protocol.placements, seed=message["seed"]
        )
        self._placement: int | None = None
        self._arrays: tuple[list[Array], list[Array]] = ([], [])
        with announce() if message["observers"] else nullcontext():
            self.observers = ObserverSet(message["observers"], announce)

    def arrays(self, placement: int, *, fresh: bool = False) -> tuple[list[Array], list[Array]]:
        """Inputs and outputs at a placement, which is then the one in use.

        Args:
            placement: Which one.
            fresh: Whether they may have been written to.
        """
        if fresh or placement != self._placement:
            self._arrays = self.arena.place(placement)
            self._placement = placement
        return self._arrays

    def request(self, candidate: Message | None) -> BuildRequest:
        """The build request of a candidate in its JSON form; None is the untuned program."""
        read = None if candidate is None else Candidate.from_json(candidate, self.workload)
        return BuildRequest(self.workload, self.program, read, self.target, self.threads)


@define
class _Held:
    """A program in memory, bound to the arrays at each place that it has run at."""

    executable: Executable
    timings: dict[str, float]
    calls: dict[int, BoundCall] = field(factory=dict)
    number: int = 1


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
        self._held: dict[int, _Held] = {}
        self._pin_problem: str | None = None
        self._known: set[str] = set()

    @property
    def handlers(self) -> dict[str, Handler]:
        """What answers each kind of message."""
        return {
            "hello": self._hello,
            "task": self._set_task,
            "known": self._add_known,
            "build": self._build,
            "run": self._run,
            "sample": self._sample,
            "forget": self._forget,
        }

    def _hello(self, _message: Message) -> Message:
        with self._connection.phase("start"):
            self._backend = create_part("backend", self._backend_name)
            self._backend.warm_up()
        return {
            "backend_version": self._backend.version,
            "compiler_version": self._backend.compiler_version(),
        }

    def _set_task(self, message: Message) -> Message:
        with self._connection.phase("task"):
            self._held.clear()
            self._known.clear()
            self._task = _Task(message, lambda: self._connection.phase("observe"))
        return {}

    def _add_known(self, message: Message) -> Message:
        """Remember programs that have been measured: they are not compiled again."""
        self._known.update(message["programs"])
        return {}

    def _forget(self, message: Message) -> Message:
        for number in message["numbers"]:
            self._held.pop(number, None)
        return {}

    def _build(self, message: Message) -> Message:
        """Build a candidate and hold it; answers with an outcome on failure.

        A program that is known already is named as ``duplicate`` and not compiled, unless that
        is asked for.
        """
        backend, task = self._ready()
        began = time.monotonic()
        timings: dict[str, float] = {}
        observers = task.observers if message["observe"] else ObserverSet()
        try:
            with observers.build(), self._connection.phase("build", timings):
                lowered = backend.lower(task.request(message["candidate"]))
                _check_digest("lowered program", lowered.digest)
                if lowered.digest in self._known and not message["always"]:
                    return {"duplicate": lowered.digest}
                executable = backend.compile(lowered)
                binary = executable.digest
                _check_digest("executable", binary)
        except InvalidSchedule as error:
            return _failure("invalid", str(error), timings)
        except Exception as error:  # a compiler may raise anything
            return _failure("build_error", describe(error), timings)
        if lowered.digest:
            self._known.add(lowered.digest)
        self._held[message["number"]] = _Held(executable, timings)
        return {
            "lowered": lowered.digest,
            "binary": binary,
            "timings": timings,
            "span": [began, time.monotonic()],
            "readings": dict(observers.readings),
            "warnings": observers.take_messages(),
        }

    def _run(self, message: Message) -> Message:
        """Check a held program and take its first samples; answers with an outcome."""
        backend, task = self._ready()
        held = self._held[message["number"]]
        timings = held.timings
        observers = task.observers if message["observe"] else ObserverSet()
        readings: dict[str, float | None] = {}
        try:
            with self._connection.phase("load", timings):
                # A program that failed before may have written to them unnoticed.
                task.arrays(0, fresh=True)
                call = self._call(held, 0)
            with self._connection.phase("verify", timings):
                call.poison()
                begin = time.perf_counter()
                call.run()
                checked = time.perf_counter() - begin
                wrong = self._wrong(call)
            if wrong is None:
                with self._connection.phase("run", timings):
                    samples = self._first_samples(held, message["incumbent"], checked)
                    wrong = self._wrong(call)
            if wrong is not None:
                return _failure("wrong_result", wrong, timings)
            if observers.active:
                # Calls of their own: what observers cost is not in the samples.
                calls = observers.calls(statistics.median(samples))
                with observers.run(calls):
                    call.time(calls)
                readings = dict(observers.readings)
        except InvalidSchedule as error:
            return _failure("invalid", str(error), timings)
        except Exception as error:  # a program may raise anything
            return _failure("crash", describe(error), timings)
        finally:
            backend.park()
        return {
            "samples": samples,
            "calls": held.number,
            "timings": timings,
            "readings": readings,
            "warnings": [*observers.take_messages(), *filter(None, [self._pin_problem])],
        }

    def _first_samples(
        self, held: _Held, incumbent: float | None, checked: float
    ) -> tuple[float, ...]:
        _, task = self._ready()
        timed = _Remembering(self._timed(held, 0))
        with self._pinned() as problem:
            samples = time_call(timed, task.protocol, incumbent, checked)
        self._pin_problem = problem
        held.number = timed.number
        return samples

    def _sample(self, message: Message) -> Message:
        """Time a held program, at one of its places in memory, a number of times."""
        backend, task = self._ready()
        held = self._held[message["number"]]
        try:
            placement = message["placement"] % task.arena.placements
            with self._connection.phase("load"):
                self._call(held, placement)
            with self._connection.phase("run"), self._pinned():
                timed = self._timed(held, placement)
                if task.flusher is None and message["expected"] < _LONG_SECONDS:
                    timed.time(1)
                samples = [timed.time(held.number) for _ in range(message["count"])]
        except Exception as error:  # a program may raise anything
            return _failure("crash", describe(error), {})
        finally:
            backend.park()
        return {"samples": samples, "calls": held.number}

    def _call(self, held: _Held, placement: int) -> BoundCall:
        _, task = self._ready()
        inputs, outputs = task.arrays(placement)
        if placement not in held.calls:
            held.calls[placement] = held.executable.bind(inputs, outputs)
        return held.calls[placement]

    def _timed(self, held: _Held, placement: int) -> Timed:
        _, task = self._ready()
        call = CheckedCall(held.calls[placement])
        if task.flusher is None:
            return call
        inputs, outputs = task.arrays(placement)
        return _Cold(call, task.flusher, [*inputs, *outputs])

    def _wrong(self, call: BoundCall) -> str | None:
        """What a program that has run did wrong; puts right what it has written to."""
        _, task = self._ready()
        wrong = mismatch(task.expected, call.outputs())
        changed = task.arena.changed(0)
        if changed is not None:
            task.arrays(0, fresh=True)
        return wrong or changed

    def _pinned(self) -> AbstractContextManager[str | None]:
        _, task = self._ready()
        return pinned(task.cpus) if task.protocol.pin else nullcontext()

    def _ready(self) -> tuple[Backend, _Task]:
        if self._backend is None or self._task is None:
            raise RuntimeError("a job came before hello and task")
        return self._backend, self._task


class _Cold:
    """A call every repetition of which finds caches without its data."""

    def __init__(self, call: Timed, flusher: CacheFlusher, arrays: Sequence[Array]) -> None:
        self._call = call
        self._flusher = flusher
        self._arrays = arrays

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls, what lies between them not counted."""
        seconds = 0.0
        for _ in range(number):
            self._flusher.flush(self._arrays)
            seconds += self._call.time(1)
        return seconds / number


class _Remembering:
    """A call that remembers how often it was repeated the last time."""

    def __init__(self, call: Timed) -> None:
        self._call = call
        self.number = 1

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls."""
        self.number = number
        return self._call.time(number)


def _check_digest(what: str, digest: object) -> None:
    """Raise ``BuildFailed`` for a digest that no record can hold."""
    is_text = (
        isinstance(digest, str) and digest.isprintable() and len(digest) <= _DIGEST_CHARACTERS
    )
    if not is_text:
        shown = repr(digest)[:80]
        raise BuildFailed(
            f"the digest of the {what} is {shown}; a digest is printable text of at most "
            f"{_DIGEST_CHARACTERS} characters"
        )


def _failure(status: str, message: str, timings: dict[str, float]) -> Message:
    return {"outcome": Outcome(status, timings=timings, message=message).to_json()}


def main() -> None:
    """Run a worker; started by ``WorkerProcess`` only."""
    connection, options = connect("autotune.measure.worker", ["backend"])
    serve(connection, Worker(options["backend"], connection).handlers)


if __name__ == "__main__":
    main()
