"""Times a network on several runtimes, each in a process of its own, in turns."""

from __future__ import annotations

import importlib.util
import select
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from attrs import asdict, define, evolve, field, frozen

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError, one_line
from autotune.networks.bench.runtimes import RUNTIMES, TUNED, UNTUNED
from autotune.networks.frontend import NetworkTensor
from autotune.networks.running import compare_outputs
from autotune.networks.source import check_precision
from autotune.process import (
    Message,
    WorkerDied,
    WorkerProcess,
    default_memory_limit,
    make_private_folder,
)
from autotune.process.error_codec import accepted
from autotune.process.processes import ready
from autotune.report import Table, formats
from autotune.runtime.arrays import read_array
from autotune.targets import load_driver, matching_device
from autotune.tuning.options import checked_target, usable_cpus

__all__ = [
    "BENCH_SCHEMA",
    "BENCH_VERSION",
    "BenchOptions",
    "BenchResult",
    "BenchRow",
    "bench_model",
    "bench_table",
]

BENCH_SCHEMA = "autotune.model_bench"
BENCH_VERSION = 1
"""Grows when a field of the JSON form changes its meaning or goes away."""


@frozen
class BenchRow:
    """Row of a runtime.

    Attributes:
        runtime: Its name.
        version: Its version; "" where it did not run.
        problem: Why it did not run, or that its outputs are wrong; "" where all is well.
        medians: Median seconds of an inference, of each turn.
        fastest: Seconds of the fastest inference.
        ready: Seconds from the source to a network that can be called.
        first_call: Seconds of the first inference.
        peak_bytes: The most memory that its process had.
        error: Largest difference of an output from the reference, over what is allowed.
        calls: On a device, median seconds of a call by the host until its outputs are there, of
            each turn; what the device takes of them is the latency.
    """

    runtime: str
    version: str = ""
    problem: str = ""
    medians: tuple[float, ...] = ()
    fastest: float | None = None
    ready: float | None = None
    first_call: float | None = None
    peak_bytes: int | None = None
    error: float | None = None
    calls: tuple[float, ...] = ()

    @property
    def call(self) -> float | None:
        """Median over the turns of what a call takes; None where only latencies were taken."""
        return statistics.median(self.calls) if self.calls else None

    @property
    def latency(self) -> float | None:
        """Median over the turns of their medians; None where it was not timed."""
        return statistics.median(self.medians) if self.medians else None


@frozen
class BenchResult:
    """A network on several runtimes.

    Attributes:
        network: What a person calls it.
        threads: How many threads each runtime used.
        reference: The runtime that the others' outputs were compared with.
        rows: One for each runtime.
        target: Name of the device, or ``cpu``.
        precision: What the network was converted to, or None.
    """

    network: str
    threads: int
    reference: str
    rows: tuple[BenchRow, ...]
    target: str = "cpu"
    precision: str | None = None

    def row(self, runtime: str) -> BenchRow | None:
        """The row of a runtime, if it was asked for."""
        return next((row for row in self.rows if row.runtime == runtime), None)

    def ratio(self, row: BenchRow) -> float | None:
        """Speed of the tuned network relative to this runtime, if both were timed."""
        tuned = self.row(TUNED)
        if tuned is None or not tuned.latency or not row.latency:
            return None
        return row.latency / tuned.latency

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``docs`` describe the schema."""
        return {
            "schema": BENCH_SCHEMA,
            "version": BENCH_VERSION,
            "network": self.network,
            "threads": self.threads,
            "target": self.target,
            "precision": self.precision,
            "reference": self.reference,
            "runtimes": [
                {
                    **asdict(row),
                    "latency": row.latency,
                    "call": row.call,
                    "tuned_speedup": self.ratio(row),
                }
                for row in self.rows
            ],
        }


def bench_table(result: BenchResult) -> Table:
    """The runtimes that ran, the fastest first; below, why the others did not."""
    ran = sorted(
        (row for row in result.rows if row.latency is not None), key=lambda row: row.latency or 0.0
    )
    has_calls = any(row.call is not None for row in ran)
    rows = [
        (
            row.runtime,
            formats.seconds(row.latency),
            *((formats.seconds(row.call) if row.call else "-",) if has_calls else ()),
            formats.seconds(row.fastest),
            formats.ratio(result.ratio(row)),
            formats.seconds(row.ready),
            formats.seconds(row.first_call),
            formats.size(row.peak_bytes) if row.peak_bytes else "-",
            row.version,
        )
        for row in ran
    ]
    columns = (
        *("runtime", "latency>", *(("call>",) if has_calls else ())),
        *("fastest>", "tuned speedup>"),
        *("ready>", "first call>", "peak memory>", "version"),
    )
    where = "1 thread" if result.threads == 1 else f"{result.threads} threads"
    if result.target != "cpu":
        where = result.target
    if result.precision is not None:
        where = f"{result.precision}, {where}"
    notes = [f"{row.runtime}: {row.problem}" for row in result.rows if row.problem]
    if result.reference:
        notes.insert(0, f"outputs are compared with those of {result.reference}")
    return Table(f"{result.network}, {where}", columns, tuple(rows), tuple(notes))


_MODULE = "autotune.networks.bench.child"
_POLL_SECONDS = 0.05
# What may take as long as compiling and running a large network without a schedule.
_PREPARE_SECONDS = 900.0
_TIME_SECONDS = 300.0
# The model itself, where it can be run; else what is left of it after import, untuned.
_REFERENCES = ("torch eager", "onnxruntime", UNTUNED)
AS_IT_WAS = "the model before it was converted"


def _names(given: Sequence[str]) -> tuple[str, ...]:
    for name in given:
        if name not in RUNTIMES:
            raise UnknownNameError("runtime", name, RUNTIMES)
    return tuple(name for name in RUNTIMES if name in given) or tuple(RUNTIMES)


@frozen(kw_only=True)
class BenchOptions:
    """Options of timing a network beside other runtimes.

    Attributes:
        database: Where the records of the tuned network are.
        target: ``cpu``, or a CUDA device of this machine.
        threads: Threads that each runtime may use; by default one per CPU of this process. None
            for a CUDA device.
        precision: As of :func:`~autotune.networks.source.in_precision`.
        runtimes: Names of the runtimes; by default all.
        turns: How often each runtime has its turn.
        seconds: How long a turn is.
        frontend: As of :class:`~autotune.networks.api.ModelOptions`.
        passes: Texts, as of :func:`~autotune.networks.loading.read_passes`.
        dims: Texts, as of :func:`~autotune.networks.fixed_inputs.read_asked`.
        inputs: Texts, as of :func:`~autotune.networks.fixed_inputs.read_asked`.
    """

    database: str = "autotune.db"
    target: str = "cpu"
    threads: int | None = None
    precision: str | None = field(default=None, converter=check_precision)
    runtimes: tuple[str, ...] = field(default=(), converter=_names)
    turns: int = 5
    seconds: float = 1.0
    frontend: str | None = None
    passes: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if self.is_on_device and self.threads is not None:
            raise InvalidValueError(
                f"threads are of CPUs, and target {self.target!r} is a CUDA device: leave them out"
            )
        if self.turns < 1 or not self.seconds > 0:
            raise InvalidValueError(
                f"{self.turns} turns of {self.seconds} seconds: there is nothing to time"
            )

    @property
    def is_on_device(self) -> bool:
        """True if the network runs on a CUDA device."""
        return checked_target(self.target, None).kind == "cuda"

    @property
    def used_threads(self) -> int:
        """Threads of each process."""
        return usable_cpus() if self.threads is None else self.threads


@define
class _Running:
    """A runtime's process, and what is known of it."""

    name: str
    folder: Path
    worker: WorkerProcess | None = None
    row: BenchRow = field(init=False)
    outputs: list[Any] = field(factory=list)
    inputs: list[str] = field(factory=list)
    baked: dict[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.row = BenchRow(self.name)

    def start(self, threads: int, place: Path) -> None:
        """Start the process, which writes to a folder of its own."""
        self.folder.mkdir()
        limit = default_memory_limit()
        self.worker = WorkerProcess(_MODULE, {}, threads, {}, limit, place)

    def ask(self, message: Message, seconds: float) -> Message | None:
        """The answer, or None where it failed, which is then its problem."""
        if self.worker is None:
            return None
        try:
            self.worker.send(message)
            answer = _answer(self.worker, seconds)
            if "failed" in answer:
                raise InvalidValueError(str(answer["failed"]))
            return accepted(answer["done"])
        except (TimeoutError, WorkerDied, AutotuneError) as error:
            self.end()
            self.row = evolve(self.row, problem=one_line(str(error), 300))
            return None

    def end(self) -> None:
        """End the process, if there is one."""
        if self.worker is not None:
            self.worker.end()
            self.worker = None


def _answer(worker: WorkerProcess, seconds: float) -> Message:
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        ready(worker.fileno(), select.POLLIN, min(remaining, _POLL_SECONDS))
        for answer in worker.receive():
            if "phase" not in answer:
                return answer
    raise TimeoutError(f"no answer in {seconds:g} s")


def bench_model(
    source: str,
    options: BenchOptions,
    *,
    sizes: Mapping[str, int] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> BenchResult:
    """Time a network on several runtimes.

    Args:
        source: As of :func:`~autotune.networks.source.read_source`, or a network of the zoo.
        options: What is timed, and how.
        sizes: Sizes of a network of the zoo, perhaps none; None for any other source.
        say: Told what is being done.

    Returns:
        A row for each runtime, also for one that did not run. What takes part is prepared one
        after the other; then each has its turn, several times, while the others wait.

    Raises:
        InvalidValueError: all of several runtimes refuse the source.
        UnsupportedTarget: there is no such device here.
        WorkerStartFailed: no process can be started.
    """
    question = {
        "op": "prepare",
        "source": source,
        "network": sizes is not None,
        "sizes": dict(sizes or {}),
        "database": options.database,
        "target": options.target,
        "threads": None if options.is_on_device else options.used_threads,
        "precision": options.precision,
        "frontend": options.frontend,
        "passes": list(options.passes),
        "dims": list(options.dims),
        "asked": list(options.inputs),
    }
    if options.is_on_device:
        matching_device(checked_target(options.target, None), load_driver())
    with ExitStack() as ending:
        folder = make_private_folder()
        ending.callback(folder.remove)
        running = []
        inputs: list[str] = []
        baked: dict[str, str] = {}
        for number, name in enumerate(options.runtimes):
            one = _Running(name, folder.path / f"outputs-{number}")
            running.append(one)
            left_out = RUNTIMES[name].left_out if options.is_on_device else ""
            if missing := left_out or _missing(name):
                one.row = evolve(one.row, problem=missing)
                continue
            say(f"{name}: preparing")
            one.start(options.used_threads, folder.path / f"worker-{number}")
            ending.callback(one.end)
            _prepare(one, {**question, "inputs": inputs, "baked": baked}, say)
            inputs, baked = inputs or one.inputs, baked or one.baked
        _check_source(running)
        wide: list[Any] = []
        if options.precision is not None and any(one.outputs for one in running):
            say("the model as it was: outputs")
            wide = _wide_outputs(question, options.used_threads, folder.path)
        reference = _compare(running, wide)
        for turn in range(options.turns):
            say(f"turn {turn + 1} of {options.turns}")
            for one in running:
                _time(one, options.seconds)
        rows = tuple(one.row for one in running)
        return BenchResult(
            source,
            options.used_threads,
            reference,
            rows,
            target=checked_target(options.target, None).name if options.is_on_device else "cpu",
            precision=options.precision,
        )


def _wide_outputs(question: Message, threads: int, folder: Path) -> list[Any]:
    """Outputs of the model as it was before it was converted, from a process of its own.

    Raises:
        InvalidValueError: it does not run.
    """
    one = _Running(AS_IT_WAS, folder / "outputs-wide")
    one.start(threads, folder / "worker-wide")
    try:
        message = {**question, "op": "reference", "folder": str(one.folder)}
        answer = one.ask(message, _PREPARE_SECONDS)
        if answer is None:
            raise InvalidValueError(f"{AS_IT_WAS} does not run: {one.row.problem}")
        return [read_array(path) for path in answer["outputs"]]
    finally:
        one.end()


def _check_source(running: Sequence[_Running]) -> None:
    """Raise where the source is at fault, so that no runtime reads it.

    The compiler of this package, which has no need of records, says best what is wrong with it.
    """
    problems = {one.name: one.row.problem for one in running if one.folder.is_dir()}
    if len(problems) > 1 and all(problems.values()):
        first = next(iter(problems.values()))
        raise InvalidValueError(problems.get("untuned", first))


def _missing(name: str) -> str:
    """Packages to be installed for a runtime; "" where everything is there."""
    for package, advice in RUNTIMES[name].packages.items():
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: {advice}"
    return ""


def _prepare(one: _Running, question: Message, say: Callable[[str], None]) -> None:
    message = {**question, "runtime": one.name, "folder": str(one.folder)}
    answer = one.ask(message, _PREPARE_SECONDS)
    if answer is None:
        return
    one.outputs = [read_array(path) for path in answer["outputs"]]
    one.inputs = list(map(str, answer["inputs"]))
    one.baked = dict(answer["baked"])
    for remark in answer["remarks"]:
        say(f"{one.name}: {remark}")
    one.row = evolve(
        one.row,
        version=str(answer["version"]),
        ready=float(answer["ready"]),
        first_call=float(answer["first_call"]),
    )


def _compare(running: Sequence[_Running], wide: Sequence[Any] = ()) -> str:
    """Compare all outputs with those of one runtime; returns its name, "" where none has any.

    Args:
        running: The runtimes.
        wide: What the model computes as it was before it was converted, if it was; it is compared
            with then, rounded once.
    """
    by_name = {one.name: one for one in running if one.outputs}
    first = next((by_name[name] for name in (*_REFERENCES, TUNED) if name in by_name), None)
    if first is None:
        return ""
    wanted, name = first.outputs, first.name
    if wide and len(wide) == len(wanted):
        with np.errstate(over="ignore"):
            wanted = [it.astype(like.dtype) for it, like in zip(wide, wanted, strict=True)]
        name = AS_IT_WAS
    tensors = [
        NetworkTensor(f"output {number}", array.shape, str(array.dtype))
        for number, array in enumerate(wanted)
    ]
    for one in by_name.values():
        differences = compare_outputs(tensors, wanted, one.outputs)
        wrong = [str(it) for it in differences if not it.ok]
        worst = max((it.error / it.allowed for it in differences if it.allowed), default=0.0)
        one.row = evolve(one.row, error=worst if np.isfinite(worst) else None)
        if wrong:
            # It is timed all the same: that it is wrong stands beside it.
            problem = f"its outputs are not those of {name}: {wrong[0]}"
            one.row = evolve(one.row, problem=problem)
    return name


def _time(one: _Running, seconds: float) -> None:
    answer = one.ask({"op": "time", "seconds": seconds}, seconds + _TIME_SECONDS)
    if answer is None:
        return
    fastest = float(answer["fastest"])
    known, called = one.row.fastest, answer["called"]
    one.row = evolve(
        one.row,
        medians=(*one.row.medians, float(answer["median"])),
        fastest=fastest if known is None else min(known, fastest),
        calls=one.row.calls if called is None else (*one.row.calls, float(called)),
        peak_bytes=int(answer["peak_bytes"]),
    )
