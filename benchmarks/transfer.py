"""Worth of earlier runs to the next one: trials to a good program, warm and cold.

Live: every task of a list is tuned once, cold, in a database of its own. Then, for each task and
seed, a cold run in an empty database and a warm one in a database that holds the runs of all other
tasks, never of an equal one, in random order; their winners take turns, which puts both on one
clock. Counted are the trials until a run is within 5 % of the faster winner. Then the task is
tuned again, with another seed and few trials, in the cold run's database.

``--recorded`` is about other devices: a folder of Kernel Tuner caches ``KERNEL-DEVICE.json.gz``.
For each device the seeds that the kernel's other devices rank first, and then random or local
search; counted are the evaluations to 1.10 of the optimum.

Steps stay in ``--work`` and are not done again. ``--report`` shows what is there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.bars import Bar
from support.common import Report, Turns, compare, machine, tune
from support.transfer_recorded import replay_recorded

from autotune import RecordFilter, open_database
from autotune.evaluation.compare import append_piece, read_pieces
from autotune.models.training.task_list import ListedTask, TaskList

TRIALS, SEEDS = 48, 3
QUICK_TRIALS, QUICK_SEEDS, AGAIN_TRIALS = 24, 1, 8
GOAL = 1.05
DONOR_SEED, AGAIN_SEED = 1000, 2000

# Of each kind of operator two at least: what has no like has nothing to begin with.
TASKS = (
    "resnet50-conv1x1-56-64-256",
    "resnet50-conv1x1-28-512-128",
    "resnet50-conv1x1-14-256-1024",
    "resnet50-conv3x3-28-128-128",
    "resnet50-conv3x3-7-512-512",
    "mobilenetv2-depthwise-28-192",
    "mobilenetv2-depthwise-14-576",
    "bert-dense-128-768-768",
    "bert-dense-128-768-3072",
    "bert-scores-64",
    "bert-context-256",
    "bert-softmax-1536-128",
)
QUICK_TASKS = (
    "resnet50-conv1x1-28-512-128",
    "resnet50-conv1x1-14-256-1024",
    "bert-dense-128-768-768",
    "bert-dense-128-768-3072",
)


@dataclass(frozen=True)
class Study:
    """A folder of steps, and how they are made."""

    folder: Path
    tasks: tuple[ListedTask, ...]
    seeds: int
    trials: int
    threads: int | None

    @property
    def results(self) -> Path:
        """The pieces that are done."""
        return self.folder / "transfer.jsonl"

    def donor(self, task: ListedTask) -> Path:
        """The database of a task's own first run."""
        return self.folder / f"{task.name}-{self.trials}.db"

    def tune(self, task: ListedTask, seed: int, trials: int, database: Path, *more: str) -> Any:
        """Tune in a fresh process; returns what is kept of the run."""
        found, wall = tune(
            task.workload,
            task.shape,
            trials,
            seed,
            database,
            threads=self.threads,
            arguments=more,
        )
        with open_database(database, read_only=True) as opened:
            of_it = RecordFilter(workload=found["task"]["digest"])
            winner = next(iter(opened.fastest_of_each(of_it)), None)
        return {
            "wall": wall,
            "history": [best for _, _, best in found["history"]],
            "best": found["fastest"] and found["fastest"]["digest"],
            "warm_start": found["warm_start"],
            "schedule": winner and winner.to_json(),
        }


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    bars: list[Bar] = []
    data: dict[str, Any] = {}
    if options.recorded is not None:
        data["recorded"], recorded = replay_recorded(options.recorded)
        bars += recorded
    if options.recorded is None or options.tasks:
        study = study_of(options)
        if not options.report:
            measure(study)
        pieces = [it for it in read_pieces(study.results) if it["trials"] == study.trials]
        data["live"], live = report(study, pieces)
        bars += live
    return Report(data, bars)


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument("--work", type=Path, default=Path("build/transfer"), metavar="FOLDER")
    parser.add_argument("--report", action="store_true", help="only show what is in --work")
    parser.add_argument("--tasks", help="which of the list cpu-60; by default twelve of it")
    parser.add_argument("--seeds", type=int, help=f"{SEEDS}, or {QUICK_SEEDS} with --quick")
    parser.add_argument("--trials", type=int, help=f"{TRIALS}, or {QUICK_TRIALS} with --quick")
    parser.add_argument("--threads", type=int, help="of all programs; default one per core")
    parser.add_argument(
        "--recorded", type=Path, metavar="FOLDER", help="caches of other devices; nothing live"
    )
    return parser.parse_args(arguments)


def study_of(options: argparse.Namespace) -> Study:
    """The live part that is asked for."""
    named = QUICK_TASKS if options.quick else TASKS
    names = options.tasks.split(",") if options.tasks else named
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    trials = options.trials or (QUICK_TRIALS if options.quick else TRIALS)
    options.work.mkdir(parents=True, exist_ok=True)
    tasks = TaskList.read("cpu-60").only(names).tasks
    return Study(options.work, tasks, seeds, trials, options.threads)


def measure(study: Study) -> None:
    """Do the steps that are missing, in random order."""
    for task in study.tasks:
        if not any(it["task"] == task.name for it in done(study, "donor")):
            study.donor(task).unlink(missing_ok=True)
            kept = study.tune(task, DONOR_SEED, study.trials, study.donor(task))
            keep(study, "donor", task, DONOR_SEED, kept)
    pairs = [(task, seed) for task in study.tasks for seed in range(study.seeds)]
    order = np.random.default_rng(0)
    for number in order.permutation(len(pairs)).tolist():
        task, seed = pairs[number]
        if not any((it["task"], it["seed"]) == (task.name, seed) for it in done(study, "pair")):
            keep(study, "pair", task, seed, run_pair(study, task, seed, order.random() < 0.5))


def done(study: Study, kind: str) -> list[Mapping[str, Any]]:
    """The pieces of a kind that are there, with this budget."""
    pieces = read_pieces(study.results)
    return [it for it in pieces if it["kind"] == kind and it["trials"] == study.trials]


def keep(study: Study, kind: str, task: ListedTask, seed: int, piece: Mapping[str, Any]) -> None:
    """Append a piece, and say so."""
    head = {"kind": kind, "task": task.name, "seed": seed, "trials": study.trials}
    append_piece(study.results, {**head, **piece, "machine": machine()})
    print(f"{kind} {task.name} {seed} done", flush=True)


def run_pair(study: Study, task: ListedTask, seed: int, warm_first: bool) -> dict[str, Any]:
    """A cold and a warm run, the turns of their winners, and the same task again."""
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = Path(folder) / "cold.db", Path(folder) / "warm.db"
        fill(warm, [study.donor(it) for it in study.tasks if it.make() != task.make()])
        runs = {
            "warm": lambda: study.tune(task, seed, study.trials, warm),
            "cold": lambda: study.tune(task, seed, study.trials, cold),
        }
        names = ["warm", "cold"] if warm_first else ["cold", "warm"]
        found = {name: runs[name]() for name in names}
        again = study.tune(task, seed + AGAIN_SEED, AGAIN_TRIALS, cold)
    requests = {
        name: (
            {"kind": "schedule", "schedule": found[name]["schedule"], "threads": study.threads},
            sys.executable,
        )
        for name in names
    }
    turns, errors = compare(requests, Turns(rounds=50, pause=0.0, samples=3, sample_seconds=2e-3))
    latencies = {name: float(np.median(times)) for name, times in turns.items()}
    return {**found, "again": again, "turns": latencies, "errors": errors}


def fill(database: Path, donors: Sequence[Path]) -> None:
    """Let a database hold what others hold."""
    with open_database(database) as goal:
        for donor in donors:
            with open_database(donor, read_only=True) as source:
                goal.append_missing(list(source.records()))


def trials_to(piece: Mapping[str, Any], name: str) -> int:
    """Trials of a run until it is within 5 % of the faster winner; one more than all if never."""
    history, turns = piece[name]["history"], piece["turns"]
    factor = turns[name] / history[-1]
    goal = GOAL * min(turns.values())
    reached = (
        number + 1
        for number, best in enumerate(history)
        if best is not None and best * factor <= goal
    )
    return next(reached, len(history) + 1)


def report(study: Study, pieces: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[Bar]]:
    """Print what there is; returns the numbers, and the promises about them."""
    names = [task.name for task in study.tasks]
    rows, again = [], []
    for piece in pieces:
        if piece["kind"] != "pair" or piece["task"] not in names or len(piece["turns"]) < 2:
            continue
        counts = {name: trials_to(piece, name) for name in ("warm", "cold")}
        slower = piece["turns"]["warm"] / piece["turns"]["cold"]
        used = len(piece["warm"]["warm_start"])
        rows.append({"task": piece["task"], "seed": piece["seed"], "final": slower, **counts})
        print(
            f"{piece['task']:32} seed {piece['seed']}: {counts['warm']:3} trials warm, "
            f"{counts['cold']:3} cold; final latency warm / cold {slower:.3f}; {used} sources"
        )
        # The first trial is answered by the recorded best; all are seconds of one session.
        history = piece["again"]["history"]
        again.append(history[-1] / history[0])
    if not rows:
        return {"pairs": []}, [Bar("trials to 1.05, warm / cold: median", None, 1.0, at_most=True)]
    ratios = by_task(rows, lambda row: row["warm"] / row["cold"])
    finals = by_task(rows, lambda row: row["final"])
    found = {"trials": summary(ratios), "final": summary(finals)}
    for what, (middle, low, high) in found.items():
        print(f"{what}, warm / cold: median {middle:.3f} [{low:.3f}, {high:.3f}]")
    bars = [
        Bar("trials to 1.05, warm / cold: median", found["trials"][0], 1.0, at_most=True),
        Bar("the same task again / its recorded best: most", max(again), 1.0, at_most=True),
    ]
    return {"pairs": rows, "again": again, **found}, bars


def by_task(rows: Sequence[Mapping[str, Any]], value: Any) -> list[list[float]]:
    """A value of every pair, by task."""
    tasks = dict.fromkeys(row["task"] for row in rows)
    return [[value(row) for row in rows if row["task"] == task] for task in tasks]


def summary(values: Sequence[Sequence[float]], draws: int = 2000) -> tuple[float, float, float]:
    """Median over all, and its 95 % interval where tasks, and seeds in them, are drawn again."""
    rng = np.random.default_rng(0)
    medians = []
    for _ in range(draws):
        drawn = [values[task] for task in rng.integers(len(values), size=len(values))]
        medians.append(np.median([it for own in drawn for it in rng.choice(own, size=len(own))]))
    low, high = np.quantile(medians, [0.025, 0.975])
    middle = float(np.median([it for own in values for it in own]))
    return middle, float(low), float(high)
