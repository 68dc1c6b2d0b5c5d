"""Costs of recording as the records grow, and losses of two tuners on one file.

A file is filled with real candidates of several matrix products; copies are kept at each size.
Then every operation is timed on all sizes in turns, so that whatever slows the machine slows them
alike: appending a record (which waits for the disk), the best record, the record of a candidate,
the record of a program. Then two ``autotune tune`` work on one file at once, and what they say
that they measured is held against the file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve
from support.common import Bar, Report

from autotune import Target, make_workload
from autotune.sketches import STEP_TYPES, Candidate
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.feasible import build_feasible_set
from autotune.store.database import Database, RecordFilter
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.store.sqlite import open_database

SIZES = (1_000, 10_000, 100_000)
QUICK_SIZES = (1_000, 10_000)
ROUNDS = 301
BATCH = 500
WORKLOADS = 8
SECONDS, QUICK_SECONDS = 60, 10
REFERENCE = "autotune.testing.reference_backend:ReferenceBackend"
RATIO = 2.0

Operation = Callable[[Database, Record], object]

OPERATIONS: Mapping[str, Operation] = {
    "append": lambda database, record: database.append_record(evolve(record, run_id="new")),
    "best": lambda database, record: database.best(
        RecordFilter(workload=record.candidate.sketch.workload.digest, key=record.key)
    ),
    "lookup": lambda database, record: database.lookup(record.candidate.digest, record.key),
    "lookup_program": lambda database, record: database.lookup_program(
        record.outcome.lowered, record.candidate.sketch.workload.digest, record.key
    ),
}


def made_records(count: int) -> Iterator[Record]:
    """Records of different candidates of several workloads, with latencies as if measured."""
    target = Target("cpu", "benchmark", cores=2)
    limits = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "benchmark")
    key = MeasureKey(target.fingerprint, "tvm", "1", "llvm 1", 2, "warm-1")
    rng = np.random.default_rng(0)
    sources = []
    for number in range(WORKLOADS):
        workload = make_workload("gemm", {"m": 256 << number % 4, "n": 512, "k": 64 + 64 * number})
        for sketch in SketchSpace(workload, target, limits).sketches():
            points = build_feasible_set(sketch).uniform(-(-count // (2 * WORKLOADS)), number)
            sources.append((sketch, points))
    for trial in range(count):
        sketch, points = sources[trial % len(sources)]
        row = points[trial // len(sources) % len(points)]
        samples = tuple(float(item) for item in 1e-3 * (1 + rng.exponential(size=10)))
        outcome = Outcome(
            "ok",
            statistics.median(samples),
            samples,
            {"build": 0.25, "load": 0.01, "verify": 0.02, "run": 0.1},
            lowered=f"{trial:016x}",
            binary=f"{trial:032x}",
        )
        candidate = Candidate(sketch, tuple(int(value) for value in row))
        described = target.to_json()
        run = f"run-{trial // 1000}"
        yield Record(run, trial, candidate, key, described, "sketch-1", outcome, 1e9 + trial)


def fill(folder: Path, sizes: tuple[int, ...]) -> dict[int, Path]:
    """Files of as many records as ``sizes`` say."""
    path = folder / "records.db"
    paths: dict[int, Path] = {}
    batch: list[Record] = []
    begin = time.perf_counter()
    for number, record in enumerate(made_records(sizes[-1]), 1):
        batch.append(record)
        if len(batch) == BATCH or number in sizes:
            append_all(path, batch)
            batch = []
        if number in sizes:
            paths[number] = folder / f"records-{number}.db"
            shutil.copy(path, paths[number])
            seconds = time.perf_counter() - begin
            size = path.stat().st_size / 1e6
            print(f"{number} records: {size:.1f} MB, filled in {seconds:.0f} s", flush=True)
    return paths


def append_all(path: Path, records: list[Record]) -> None:
    with open_database(path) as database:
        database.append_missing(records)


def measure(paths: Mapping[int, Path], records: list[Record]) -> dict[str, dict[int, float]]:
    """Median seconds of each operation on each file, all of them in turns.

    Args:
        paths: A file for each number of records.
        records: Records that are in every file.
    """
    seconds: dict[str, dict[int, list[float]]] = {
        name: {size: [] for size in paths} for name in OPERATIONS
    }
    with contextlib.ExitStack() as stack:
        databases = {
            size: stack.enter_context(open_database(path)) for size, path in paths.items()
        }
        for turn in range(ROUNDS):
            record = evolve(records[turn % len(records)], trial=turn)
            order = list(databases) if turn % 2 else list(reversed(databases))
            for name, operation in OPERATIONS.items():
                for size in order:
                    begin = time.perf_counter()
                    operation(databases[size], record)
                    seconds[name][size].append(time.perf_counter() - begin)
    return {
        name: {size: statistics.median(items) for size, items in of_sizes.items()}
        for name, of_sizes in seconds.items()
    }


def opening(paths: Mapping[int, Path]) -> dict[int, float]:
    """Seconds to open each file for writing."""
    found = {}
    for size, path in paths.items():
        begin = time.perf_counter()
        open_database(path).close()
        found[size] = time.perf_counter() - begin
    return found


def tune_together(folder: Path, backend: str, seconds: float) -> dict[str, Any]:
    """Two tuners on one file at once; what they say and what the file has.

    Args:
        folder: Where the file goes.
        backend: Name or import string.
        seconds: How long they tune.
    """
    path = folder / f"{backend.rpartition(':')[2]}.db"
    tuners = []
    for seed in (1, 2):
        told = folder / f"{path.stem}-{seed}.json"
        command = [sys.executable, "-m", "autotune", "tune", "gemm", "--quiet"]
        command += ["--shape", "m=64,n=64,k=64", "--trials", "1000000", "--time", f"{seconds}"]
        command += ["--seed", f"{seed}", "--backend", backend, "--cost-model", "random"]
        command += ["--database", str(path), "--json", str(told)]
        tuners.append((subprocess.Popen(command, stdout=subprocess.DEVNULL), told))
    failed = sum(process.wait() != 0 for process, _ in tuners)
    results = [json.loads(told.read_text()) for _, told in tuners if told.exists()]
    return {"seconds": seconds, "failed": failed, **compare(path, results)}


def compare(path: Path, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Numbers of records that are lost, doubled, torn or not explained by what the tuners say."""
    lost = doubled = 0
    with open_database(path, read_only=True) as database:
        records = list(database.records())
    for result in results:
        run = result["run"]["id"]
        trials = [record.trial for record in records if record.run_id == run]
        doubled += len(trials) - len(set(trials))
        lost += max(result["trials"] - result["cached"] - len(set(trials)), 0)
        if set(trials) - set(range(result["trials"])):
            lost += 1
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    return {
        "records": len(records),
        "trials": [result["trials"] for result in results],
        "cached": [result["cached"] for result in results],
        "lost": lost,
        "doubled": doubled,
        "integrity": verdict,
    }


def show(medians: Mapping[str, Mapping[int, float]]) -> None:
    """Print a table of microseconds."""
    sizes = list(next(iter(medians.values())))
    print(f"{'median, microseconds':<24}" + "".join(f"{size:>12}" for size in sizes))
    for name, of_sizes in medians.items():
        print(f"  {name:<22}" + "".join(f"{of_sizes[size] * 1e6:12.1f}" for size in sizes))


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--seconds", type=float, help="how long two tuners tune together")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = QUICK_SIZES if options.quick else SIZES
        paths = fill(folder, sizes)
        medians = measure(paths, list(made_records(sizes[0])))
        opened = opening(paths)
        show({**medians, "open": opened})
        backends = [REFERENCE] if options.quick else [REFERENCE, "tvm"]
        together = {backend: tune_together(folder, backend, seconds) for backend in backends}
    bars = [
        Bar(
            f"{name}, {sizes[-1]} records over {sizes[0]}",
            of[sizes[-1]] / of[sizes[0]],
            RATIO,
            True,
        )
        for name, of in medians.items()
    ]
    for backend, found in together.items():
        print(f"two tuners, {backend}: {found}")
        wrong = found["lost"] + found["doubled"] + found["failed"] + (found["integrity"] != "ok")
        note = f"{found['records']} records in {seconds:g} s"
        bars.append(Bar(f"two tuners, {backend}: lost, doubled or torn", wrong, 0, True, note))
    return Report({"medians": medians, "open": opened, "together": together}, bars)
