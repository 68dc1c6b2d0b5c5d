"""The printed nest beside another backend's form of the same candidates, and what building costs.

Of every workload of a family, the candidate of each sketch that the draft ranks first among a few
random ones is built by ``native`` and by the other backend. Both programs run in turns on arrays
that are equally aligned, in several fresh processes, because where memory lies decides much. A
ratio is ours over theirs: below 1, ours is the faster. On one thread, the processor's time of the
calling thread is compared; on several, the time that passes. ``--walls`` also tunes two
operators with each backend in turns, from empty databases, and compares the whole commands.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from support.bars import geometric_mean
from support.common import Bar, Report, cores, tune

OURS = "native"

# The bars of a family, and of all families together.
TIME, BUILD_ANY, BUILD_ALL = 1.02, 0.9, 0.5
# Of the time that a command takes with the other backend.
WALL = 0.8
# A candidate above this is named, and holds the family back if it is the fastest of its workload.
TIME_OF_ONE = 1.10

_DRAWN = 48
_SECONDS_OF_A_TURN = 0.004
_BUILDS = 3


@dataclass(frozen=True)
class Row:
    """A workload to print.

    Attributes:
        name: Of its builder, or of an operator of `backend_workloads.py`.
        shape: Arguments of the builder.
        dtype: Of the factors, if it is another one than the builder's own.
        quick: Whether it is in the reduced set.
    """

    name: str
    shape: Mapping[str, int]
    dtype: str | None = None
    quick: bool = False

    def __str__(self) -> str:
        sizes = " ".join(f"{key}={value}" for key, value in self.shape.items())
        return f"{self.name} {sizes}" + (f" {self.dtype}" if self.dtype else "")


FAMILIES: Mapping[str, tuple[Row, ...]] = MappingProxyType(
    {
        "products": (
            Row("gemm", {"m": 512, "n": 512, "k": 512}, quick=True),
            Row("gemm", {"m": 255, "n": 255, "k": 255}),
            Row("dense", {"m": 64, "n": 512, "k": 512}),
            Row("batch_matmul", {"b": 12, "m": 64, "n": 64, "k": 64}),
        ),
        "convolutions": (
            Row("conv2d", {"h": 14, "w": 14, "ci": 128, "co": 128, "pad": 1}, quick=True),
            Row("conv2d", {"h": 28, "w": 28, "ci": 32, "co": 64, "pad": 1, "bias": 1, "relu": 1}),
            Row("depthwise_conv2d", {"h": 28, "w": 28, "c": 128, "pad": 1}, quick=True),
            Row("grouped_conv2d", {"h": 14, "w": 14, "g": 4, "ci": 16, "co": 32}),
            Row("transposed_conv2d", {"h": 14, "w": 14, "ci": 32, "co": 32}),
        ),
        "rows": (
            Row("softmax", {"m": 256, "n": 512}, quick=True),
            Row("layer_norm", {"m": 256, "n": 512}, quick=True),
            Row("rms_norm", {"m": 256, "n": 500}),
        ),
        "copies": (
            Row("elementwise", {"m": 512, "n": 512}, quick=True),
            Row("concat_transpose", {"m": 256, "n": 256}, quick=True),
        ),
        "attention": (
            Row("attention", {"h": 4, "n": 96, "d": 64}),
            Row("attention", {"h": 4, "n": 96, "d": 64, "causal": 1}, quick=True),
        ),
        "gathers and scans": (
            Row("argmax", {"m": 256, "n": 512}, quick=True),
            Row("cumsum", {"m": 256, "n": 512}, quick=True),
            Row("embedding_bag", {"bags": 128, "most": 16, "words": 4096, "width": 64}),
        ),
        "halves": (
            Row("gemm", {"m": 128, "n": 128, "k": 128}, "float16", quick=True),
            Row("gemm", {"m": 128, "n": 128, "k": 128}, "bfloat16", quick=True),
        ),
        "int8": (Row("gemm", {"m": 256, "n": 256, "k": 256}, "int8", quick=True),),
    }
)


TUNED = (
    Row("gemm", {"m": 512, "n": 512, "k": 512}),
    Row("conv2d", {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1}),
)
TRIALS = 64


@dataclass
class Wall:
    """Tuning with both backends, in turns.

    Attributes:
        row: What was tuned.
        ours: Seconds of each command with ours.
        theirs: Seconds of each command with theirs.
        winners: Latencies in seconds that each command found, ours and theirs.
    """

    row: str
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    winners: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Median over the turns."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))


@dataclass
class Seen:
    """A candidate in one process.

    Attributes:
        sketch: Name of its sketch.
        ours: Median seconds of a call of ours.
        theirs: Median seconds of a call of theirs.
        ratio: Median over the turns of ours over theirs.
        quick: Median over the turns of ours as a race builds it over ours.
        builds: Processor seconds of building ours for a race, ours at length, and theirs.
        failed: Why there are no times.
    """

    sketch: str
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    quick: float | None = None
    builds: tuple[float, float, float] | None = None
    failed: str | None = None


@dataclass
class Trial:
    """A candidate over all processes; see :class:`Seen`."""

    family: str
    row: str
    sketch: str
    threads: int
    seen: list[Seen] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """Median over the processes."""
        known = [seen.ratio for seen in self.seen if seen.ratio is not None]
        return statistics.median(known) if known else None

    @property
    def ours(self) -> float:
        """Least of the processes' medians, in seconds."""
        return min(seen.ours for seen in self.seen if seen.ours is not None)

    @property
    def bimodal(self) -> bool:
        """Tell whether either program is the faster in some process by more than a tenth."""
        known = [seen.ratio for seen in self.seen if seen.ratio is not None]
        return min(known) < 1 / TIME_OF_ONE and max(known) > TIME_OF_ONE

    @property
    def builds(self) -> float | None:
        """Processor time of building ours for a race over that of building theirs."""
        known = [seen.builds for seen in self.seen if seen.builds is not None]
        return statistics.median(quick / theirs for quick, _, theirs in known) if known else None

    @property
    def quick(self) -> float | None:
        """Time of ours as a race builds it over ours, median over the processes."""
        known = [seen.quick for seen in self.seen if seen.quick is not None]
        return statistics.median(known) if known else None

    @property
    def failed(self) -> str | None:
        """Reason for which it has no times."""
        return next((seen.failed for seen in self.seen if seen.failed), None)


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    os.environ["AUTOTUNE_OBJECT_CACHE"] = "off"  # what is built is compiled
    trials = []
    for threads in options.threads:
        for family in options.only or FAMILIES:
            print(f"\n{family}, {threads} thread{'s' * (threads > 1)}", flush=True)
            for row in FAMILIES[family]:
                if row.quick or not options.quick:
                    trials += run_row(options, family, row, threads)
    print_table(trials)
    walls = [run_wall(row, options.against, options.walls) for row in TUNED if options.walls]
    data = {
        "trials": [asdict(trial) for trial in trials],
        "walls": [asdict(wall) for wall in walls],
    }
    return Report(data, [*bars_of(trials), *wall_bars(walls)])


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with defaults that depend on each other filled in."""
    parser.add_argument("--against", default="tvm", metavar="BACKEND")
    parser.add_argument("--threads", type=int, nargs="+", metavar="N")
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--processes", type=int, metavar="N", help="5, or 2 with --quick")
    parser.add_argument("--turns", type=int, default=21, metavar="N")
    parser.add_argument("--sketches", type=int, metavar="N", help="of each workload at most")
    parser.add_argument("--walls", type=int, default=0, metavar="N", help="turns of whole runs")
    options = parser.parse_args(arguments)
    options.threads = options.threads or sorted({1, cores()})
    options.processes = options.processes or (2 if options.quick else 5)
    options.sketches = options.sketches or (4 if options.quick else 12)
    return options


def run_wall(row: Row, against: str, turns: int) -> Wall:
    """Tune a workload with both backends in turns, printed as they end."""
    wall = Wall(str(row))
    for turn in range(turns):
        found = {}
        for backend in (OURS, against) if turn % 2 else (against, OURS):
            with tempfile.TemporaryDirectory() as folder:
                database = Path(folder) / "records.db"
                data, seconds = tune(row.name, row.shape, TRIALS, turn, database, backend=backend)
            found[backend] = seconds, data["best"]["latency"]
        wall.ours.append(found[OURS][0])
        wall.theirs.append(found[against][0])
        wall.winners.append((found[OURS][1], found[against][1]))
        print(
            f"{row}, {TRIALS} trials: {wall.ours[-1]:.1f} / {wall.theirs[-1]:.1f} s, winners "
            f"{wall.winners[-1][0] * 1e6:.0f} / {wall.winners[-1][1] * 1e6:.0f} us",
            flush=True,
        )
    return wall


def wall_bars(walls: Sequence[Wall]) -> list[Bar]:
    """Promises of whole runs."""
    return [Bar(f"{it.row}: whole run", it.ratio, WALL, at_most=True) for it in walls]


def run_row(options: argparse.Namespace, family: str, row: Row, threads: int) -> list[Trial]:
    """Compare all candidates of a workload in several processes, printed as they end."""
    context = multiprocessing.get_context("spawn")
    found: list[list[Seen]] = []
    for _ in range(options.processes):
        with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
            asked = (row, options.against, threads, options.turns, options.sketches)
            found.append(pool.submit(in_this_process, *asked).result())
    trials = [
        Trial(family, str(row), seen[0].sketch, threads, list(seen))
        for seen in zip(*found, strict=True)
    ]
    print(f"  {row}")
    for trial in trials:
        print(f"    {told(trial)}", flush=True)
    return trials


def told(trial: Trial) -> str:
    """A line about a candidate."""
    if trial.ratio is None:
        return f"{trial.sketch:<28} {trial.failed}"
    ratios = " ".join(f"{seen.ratio:.2f}" for seen in trial.seen if seen.ratio is not None)
    costs = [f"{cost * 1e3:.0f}" for cost in trial.seen[0].builds or ()]
    return (
        f"{trial.sketch:<28} {trial.ratio:.3f} ({ratios}), ours {trial.ours * 1e6:.0f} us, "
        f"quick {trial.quick:.2f}; building {', '.join(costs)} ms, {trial.builds:.2f}"
    )


def in_this_process(row: Row, against: str, threads: int, turns: int, sketches: int) -> list[Seen]:
    """Compare a candidate of each sketch of a workload."""
    from support.backend_workloads import made

    from autotune.plugins.parts import create_part
    from autotune.targets import detect_cpu

    workload, target = made(row.name, row.shape, row.dtype), detect_cpu()
    pair = create_part("backend", OURS), create_part("backend", against)
    for backend in pair:
        backend.warm_up()
    return [
        compared(pair, candidate, target, threads, turns)
        for candidate in chosen(pair, workload, target, sketches)
    ]


def chosen(pair: Sequence[Any], workload: Any, target: Any, sketches: int) -> list[Any]:
    """Of every sketch that both backends have, what the draft ranks first of a few."""
    from attrs import evolve

    from autotune.models import ModelContext
    from autotune.plugins.parts import create_part
    from autotune.sketches import CandidateBatch
    from autotune.sketches.candidates import order_of
    from autotune.spaces import SketchSpace

    draft = create_part("pruning_model", "psa", ModelContext(target=target))
    ours, theirs = (backend.limits(target) for backend in pair)
    space = SketchSpace(workload, target, evolve(theirs, steps=ours.steps & theirs.steps))
    drawn = space.sample(_DRAWN * len(space.sketches()), np.random.default_rng(0))
    scores = draft.score(CandidateBatch.of(drawn))[order_of(drawn)]
    best: dict[str, tuple[float, Any]] = {}
    for candidate, score in zip(drawn, scores, strict=True):
        name = candidate.sketch.name
        best[name] = max(best.get(name, (-np.inf, None)), (score, candidate), key=lambda it: it[0])
    first = sorted(best.values(), key=lambda it: -it[0])[:sketches]
    return [candidate for _, candidate in first]


def compared(pair: Sequence[Any], candidate: Any, target: Any, threads: int, turns: int) -> Seen:
    """Build a candidate with both backends and run the programs in turns."""
    from attrs import evolve

    from autotune.backends import bind_copies
    from autotune.backends.backend import BuildFailed, InvalidSchedule
    from autotune.ir.workloads import draw_example
    from autotune.testing.programs import check_executable, request_for

    workload, name = candidate.sketch.workload, candidate.sketch.name
    request = request_for(candidate, target, threads)
    jobs = [(pair[0], evolve(request, quick=True)), (pair[0], request), (pair[1], request)]
    try:
        built = [backend.build(job) for backend, job in jobs]
    except (BuildFailed, InvalidSchedule) as error:
        return Seen(name, failed=str(error)[:120])
    inputs, _ = draw_example(workload, np.random.default_rng(0))
    for executable in built[:2]:
        check_executable(executable, workload, inputs, about=name)
    given = [inputs[tensor.name] for tensor in workload.inputs]
    calls = [bind_copies(executable, workload, given) for executable in built]
    clock = time.thread_time if threads == 1 else time.perf_counter
    once = min(calls[2].time(1) for _ in range(3))
    number = max(1, int(_SECONDS_OF_A_TURN / once))
    times = np.empty((turns, 3))
    for turn in range(turns):
        for which in (0, 1, 2) if turn % 2 else (2, 1, 0):
            # Threads of the other runtime watch for work some milliseconds longer.
            pair[1].park()
            begun = clock()
            calls[which].time(number)
            times[turn, which] = (clock() - begun) / number
    _, ours, theirs = np.median(times, axis=0)
    ratio = float(np.median(times[:, 1] / times[:, 2]))
    quick = float(np.median(times[:, 0] / times[:, 1]))
    costs = [building(backend, job) for backend, job in jobs]
    return Seen(name, float(ours), float(theirs), ratio, quick, (costs[0], costs[1], costs[2]))


def building(backend: Any, request: Any) -> float:
    """Least processor seconds of building a candidate whose nest is known."""
    costs = []
    for _ in range(_BUILDS):
        begun = time.process_time()
        backend.build(request)
        costs.append(time.process_time() - begun)
    return min(costs)


def fastest(trials: Sequence[Trial]) -> set[int]:
    """Identities of the fastest candidate of each workload."""
    best: dict[tuple[str, int], Trial] = {}
    for trial in trials:
        if trial.ratio is not None:
            key = trial.row, trial.threads
            best[key] = min(best.get(key, trial), trial, key=lambda it: it.ours)
    return {id(trial) for trial in best.values()}


def print_table(trials: Sequence[Trial]) -> None:
    """A line for each family, and the candidates that are slow."""
    print("\nfamily               threads  candidates  time   worst  quick  building")
    for family, threads in dict.fromkeys((it.family, it.threads) for it in trials):
        own = [it for it in trials if (it.family, it.threads) == (family, threads)]
        known = [it for it in own if it.ratio is not None]
        ratios = [it.ratio for it in known]
        if not known:
            continue
        print(
            f"{family:<20} {threads:>7}  {len(known):>10}  {geometric_mean(ratios):.3f}  "
            f"{max(it.ratio or 0 for it in known):.2f}   "
            f"{geometric_mean([it.quick for it in known]):.2f}   "
            f"{geometric_mean([it.builds for it in known]):.2f}"
        )
    winners = fastest(trials)
    for trial in trials:
        if trial.ratio is not None and trial.ratio > TIME_OF_ONE:
            kind = "both ways round" if trial.bimodal else "slower"
            winner = ", the fastest of its workload" if id(trial) in winners else ""
            print(f"  {trial.row}, {trial.sketch}, {trial.threads}: {kind}{winner}")


def bars_of(trials: Sequence[Trial]) -> list[Bar]:
    """The gate."""
    bars = []
    known = [trial for trial in trials if trial.ratio is not None]
    for family in FAMILIES:
        own = [trial for trial in known if trial.family == family]
        asked = any(trial.family == family for trial in trials)
        mean = geometric_mean([trial.ratio for trial in own])
        builds = geometric_mean([trial.builds for trial in own])
        bars.append(Bar(f"{family}: time", mean, TIME, at_most=True, not_asked=not asked))
        bars.append(
            Bar(f"{family}: building", builds, BUILD_ANY, at_most=True, not_asked=not asked)
        )
    winners = fastest(trials)
    slow = [it for it in known if id(it) in winners and (it.ratio or 0) > TIME_OF_ONE]
    real = [trial for trial in slow if not trial.bimodal]
    bars.append(Bar("fastest candidates that are slower", len(real), 0, at_most=True))
    over_all = geometric_mean([trial.builds for trial in known])
    bars.append(Bar("building, all families", over_all, BUILD_ALL, at_most=True))
    return bars


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["lowering", *sys.argv[1:]]))
