"""The main loop of a measuring process.

It serves several tasks. What it has built for one is held under numbers until a message releases
it. Programs of a task run on the same arrays, one after the other; only one task has arrays in
memory at a time, that whose programs are being timed, and the next one gets memory of its own.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from attrs import define, field

from autotune.backends import (
    Backend,
    BoundCall,
    BuildFailed,
    BuildRequest,
    CudaExecutable,
    Executable,
    InvalidSchedule,
)
from autotune.backends.backend import Array
from autotune.ir.workloads import Workload
from autotune.measure.arena import Arena
from autotune.measure.cold import CacheFlusher
from autotune.measure.engines.artefacts import ArtefactStore, DamagedArtefact
from autotune.measure.engines.reference_program import reference_seconds
from autotune.measure.observers import ObserverSet
from autotune.measure.pinning import pinned, timing_cpus
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import (
    LONG_SECONDS,
    CheckedCall,
    FirstCall,
    RememberingCall,
    Timed,
    time_call,
)
from autotune.measure.validation import Expected, expectations, mismatch, read_arrays
from autotune.plugins.parts import create_part
from autotune.process.channel import Message
from autotune.process.child import Connection, Handler, connect, describe, serve
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target

_DIGEST_CHARACTERS = 200


@define
class _Held:
    """A program in memory, bound to the arrays at each place that it has run at."""

    executable: Executable
    timings: dict[str, float]
    calls: dict[int, BoundCall] = field(factory=dict)
    number: int = 1


class _Task:
    """State that candidates of a task share: the program, and the arrays while it is being timed.

    Attributes:
        held: Programs in memory, by the numbers of their trials.
        known: Digests of programs that have been measured.
    """

    def __init__(self, message: Message, store: ArtefactStore | None = None) -> None:
        self.workload = Workload.from_json(message["workload"])
        self.program: str | None = message["program"]
        self.target = Target.from_json(message["target"])
        self.threads: int = message["threads"]
        self.quick: bool = message["quick"]
        # A host that is another machine leaves the choice to this one.
        self.cpus: Sequence[int] = message["cpus"] or timing_cpus(self.threads)[0]
        self.protocol = MeasureProtocol.from_json(message["protocol"])
        self.held: dict[int, _Held] = {}
        self.known: set[str] = set()
        self._files: tuple[Sequence[str], Sequence[str]] = (message["inputs"], message["outputs"])
        self._store = store if message.get("stored") else None
        self._seed: int = message["seed"]
        self._data: _Data | None = None

    @property
    def is_loaded(self) -> bool:
        """True if its arrays are in memory."""
        return self._data is not None

    @property
    def data(self) -> _Data:
        """Its arrays; :meth:`load` them first."""
        if self._data is None:
            raise RuntimeError("the arrays of a task are not loaded")
        return self._data

    def load(self) -> None:
        """Read inputs and expected outputs, and lay memory out for them."""
        inputs, outputs = map(self._read, self._files)
        self._data = _Data(
            expectations(self.workload, outputs, self.target),
            Arena(self.workload, inputs, placements=self.protocol.placements, seed=self._seed),
            CacheFlusher(self.cpus) if self.protocol.cold else None,
        )

    def _read(self, names: Sequence[str]) -> list[Array]:
        if self._store is None:
            return read_arrays(names)
        return read_arrays([str(self._store.path(name)) for name in names])

    def unload(self) -> None:
        """Free the arrays; programs stay in memory, bound to nothing."""
        self._data = None
        for held in self.held.values():
            held.calls.clear()

    def request(self, candidate: Message | None) -> BuildRequest:
        """The build request of a candidate in its JSON form; None is the untuned program."""
        read = None if candidate is None else Candidate.from_json(candidate, self.workload)
        return BuildRequest(
            self.workload, self.program, read, self.target, self.threads, self.quick
        )


@define
class _Data:
    """The arrays that programs of a task run on.

    Attributes:
        expected: The outputs of a correct program.
        arena: Memory for inputs and outputs.
        flusher: Empties caches, where they are to be cold.
    """

    expected: Sequence[Expected]
    arena: Arena
    flusher: CacheFlusher | None
    _placement: int | None = None
    _arrays: tuple[list[Array], list[Array]] = ([], [])

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
        self._tasks: dict[str, _Task] = {}
        self._observers: ObserverSet | None = None
        self._pin_problem: str | None = None
        self._store: ArtefactStore | None = None

    @property
    def backend(self) -> Backend | None:
        """Backend that builds and loads programs; None before ``hello``."""
        return self._backend

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers of each kind of message."""
        return {
            "hello": self._hello,
            "task": self._set_task,
            "release": self._release,
            "known": self._add_known,
            "build": self._build,
            "run": self._run,
            "sample": self._sample,
            "forget": self._forget,
            "speed": self._speed,
        }

    def _hello(self, message: Message) -> Message:
        """Get ready; ``artefacts`` is the folder of programs that travel between processes."""
        if message.get("artefacts"):
            self._store = ArtefactStore(Path(message["artefacts"]))
        with self._connection.phase("start"):
            self._backend = create_part("backend", self._backend_name)
            if not message.get("only_times"):
                self._backend.warm_up()
        return {
            "backend_version": self._backend.version,
            "compiler_version": self._backend.compiler_version(),
        }

    def _set_task(self, message: Message) -> Message:
        with self._connection.phase("task"):
            self._release(message)
            self._tasks[message["task"]] = _Task(message, self._store)
            if self._observers is None and message["observers"]:
                with self._observing():
                    self._observers = ObserverSet(message["observers"], self._observing)
        return {}

    def _release(self, message: Message) -> Message:
        """Forget a task with everything that was made for it."""
        self._tasks.pop(message["task"], None)
        return {}

    def _add_known(self, message: Message) -> Message:
        """Remember programs that have been measured: they are not compiled again."""
        self._tasks[message["task"]].known.update(message["programs"])
        return {}

    def _forget(self, message: Message) -> Message:
        _, task = self._ready(message)
        for number in message["numbers"]:
            task.held.pop(number, None)
        return {}

    def _speed(self, _message: Message) -> Message:
        """Time the reference program, which tells how fast this machine is now."""
        with self._connection.phase("run"):
            return {"seconds": reference_seconds()}

    def _observing(self) -> AbstractContextManager[None]:
        return self._connection.phase("observe")

    def _observers_of(self, message: Message) -> ObserverSet:
        return self._observers if message["observe"] and self._observers else ObserverSet()

    def _build(self, message: Message) -> Message:
        """Build a candidate and hold it; answers with an outcome on failure.

        With ``export`` it is written to the store of artefacts instead, for another process.
        A program that is known already is named as ``duplicate`` and not compiled, unless that
        is asked for.
        """
        backend, task = self._ready(message)
        began = time.monotonic()
        timings: dict[str, float] = {}
        observers = self._observers_of(message)
        try:
            with observers.build(), self._connection.phase("build", timings):
                lowered = backend.lower(task.request(message["candidate"]))
                _check_digest("lowered program", lowered.digest)
                if lowered.digest in task.known and not message["always"]:
                    return {"duplicate": lowered.digest}
                executable = backend.compile(lowered)
                binary = executable.digest
                _check_digest("executable", binary)
                artefact = self._exported(executable) if message.get("export") else None
        except InvalidSchedule as error:
            return _failure("invalid", str(error), timings)
        except Exception as error:  # a compiler may raise anything
            return _failure("build_error", describe(error), timings)
        if lowered.digest:
            task.known.add(lowered.digest)
        exported: Message = {} if artefact is None else {"artefact": artefact}
        if isinstance(executable, CudaExecutable):
            exported = {"device_program": executable.program.to_json()}
        elif artefact is None:
            task.held[message["number"]] = _Held(executable, timings)
        return {
            **exported,
            "lowered": lowered.digest,
            "binary": binary,
            "timings": timings,
            "span": [began, time.monotonic()],
            "readings": dict(observers.readings),
            "warnings": observers.take_messages(),
        }

    def _run(self, message: Message) -> Message:
        """Check a held program and take its first samples; answers with an outcome.

        One of another process is named by ``artefact``, and loaded first.
        """
        backend, task = self._ready(message)
        observers = self._observers_of(message)
        readings: dict[str, float | None] = {}
        known = task.held.get(message["number"])
        timings = dict(message.get("timings", {})) if known is None else known.timings
        try:
            self._load(task)
            with self._connection.phase("load", timings):
                held = self._held(backend, task, message, timings)
                # A program that failed before may have written to them unnoticed.
                task.data.arrays(0, fresh=True)
                call = _call(task, held, 0)
            with self._connection.phase("verify", timings):
                call.poison()
                checked = _first_call(call, task.threads)
                wrong = _wrong(task, call)
            if wrong is None:
                with self._connection.phase("run", timings):
                    # What passed meanwhile is no time that a program claims to take.
                    first = None if backend.simulated_times else checked
                    samples = self._first_samples(task, held, message["incumbent"], first)
                    wrong = _wrong(task, call)
            if wrong is not None:
                return _failure("wrong_result", wrong, timings)
            if observers.active:
                # Calls of their own: what observers cost is not in the samples.
                calls = observers.calls(statistics.median(samples))
                with observers.run(calls):
                    call.time(calls)
                readings = dict(observers.readings)
        except DamagedArtefact:
            # Not the candidate's doing: the host is to have it sent, or built, again.
            raise
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

    def _held(
        self, backend: Backend, task: _Task, message: Message, timings: dict[str, float]
    ) -> _Held:
        """The program of a message, which is loaded if another process has built it."""
        number, artefact = message["number"], message.get("artefact")
        if artefact is not None and number not in task.held:
            path = self._stored.path(artefact)
            executable = backend.load_program(task.request(message["candidate"]), path)
            task.held[number] = _Held(executable, timings)
        return task.held[number]

    def _exported(self, executable: Executable) -> str:
        """Write a program to the store; returns its digest."""
        store = self._stored
        descriptor, name = tempfile.mkstemp(prefix="new-", dir=store.folder)
        os.close(descriptor)
        path = Path(name)
        try:
            executable.export(path)
            return store.add_file(path)
        finally:
            path.unlink(missing_ok=True)

    @property
    def _stored(self) -> ArtefactStore:
        if self._store is None:
            raise RuntimeError("a job with an artefact came, and hello named no store")
        return self._store

    def _first_samples(
        self, task: _Task, held: _Held, incumbent: float | None, first: FirstCall | None
    ) -> tuple[float, ...]:
        timed = RememberingCall(_timed(task, held, 0))
        with _pinned(task) as problem:
            samples = time_call(timed, task.protocol, incumbent, first)
        self._pin_problem = problem
        held.number = timed.number
        return samples

    def _sample(self, message: Message) -> Message:
        """Time a held program, at one of its places in memory, a number of times."""
        backend, task = self._ready(message)
        held = task.held[message["number"]]
        try:
            self._load(task)
            placement = message["placement"] % task.data.arena.placements
            with self._connection.phase("load"):
                _call(task, held, placement)
            with self._connection.phase("run"), _pinned(task):
                timed = _timed(task, held, placement)
                if task.data.flusher is None and message["expected"] < LONG_SECONDS:
                    timed.time(1)
                samples = [timed.time(held.number) for _ in range(message["count"])]
        except Exception as error:  # a program may raise anything
            return _failure("crash", describe(error), {})
        finally:
            backend.park()
        return {"samples": samples, "calls": held.number}

    def _load(self, task: _Task) -> None:
        """Have the arrays of a task in memory, and those of no other."""
        if task.is_loaded:
            return
        with self._connection.phase("task"):
            for other in self._tasks.values():
                other.unload()
            task.load()

    def _ready(self, message: Message) -> tuple[Backend, _Task]:
        task = self._tasks.get(message.get("task", ""))
        if self._backend is None or task is None:
            raise RuntimeError("a job came before hello and task")
        return self._backend, task


def _call(task: _Task, held: _Held, placement: int) -> BoundCall:
    inputs, outputs = task.data.arrays(placement)
    if placement not in held.calls:
        held.calls[placement] = held.executable.bind(inputs, outputs)
    return held.calls[placement]


def _first_call(call: BoundCall, threads: int) -> FirstCall:
    begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    call.run()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - used
    seconds = time.perf_counter() - begin
    return FirstCall(seconds, min(seconds, used / threads))


def _timed(task: _Task, held: _Held, placement: int) -> Timed:
    bound = held.calls[placement]
    call = CheckedCall(bound)
    if task.data.flusher is None:
        return call
    inputs, outputs = task.data.arrays(placement)
    return _Cold(call, task.data.flusher, [*inputs, *outputs, *bound.copies()])


def _wrong(task: _Task, call: BoundCall) -> str | None:
    """Describe what a program that has run did wrong; put right what it has written to."""
    expected = task.data.expected
    if call.is_within([it.reference for it in expected], [it.bound for it in expected]):
        return None
    wrong = mismatch(expected, call.outputs())
    changed = task.data.arena.changed(0)
    if changed is not None:
        task.data.arrays(0, fresh=True)
    return wrong or changed


def _pinned(task: _Task) -> AbstractContextManager[str | None]:
    return pinned(task.cpus) if task.protocol.pin else nullcontext()


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
