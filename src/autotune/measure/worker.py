"""The main loop of a measuring process.

It serves several tasks. What it has built for one is held under numbers until a message releases
it. Programs of a task run on the same arrays, one after the other; only one task has arrays in
memory at a time, that whose programs are being timed, and the next one gets memory of its own.
That memory is at places that are chosen and not accidental.
"""

from __future__ import annotations

import mmap
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune import _native
from autotune.backends import (
    ALIGNMENT,
    Backend,
    BoundCall,
    BuildFailed,
    BuildRequest,
    CudaExecutable,
    Executable,
    InvalidSchedule,
)
from autotune.backends.backend import Array
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Tensor, Workload
from autotune.measure.engines.artefacts import ArtefactStore, DamagedArtefact
from autotune.measure.engines.fingerprint import reference_seconds
from autotune.measure.observers import ObserverSet
from autotune.measure.pinning import pinned, timing_cpus
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import (
    LONG_SECONDS,
    CheckedCall,
    FirstCall,
    Timed,
    time_call,
)
from autotune.measure.validation import Expected, expectations, mismatch, read_arrays
from autotune.plugins.parts import create_part
from autotune.process.channel import Message
from autotune.process.child import Connection, Handler, connect, describe, serve
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Cache, Target, detect_cpu

_MOST_BYTES = 128 << 20
# A cache that is twice as large as another does not fit into it, however it is replaced.
_TIMES = 2


class CacheFlusher:
    """Evicts data from the caches of the CPUs that programs are timed on.

    Two things are done, because neither is enough:

    - The lines of the program's arrays are flushed by name. That empties every cache of every
      core, also a last level that is shared with other machines and too large to be displaced.
    - Each CPU reads through a buffer of twice its own caches, and all together of twice the
      last level, up to 128 MiB. That displaces what has no name here: code, stacks, memory that
      the program allocates itself, translations of addresses.

    Args:
        cpus: Logical CPUs that programs are timed on.
        caches: Levels of cache of one of them; those of this machine unless given.

    Raises:
        InvalidValueError: no CPU is given.
    """

    def __init__(self, cpus: Sequence[int], caches: Sequence[Cache] | None = None) -> None:
        self._cpus = sorted(set(cpus))
        if not self._cpus:
            raise InvalidValueError("caches cannot be flushed for no CPU at all")
        levels = detect_cpu().caches if caches is None else caches
        private = max((level.size_bytes for level in levels if not level.shared), default=0)
        shared = max((level.size_bytes for level in levels if level.shared), default=0)
        wanted = _TIMES * max(shared, private * len(self._cpus))
        self._each = _TIMES * private
        # Ones and not zeros: untouched pages of zeros would all be the same page.
        self._buffer = np.ones(min(max(wanted, 4096), _MOST_BYTES), np.uint8)

    @property
    def buffer_bytes(self) -> int:
        """Size of the buffer that is read through."""
        return len(self._buffer)

    def flush(self, arrays: Iterable[Array]) -> None:
        """Make ``arrays`` and, as far as said above, everything else cold.

        Their contents stay as they are. Costs about 40 ms per GB of arrays and 0.1 ms per MB of
        the buffer.

        Raises:
            InvalidValueError: an array is not contiguous.
        """
        for array in arrays:
            if not array.flags.c_contiguous:
                raise InvalidValueError(f"an array of shape {array.shape} is not contiguous")
            _native.flush_memory(array.reshape(-1).view(np.uint8))
        # Last: to flush a line its address was translated.
        _native.stream_memory(self._buffer, self._cpus, self._each)


_PAGE = 4096
_HUGE_PAGE = 2 << 20
# From this size on numpy asks for huge pages for an array.
_HUGE_FROM = 4 << 20
# Placements of small arrays lie in pages of their own; those of large ones overlap.
_MOST_SPREAD = 32 << 20
# Fills what lies between arrays, to notice that it was written to.
_FENCE = 0xA7
_CHUNK = 1 << 20


class Arena:
    """Block of memory with several placements of a workload's arrays in it.

    How fast a program is depends on where its arrays lie: on their distances modulo a page, and on
    which physical pages share sets of the caches. The system chooses both for each process.
    Here a seed chooses the places within pages, and each placement has pages of its own as long as
    these are not many: a median over placements is that of the program and not that of a place.

    One placement is in use at a time, because they may overlap: the one placed last.

    Args:
        workload: Names, shapes and types of the arrays.
        inputs: What they contain, in the workload's order; kept, never written to.
        placements: How many.
        seed: What the places depend on.

    Raises:
        InvalidValueError: there is no placement, or an input is missing or has another shape or
            type.
        MemoryError: there is not enough memory.
    """

    def __init__(
        self, workload: Workload, inputs: Sequence[Array], *, placements: int = 1, seed: int = 0
    ) -> None:
        if placements < 1:
            raise InvalidValueError(f"an arena has at least one placement, not {placements}")
        _check(workload, inputs)
        self._pristine = [_bytes(np.ascontiguousarray(array)) for array in inputs]
        tensors = workload.tensors
        self._tensors = [*workload.inputs, *(tensors[name] for name in workload.outputs)]
        sizes = [tensor.bytes for tensor in self._tensors]
        self._begins, self._ends = _places(sizes, placements, seed)
        self._memory = _memory(int(self._ends.max()), huge=sum(sizes) >= _HUGE_FROM)
        self._current: int | None = None

    @property
    def placements(self) -> int:
        """Number of placements."""
        return len(self._begins)

    def place(self, number: int) -> tuple[list[Array], list[Array]]:
        """Put fresh inputs at a placement, which is then the one in use.

        Args:
            number: Which placement, from 0.

        Returns:
            Inputs and outputs in the workload's order, each aligned and contiguous. They are views
            of the arena's memory. What the outputs contain is undefined.

        Raises:
            InvalidValueError: there is no such placement.
        """
        if number not in range(self.placements):
            raise InvalidValueError(
                f"placements are numbered from 0 to {self.placements - 1}, not {number}"
            )
        self._current = number
        for _, gap in self._gaps(number):
            gap.fill(_FENCE)
        self.restore(number)
        arrays = [self._array(number, position) for position in range(len(self._tensors))]
        return arrays[: len(self._pristine)], arrays[len(self._pristine) :]

    def restore(self, number: int) -> None:
        """Put fresh inputs at the placement in use.

        Raises:
            InvalidValueError: another one is in use.
        """
        self._require_current(number)
        for position, pristine in enumerate(self._pristine):
            np.copyto(self._slice(number, position), pristine)

    def changed(self, number: int) -> str | None:
        """Describe what a program wrote to that it may only read, at the placement in use.

        Returns:
            None, or a phrase such as ``"input 'A' was changed"`` or ``"memory beside 'C' was
            written to"``, which is up to a page beyond an array.

        Raises:
            InvalidValueError: another one is in use.
        """
        self._require_current(number)
        for position, pristine in enumerate(self._pristine):
            if not _equal(self._slice(number, position), pristine):
                return f"input {self._tensors[position].name!r} was changed"
        for name, gap in self._gaps(number):
            if not (gap == _FENCE).all():
                return f"memory beside {name!r} was written to"
        return None

    def _slice(self, number: int, position: int) -> NDArray[np.uint8]:
        begin = int(self._begins[number, position])
        return self._memory[begin : begin + self._tensors[position].bytes]

    def _array(self, number: int, position: int) -> Array:
        tensor: Tensor = self._tensors[position]
        return self._slice(number, position).view(tensor.element.dtype).reshape(tensor.shape)

    def _gaps(self, number: int) -> Iterator[tuple[str, NDArray[np.uint8]]]:
        """Bytes before each array and after it, with its name."""
        ends = self._ends[number].tolist()
        for position, tensor in enumerate(self._tensors):
            begin = int(self._begins[number, position])
            before = ends[position - 1] if position else begin - ALIGNMENT
            yield tensor.name, self._memory[before:begin]
            end = begin + tensor.bytes
            yield tensor.name, self._memory[end : ends[position]]

    def _require_current(self, number: int) -> None:
        if number != self._current:
            raise InvalidValueError(f"placement {self._current} is in use, not {number}")


def _check(workload: Workload, inputs: Sequence[Array]) -> None:
    if len(inputs) != len(workload.inputs):
        raise InvalidValueError(
            f"workload {workload.name!r} has {len(workload.inputs)} inputs, got {len(inputs)}"
        )
    for tensor, array in zip(workload.inputs, inputs, strict=True):
        if array.shape != tensor.shape or array.dtype != tensor.element.dtype:
            raise InvalidValueError(
                f"input {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}, "
                f"got {array.dtype} of shape {array.shape}"
            )


def _places(
    sizes: Sequence[int], placements: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Beginnings of arrays, and ends of what belongs to each: [placements, arrays], in bytes.

    An array begins in a page that nothing before it touches, at a random line of it, and at least
    a line lies before it and after it.
    """
    lines = _lines(placements, len(sizes), seed)
    # To the next page after a line that is left free, then to a line of that page.
    begins = np.empty((placements, len(sizes)), np.int64)
    ends = np.empty_like(begins)
    last = np.zeros(placements, np.int64)
    for position, size in enumerate(sizes):
        begins[:, position] = _up(last + ALIGNMENT, _PAGE) + lines[:, position] * ALIGNMENT
        last = ends[:, position] = _up(begins[:, position] + size, ALIGNMENT) + ALIGNMENT
    footprint = int(_up(last, _PAGE).max())
    step = min(footprint, _MOST_SPREAD // max(1, placements - 1) // _PAGE * _PAGE)
    starts = np.arange(placements, dtype=np.int64)[:, None] * step
    return begins + starts, ends + starts


def _lines(placements: int, arrays: int, seed: int) -> NDArray[np.int64]:
    """The line of its page that each array begins at: [placements, arrays].

    A randomly shifted additive recurrence (Roberts' generalisation of the golden ratio). Unlike
    independent draws, a few placements already spread each array evenly over the lines of a page,
    and so they do the distances between any two, which decide whether these collide.
    """
    ratio = 2.0
    for _ in range(64):  # the root of x**(arrays + 1) == x + 1
        ratio = (1.0 + ratio) ** (1.0 / (arrays + 1))
    steps = ratio ** -np.arange(1.0, arrays + 1)
    shifts = np.random.default_rng(seed).random(arrays)
    points = (np.arange(placements)[:, None] * steps + shifts) % 1.0
    return np.asarray(points * (_PAGE // ALIGNMENT), np.int64)


def _up(values: NDArray[np.int64], multiple: int) -> NDArray[np.int64]:
    return -(-values // multiple) * multiple


def _memory(size: int, *, huge: bool) -> NDArray[np.uint8]:
    """Private memory from a boundary of huge pages on, which are asked for as numpy does."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        block = mmap.mmap(-1, size + _HUGE_PAGE, flags=flags)
    except OSError as error:
        raise MemoryError(f"no {size} bytes for the arrays of a task: {error}") from error
    if huge:
        block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8)
    begin = -memory.ctypes.data % _HUGE_PAGE
    return memory[begin : begin + size]


def _bytes(array: Array) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _equal(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> bool:
    """Return whether the bytes are the same: NaN equals itself. In parts, to need no memory."""
    return all(
        bool((first[at : at + _CHUNK] == second[at : at + _CHUNK]).all())
        for at in range(0, len(first), _CHUNK)
    )


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
        timed = _timed(task, held, 0)
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


def _timed(task: _Task, held: _Held, placement: int) -> CheckedCall:
    bound = held.calls[placement]
    call = CheckedCall(bound)
    if task.data.flusher is None:
        return call
    inputs, outputs = task.data.arrays(placement)
    cold = _Cold(call, task.data.flusher, [*inputs, *outputs, *bound.copies()])
    return CheckedCall(cold)


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
