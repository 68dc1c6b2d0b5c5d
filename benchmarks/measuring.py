"""Can measuring be trusted, and what does it cost: races, where the time goes, disturbances.

- ``race``: random candidates of two operators. Is the race's winner as fast as that of exhaustive
  timing, always, and in how much of its time? TVM's timer beside it (see `races.py`).
- ``split``: tuning a matrix product in fresh processes. How long until it starts, how long does it
  take, and how much of that is neither building nor running?
- ``overlap``: do builds on other CPUs, or before, make programs seem slower (see `neighbours.py`)?
- ``cold``: what candidates take when caches are emptied before every call; printed only.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from draft import draw
from support import neighbours, races
from support.common import Bar, Report, cores, tune

from autotune.measure import LocalMeasurer, MeasureProtocol

PARTS = ("race", "split", "overlap", "cold")
OPERATORS = ("gemm", "conv2d")
CANDIDATES, QUICK_CANDIDATES = 200, 60
REPEATS, QUICK_REPEATS = 10, 3
TRIALS, RUNS = 64, 3
NEIGHBOURS, TURNS, QUICK_TURNS = 20, 15, 6
COLD = 5

STARTUP_SECONDS = 2.5
SHARE_OF_THE_REST = 0.10
WALL_SECONDS = 15.0


@dataclass
class Run:
    """A tuning run.

    Attributes:
        wall: Seconds of the command.
        seconds: What the run says about its seconds, by activity.
        best: Seconds of the best program.
    """

    wall: float
    seconds: dict[str, float]
    best: float

    @property
    def rest(self) -> float:
        """Share of neither building nor running in what follows the start-up."""
        rest = sum(self.seconds[name] for name in ("search", "model", "other"))
        return rest / (self.seconds["total"] - self.seconds["startup"])


def run_split(trials: int, runs: int) -> list[Run]:
    """Tune a matrix product, every time anew."""
    found = []
    print(f"{trials} trials of gemm 512 x 512 x 512", flush=True)
    for seed in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            shape = {"m": 512, "n": 512, "k": 512}
            tuned, wall = tune("gemm", shape, trials, seed, Path(folder) / "split.db")
        run = Run(wall, tuned["seconds"], tuned["best"]["latency"])
        found.append(run)
        split = ", ".join(
            f"{name} {run.seconds[name]:.2f}"
            for name in ("startup", "build", "run", "search", "model", "other")
        )
        print(
            f"  {run.wall:.1f} s in all: {split} s; neither build nor run {run.rest:.1%}; "
            f"best {run.best * 1e3:.3f} ms",
            flush=True,
        )
    return found


def bars_of_split(found: Sequence[Run]) -> list[Bar]:
    """The promises: the median of the runs."""
    startup = statistics.median(run.seconds["startup"] for run in found)
    rest = statistics.median(run.rest for run in found)
    wall = statistics.median(run.wall for run in found)
    return [
        Bar("tuning, seconds until it starts", startup, STARTUP_SECONDS, at_most=True),
        Bar("tuning, share of neither build nor run", rest, SHARE_OF_THE_REST, at_most=True),
        Bar("tuning, seconds in all", wall, WALL_SECONDS, at_most=True),
    ]


def run_cold(count: int) -> list[dict[str, float]]:
    """Milliseconds of some candidates with data in caches, and without."""
    workload, target, candidates = draw("gemm", count, 4)
    milliseconds: dict[str, list[float | None]] = {}
    for name, protocol in (("warm", MeasureProtocol()), ("cold", MeasureProtocol(cold=True))):
        with LocalMeasurer("tvm", target, cores(), workload, protocol=protocol) as measurer:
            outcomes = measurer.rematch(candidates)
        milliseconds[name] = [o.latency and o.latency * 1e3 for o in outcomes]
    found = []
    print("caches emptied before every call")
    for warm, cold in zip(milliseconds["warm"], milliseconds["cold"], strict=True):
        if warm is not None and cold is not None:
            found.append({"warm": warm, "cold": cold})
            print(f"  {cold:.3f} ms, {warm:.3f} ms warm: {cold / warm:.2f}x", flush=True)
    return found


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--operators", default=",".join(OPERATORS), help="of races, likewise")
    parser.add_argument("--candidates", type=int, help=f"of races, by default {CANDIDATES}")
    parser.add_argument("--repeats", type=int, help=f"of races, by default {REPEATS}")
    parser.add_argument("--sessions", type=int, help="of the final timing of their winners")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of a tuning run")
    parser.add_argument("--runs", type=int, default=RUNS, help="how many tuning runs")
    parser.add_argument("--turns", type=int, help="with and without disturbances")
    options = parser.parse_args(arguments)
    quick = options.quick
    options.candidates = options.candidates or (QUICK_CANDIDATES if quick else CANDIDATES)
    options.repeats = options.repeats or (QUICK_REPEATS if quick else REPEATS)
    options.sessions = options.sessions or (races.QUICK_SESSIONS if quick else races.SESSIONS)
    options.turns = options.turns or (QUICK_TURNS if quick else TURNS)
    for given, allowed in ((options.only, PARTS), (options.operators, OPERATORS)):
        unknown = sorted(set(given.split(",")) - set(allowed))
        if unknown:
            parser.error(f"there is no {unknown[0]!r}, only {', '.join(allowed)}")
    return options


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    parts = options.only.split(",")
    data: dict[str, Any] = {}
    bars: list[Bar] = []
    if "race" in parts:
        data["race"] = {}
        for name in options.operators.split(","):
            say = partial(print, flush=True)
            found = races.run_races(
                name, options.candidates, options.repeats, options.sessions, say
            )
            races.show(found)
            data["race"][name] = asdict(found)
            bars += races.bars_of(name, found)
    if "split" in parts:
        runs = run_split(options.trials, options.runs)
        data["split"] = [asdict(run) for run in runs]
        bars += bars_of_split(runs)
    if "overlap" in parts:
        disturbance = neighbours.Disturbance()
        neighbours.measure_beside(disturbance, NEIGHBOURS, options.turns)
        neighbours.measure_after(disturbance, NEIGHBOURS, options.turns)
        neighbours.watch_measurer(disturbance, NEIGHBOURS)
        neighbours.show(disturbance)
        data["overlap"] = asdict(disturbance)
        bars += neighbours.bars_of(disturbance)
    if "cold" in parts:
        data["cold"] = run_cold(COLD)
    return Report(data, bars)
