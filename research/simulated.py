"""Comparison of strategies by trials, on outcomes that were learned from recorded ones.

    python research/simulated.py --database FILE [--quick] [--results FILE] [--report]
                                 [--tasks LABEL,...] [--contenders NAME,...]
                                 [--contender NAME ARGUMENTS] [--seeds N] [--jobs N]
                                 [--json FILE] [--check]

Nothing is measured: the outcomes of `autotune train record` say what a candidate takes, see
`simulation.py`, so that a busy machine does not matter. Tasks are those whose outcomes trees
explain best. A run of a contender on a task with a seed is a piece: it is appended to
``--results``, and what is there already is not done again. ``--report`` shows what is there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
from simulation import Fit, Player, Task, Truth, chosen_tasks, fit_of, grown, play
from strategies import (
    CHECKPOINT,
    CHECKPOINTED,
    SEEDS,
    STRATEGIES,
    TRIALS,
    check_same_arguments,
)
from support.common import basic_parser, finish_with
from support.search_quality import Figure, interval_of, latency_over, trials_to_target
from support.strategy_report import (
    ABLATIONS,
    BASELINE,
    REFERENCE,
    ROUND_SIZE,
    TOLERANCE,
    Study,
    bars_of,
    print_report,
)

from autotune import open_database
from autotune.cli.options import read_options
from autotune.evaluation.compare import append_piece, read_pieces
from autotune.models.cost import trained_model
from autotune.models.training import only_target, training_groups
from autotune.plugins.manager import manager
from autotune.report import Table
from autotune.tuning.options import chosen_parts

MOST_TASKS, QUICK_TASKS, QUICK_SEEDS = 6, 2, 1
# Recorded outcomes that a truth is grown from, at least.
LEAST_OUTCOMES = 200


@dataclass(frozen=True)
class Piece:
    """A run of one contender on one task with one seed.

    Attributes:
        workload: Label of the task.
        contender: What tunes it.
        seed: Of all that is random in it.
        trials: Its budget.
        truth: Digest of the truth.
    """

    workload: str
    contender: str
    seed: int
    trials: int
    truth: str

    @staticmethod
    def of(line: Mapping[str, Any]) -> Piece:
        """The piece that a line of the results is."""
        return Piece(*(line[name] for name in Piece.__dataclass_fields__))


def main() -> int:
    """Run; returns the exit status."""
    options = options_of()
    players = {name: player_of(options.arguments[name]) for name in options.contenders}
    tasks = tasks_of(options.database)
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "simulated.jsonl"
        fits = fits_of(options, tasks, results)
        labels = labels_of(options, tasks, fits)
        truths = {label: grown(tasks[label], fits[label]) for label in labels}
        wanted = [
            Piece(label, contender, seed, options.trials, truths[label].digest)
            for seed in range(options.seeds)
            for label in labels
            for contender in options.contenders
        ]
        if not options.report:
            run_all(options, wanted, truths, players, results)
        study = study_of(read_pieces(results), wanted)
    print_report(study, measured=False)
    print(f"\n{summary_table(study).to_text()}", flush=True)
    expected = {(it.workload, it.contender): options.seeds for it in wanted}
    bars = bars_of(study, expected, (), measured=False) if options.trials == TRIALS else []
    told = {"tasks": {label: describe(tasks[label], fits[label]) for label in labels}}
    return finish_with(options, {**told, **study.to_json()}, bars)


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; ``arguments`` are those of each contender."""
    parser = basic_parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--database", type=Path, required=True, help="recorded outcomes")
    parser.add_argument("--results", type=Path, metavar="FILE", help="where the pieces are")
    parser.add_argument("--report", action="store_true", help="only show what is in --results")
    parser.add_argument("--tasks", metavar="LABEL,...", help="which, however well explained")
    parser.add_argument("--most-tasks", type=int, help=f"{MOST_TASKS}, or {QUICK_TASKS} quickly")
    parser.add_argument("--contenders", help=f"which; by default all but {CHECKPOINTED}")
    parser.add_argument(
        "--contender",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "ARGUMENTS"),
        help="another, such as: 'felix alone' '--strategy felix --strategy-option repairs=0'",
    )
    parser.add_argument("--trials", type=int, default=TRIALS, help="budget; bars need the default")
    parser.add_argument("--seeds", type=int, help=f"{SEEDS}, or {QUICK_SEEDS} with --quick")
    parser.add_argument("--jobs", type=int, default=1, help="processes that run at once")
    parser.add_argument("--time", type=float, help="seconds after which no piece is begun")
    options = parser.parse_args(arguments)
    options.seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    options.most_tasks = options.most_tasks or (QUICK_TASKS if options.quick else MOST_TASKS)
    if not options.database.exists():
        parser.error(f"there is no {options.database}")
    if options.report and (options.results is None or not options.results.exists()):
        parser.error("--report needs a file of --results that exists")
    if options.check and options.trials != TRIALS:
        parser.error(f"--check needs {TRIALS} trials: the bars are about them")
    own = {name: tuple(shlex.split(text)) for name, text in options.contender}
    for name in sorted(set(STRATEGIES) & set(own)):
        parser.error(f"--contender {name}: that name is taken")
    strategies = {name: STRATEGIES[name] for name in STRATEGIES if name in _installed()}
    if CHECKPOINTED in strategies:
        strategies[CHECKPOINTED] += ("--load-cost-model", CHECKPOINT)
    options.arguments = {**strategies, **own}
    if options.contenders:
        options.contenders = [*options.contenders.split(","), *own]
    else:
        left_out = {CHECKPOINTED}
        if options.quick:
            left_out.update(it for found in ABLATIONS.values() for it in found)
        options.contenders = [name for name in options.arguments if name not in left_out]
    for name in options.contenders:
        if name not in options.arguments:
            allowed = ", ".join(sorted(options.arguments))
            parser.error(f"there is no contender {name!r} here, only {allowed}")
    return options


def _installed() -> Sequence[str]:
    return manager().names("strategy")


def player_of(arguments: Sequence[str]) -> Player:
    """The player that arguments of `autotune tune` mean, with its defaults."""
    parser = argparse.ArgumentParser(prog="a contender", allow_abbrev=False)
    parser.add_argument("--strategy", default=REFERENCE)
    parser.add_argument("--strategy-option", action="append", default=[])
    parser.add_argument("--cost-model")
    parser.add_argument("--cost-model-option", action="append", default=[])
    parser.add_argument("--load-cost-model")
    parser.add_argument("--pruning-model", default="psa")
    given = parser.parse_args(arguments)
    file = given.load_cost_model
    cost_options = read_options(given.cost_model_option, "--cost-model-option")
    chosen = chosen_parts(
        {
            "strategy": (given.strategy, read_options(given.strategy_option, "--strategy-option")),
            "cost_model": (given.cost_model, cost_options) if given.cost_model else cost_options,
            "pruning_model": given.pruning_model,
        },
        {},
    )
    cost_model, pruning_model = chosen["cost_model"], chosen["pruning_model"]
    return Player(
        strategy=chosen["strategy"].name,
        cost_model="random" if cost_model.is_none else cost_model.name,
        pruning_model=None if pruning_model.is_none else pruning_model.name,
        strategy_options=chosen["strategy"].options,
        cost_model_options=cost_model.options,
        model_file=None if file is None else trained_model(file),
    )


def tasks_of(database: Path) -> dict[str, Task]:
    """Tasks of a database with enough outcomes, by label."""
    with open_database(database, read_only=True) as opened:
        records = list(opened.records())
    if not records:
        raise SystemExit(f"{database} has no records")
    backends = {record.key.backend for record in records}
    if len(backends) > 1:
        raise SystemExit(f"{database} has records of {', '.join(sorted(backends))}: one is needed")
    target, (backend,) = only_target(records), backends
    tasks = [
        Task.of(group, place, target, backend)
        for place, group in enumerate(training_groups(records))
        if group.is_informative
    ]
    return {task.label: task for task in tasks if len(task.candidates) >= LEAST_OUTCOMES}


def fits_of(
    options: argparse.Namespace, tasks: Mapping[str, Task], results: Path
) -> dict[str, Fit]:
    """Fits of trees to the tasks that are asked for, or all; a fit is a piece, too."""
    labels = list(tasks)
    if options.tasks:
        labels = options.tasks.split(",")
        for label in labels:
            if label not in tasks:
                raise SystemExit(f"there is no task {label!r}, only {', '.join(tasks)}")
    known = {
        line["data"]: Fit(line["explained"], line["residual"], line["own"])
        for line in read_pieces(results)
        if line["kind"] == "fit"
    }
    fits = {}
    for label in labels:
        data = tasks[label].digest
        if data not in known:
            known[data] = fit_of(tasks[label])
            append_piece(
                results, {"kind": "fit", "task": label, "data": data, **asdict(known[data])}
            )
        fits[label] = known[data]
    return fits


def labels_of(
    options: argparse.Namespace, tasks: Mapping[str, Task], fits: Mapping[str, Fit]
) -> list[str]:
    """The tasks to tune; they are printed with what is known of them."""
    labels = list(fits)
    if not options.tasks:
        operators = {label: tasks[label].workload.name for label in fits}
        labels = chosen_tasks(fits, operators, options.most_tasks)
        good = sum(fit.is_good for fit in fits.values())
        print(f"{good} of {len(fits)} tasks are explained well enough", flush=True)
    if not labels:
        raise SystemExit("there is no task that trees explain well enough")
    for label in labels:
        fit = fits[label]
        rest = f"sd of the rest {fit.residual:.3f}, of fast ones' {fit.own:.3f}"
        count = len(tasks[label].candidates)
        print(f"{label}: R^2 {fit.explained:.2f}, {rest}, {count} outcomes", flush=True)
    return labels


def describe(task: Task, fit: Fit) -> dict[str, Any]:
    """A task for the results."""
    return {"workload": task.workload.to_json(), "outcomes": len(task.candidates), **asdict(fit)}


def run_all(
    options: argparse.Namespace,
    wanted: Sequence[Piece],
    truths: Mapping[str, Truth],
    players: Mapping[str, Player],
    results: Path,
) -> None:
    """Do the pieces that are missing, in processes."""
    lines = [line for line in read_pieces(results) if line["kind"] == "run"]
    named = {name: named_arguments(options, players, name) for name in players}
    check_same_arguments(lines, named)
    done = {Piece.of(line) for line in lines}
    # Every process has one core, and forests and networks know of no other.
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    began, number = time.monotonic(), 0
    known = [truth.to_json() for truth in truths.values()], dict(players)
    with ProcessPoolExecutor(options.jobs, context, _begin, known) as pool:
        futures = {pool.submit(_run, piece): piece for piece in wanted if piece not in done}
        for future in as_completed(futures):
            piece = futures[future]
            if future.cancelled():
                continue
            if options.time is not None and time.monotonic() - began > options.time:
                pool.shutdown(wait=False, cancel_futures=True)
            number += 1
            if (line := _line_of(future, piece)) is not None:
                arguments = named[piece.contender]
                append_piece(
                    results, {"kind": "run", **vars(piece), "arguments": arguments, **line}
                )
                shown = f"{line['latency'] * 1e3:.4g} ms, {line['wall']:.0f} s of the processor"
                print(f"{number} {piece.workload} {piece.contender}/{piece.seed}: {shown}")
            sys.stdout.flush()


def named_arguments(
    options: argparse.Namespace, players: Mapping[str, Player], contender: str
) -> list[str]:
    """A contender's arguments for the results: a model file counts by what is in it."""
    arguments = list(options.arguments[contender])
    file = players[contender].model_file
    if file is not None:
        arguments[arguments.index("--load-cost-model") + 1] = file.digest
    return ["--round-size", str(ROUND_SIZE), *arguments]


def _line_of(future: Future[dict[str, Any]], piece: Piece) -> dict[str, Any] | None:
    error = future.exception()
    if error is None:
        return future.result()
    print(f"{piece.workload} {piece.contender}/{piece.seed}: {type(error).__name__}: {error}")
    return None


_at_hand: dict[str, Any] = {}


def _begin(truths: Sequence[Mapping[str, Any]], players: Mapping[str, Player]) -> None:
    """State of a process for all its pieces."""
    made = [Truth.from_json(data) for data in truths]
    _at_hand.update(truths={truth.label: truth for truth in made}, players=players)


def _run(piece: Piece) -> dict[str, Any]:
    truth, player = _at_hand["truths"][piece.workload], _at_hand["players"][piece.contender]
    return play(truth, player, piece.seed, piece.trials, ROUND_SIZE)


def study_of(lines: Sequence[Mapping[str, Any]], wanted: Sequence[Piece]) -> Study:
    """The runs that are asked for; their winners need no turns, as their latencies are true."""
    asked = set(wanted)
    runs = [line for line in lines if line["kind"] == "run" and Piece.of(line) in asked]
    turns: dict[str, dict[str, list[float]]] = {}
    for line in runs:
        if line["latency"] is not None:
            label = f"{line['contender']}/{line['seed']}"
            turns.setdefault(line["workload"], {})[label] = [line["latency"]]
    trials = wanted[0].trials
    of_all = [
        {"kind": "turns", "workload": workload, "trials": trials, "turns": found}
        for workload, found in turns.items()
    ]
    return Study.read([*runs, *of_all], trials)


def summary_table(study: Study) -> Table:
    """A line for each contender, over the tasks on which it and the references have runs."""
    near = partial(trials_to_target, tolerance=TOLERANCE)
    columns: dict[str, tuple[str, Figure]] = {
        f"trials to {BASELINE}'s>": (BASELINE, trials_to_target),
        f"trials to {REFERENCE}'s + {TOLERANCE:.0%}>": (REFERENCE, near),
        f"result over {REFERENCE}'s>": (REFERENCE, latency_over),
    }
    rows = []
    for contender in dict.fromkeys(contender for _, contender in study.runs):
        runs = sum(len(found) for (_, who), found in study.runs.items() if who == contender)
        cells = [_beside(study, contender, *column) for column in columns.values()]
        rows.append((contender, str(runs), *cells))
    title = "all tasks: geometric means with their 95 % intervals"
    return Table(title, ("contender", "runs>", *columns), tuple(rows))


def _beside(study: Study, contender: str, reference: str, figure: Figure) -> str:
    """A figure of a contender, over the tasks where both have runs."""
    cells = set(study.runs)
    tasks = [it for it in study.by_workload() if {(it, contender), (it, reference)} <= cells]
    if not tasks:
        return "-"
    found = interval_of(figure, study.of(contender, tasks), study.of(reference, tasks))
    return f"{found.value:.3g} [{found.low:.3g}, {found.high:.3g}]"


if __name__ == "__main__":
    sys.exit(main())
