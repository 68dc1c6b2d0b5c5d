"""``autotune train``: training data, and cost models trained on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen

from autotune.cli.app import NOTHING_FOUND, OK, CommandGroup
from autotune.cli.arguments import command_of, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import (
    database_option,
    protocol_option,
    read_database,
    read_options,
    read_protocol,
    tuning,
    watching_option,
)
from autotune.cli.output import Output, notify
from autotune.cli.query import MOST_THREADS, open_for_reading
from autotune.cli.task_lists import only_option, tasks_option
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
    from autotune.models.training import FoldScore, ListedTask, TaskList, Trained
    from autotune.report import Table
    from autotune.targets import Target
    from autotune.tuning.api import RecordedTask
    from autotune.tuning.events import EventListener
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

RECORD_EPILOG = """\b
Examples:
  autotune train record --tasks cpu-60 --database cpu.db
  autotune train record --tasks cpu-60 --only tvm-gmm-128 --programs 50
  autotune train record --tasks mine.json --time 600 --database cpu.db

A list of your own is a file of JSON, {"tasks": [{"name": "small", "workload": "gemm", "shape":
{"m": 64, "n": 64, "k": 64}}]}, or of TOML, as for `autotune tune --tasks`.
"""
INFO_EPILOG = """\b
Example:
  autotune train info --database cpu.db
"""


@frozen
class _Record:
    database: str = database_option()
    task_list: str = tasks_option()
    only: tuple[str, ...] = only_option()
    programs: int = option("--programs", "Candidates of each task.", shown=300)
    random_share: float = option(
        "--random-share",
        "Share of the candidates that is random; the others are evolved.",
        shown=0.5,
    )
    protocol: tuple[str, ...] = protocol_option(
        "How candidates are timed: quick, which is the default, standard as in tune, or a "
        "setting such as deadlines.build=60; may be repeated."
    )
    options: TuneOptions = tuning(
        *("time", "seed", "target", "backend", "threads"), parts=("search_space", "cost_model")
    )
    watching: Watching = watching_option()


@command_of("record", _Record, RECORD_EPILOG)
def record(asked: _Record, output: Output) -> int:
    """Measure random and evolved schedules of every task of a list.

    Each task is an ordinary run. The same command continues where it was interrupted.
    """
    from autotune.models.training import TaskList
    from autotune.tuning.api import record_tasks

    listed = TaskList.read(asked.task_list).only(asked.only)
    listed.workloads()
    for task in listed.tasks:
        if task.options:
            raise InvalidValueError(
                f"{listed.place(task)}: options are those of `autotune tune`; tasks are recorded "
                "alike: leave them out"
            )
    protocol = read_protocol(asked.protocol, usual="quick")
    done = record_tasks(
        listed.tasks,
        evolve(asked.options, database=asked.database, protocol=protocol),
        programs=asked.programs,
        random_share=asked.random_share,
        watching=_watching(listed, asked.watching),
    )
    complete = sum(task.is_complete for task in done)
    output.json(
        {
            "database": asked.database,
            "tasks": [task.to_json() for task in done],
            "complete": complete,
            "listed": len(listed.tasks),
        }
    )
    output.table(_recorded_table(done))
    left = len(listed.tasks) - complete
    output.say(
        f"{complete} of {len(listed.tasks)} tasks are complete"
        + ("; run the same command to continue" if left else "")
    )
    return OK if any(task.trials for task in done) else NOTHING_FOUND


def _watching(
    listed: TaskList, asked: Watching
) -> Callable[[ListedTask], AbstractContextManager[Sequence[EventListener]]]:
    """Says which task it is, and shows its progress as ``autotune tune`` does."""
    places = {task.name: place for place, task in enumerate(listed.tasks, 1)}

    @contextmanager
    def watching(task: ListedTask) -> Iterator[Sequence[EventListener]]:
        if asked.mode != "quiet":
            notify(f"task {places[task.name]} of {len(places)}: {task.name}")
        with asked.listeners(looks_at_machine=False) as listeners:
            yield listeners

    return watching


def _recorded_table(done: Sequence[RecordedTask]) -> Table:
    from autotune.report import Table, formats

    rows = []
    for item in done:
        best = None if item.result is None else item.result.best
        valid = 0 if item.result is None else item.result.outcomes["ok"]
        state = item.failure or ("complete" if item.is_complete else "to be continued")
        latency = formats.seconds(None if best is None else best.latency)
        rows.append((item.task.name, str(item.trials), str(valid), latency, state))
    return Table("", ("task", "programs>", "ok>", "best>", "state"), tuple(rows))


@frozen
class _Info:
    database: str = read_database()


@command_of("info", _Info, INFO_EPILOG)
def info(asked: _Info, output: Output) -> int:
    """Show the recorded tasks: programs, outcomes, spread of the latencies."""
    from autotune.report import spread_table, spreads

    with open_for_reading(asked.database) as opened:
        found = spreads(opened.records())
    output.json([spread.to_json() for spread in found])
    if not found:
        notify(f"autotune: {asked.database} has no records")
        return NOTHING_FOUND
    output.table(spread_table(found))
    return OK


FIT_EPILOG = """\b
Examples:
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz --hold-out 5
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz --hold-out softmax,dense
"""


@frozen
class _Fit:
    cost_model: str = option("--cost-model", "Which learned model.", shown="gbdt")
    cost_model_options: tuple[str, ...] = option(
        "--cost-model-option K=V", "Option of the learned model; may be repeated."
    )
    database: str = read_database()
    target: str | None = option(
        "--target", "cpu, a preset, or a JSON file; not needed where there is one.", InputFile()
    )
    threads: int | None = option("--threads", "Threads that the target runs programs on.")
    hold_out: str | None = option(
        "--hold-out FOLDS|TASK,...",
        "Also evaluate it on unseen tasks: that many folds, or these tasks, which are left out "
        "of the file.",
    )
    seed: int = option("--seed", "Seed of the training.", shown=0)
    training_threads: int = option(
        "--training-threads", "Threads to train with.", click.IntRange(1, MOST_THREADS), shown=1
    )
    output: str = option(
        "--output FILE", "Write the model to this file, as npz.", OutputFile("model")
    )


@command_of("fit", _Fit, FIT_EPILOG)
def fit(asked: _Fit, output: Output) -> int:
    """Train a cost model on the records of a database, for tune --load-cost-model."""
    from autotune.models import ModelContext
    from autotune.models.training import make_trainable, only_target, train, training_groups
    from autotune.plugins.parts import check_part
    from autotune.store.jsonl import replacing

    check_part("cost_model", asked.cost_model)
    options = read_options(asked.cost_model_options, "--cost-model-option")
    folds, held_out = _read_hold_out(asked.hold_out)
    with open_for_reading(asked.database) as opened:
        records = list(opened.records())
    groups = [group for group in training_groups(records) if group.is_informative]
    if not groups:
        text = f"autotune: {asked.database} has no valid record to learn from; no file is written"
        click.echo(text, err=True)
        return NOTHING_FOUND
    target = only_target(records, _wanted(asked.target, asked.threads))
    groups = training_groups(it for it in records if it.key.target == target.fingerprint)
    context = ModelContext(
        target=target, seed=asked.seed, threads=asked.training_threads, options=options
    )
    with replacing(asked.output) as stream:
        trained = train(
            lambda: make_trainable(asked.cost_model, context),
            groups,
            folds=folds,
            held_out=held_out,
            seed=asked.seed,
        )
        trained.model.save(stream)
    output.json(_as_json(trained, asked, target))
    if trained.scores:
        output.table(_quality_table(trained.scores))
    tasks = len({group.workload for group in trained.groups})
    what = f"{asked.cost_model}, trained on {trained.rows} programs of {tasks} tasks"
    output.say(f"{what}, is in {asked.output}")
    return OK


def _read_hold_out(text: str | None) -> tuple[int, list[str]]:
    """Read the number of folds, and the tasks that are held out."""
    if text is None:
        return 0, []
    if text.isdigit():
        return int(text), []
    return 0, [name.strip() for name in text.split(",")]


def _wanted(target: str | None, threads: int | None) -> Target | None:
    from autotune.tuning.options import described_target

    if target is None:
        if threads is not None:
            raise InvalidValueError("--threads is of a target: name it by --target")
        return None
    return described_target(target, threads)


def _as_json(trained: Trained, asked: _Fit, target: Target) -> dict[str, Any]:
    return {
        "cost_model": asked.cost_model,
        "file": asked.output,
        "target": {
            "name": target.name,
            "cores": target.cores,
            "fingerprint": target.fingerprint,
        },
        "tasks": [group.name for group in trained.groups],
        "programs": trained.rows,
        "training": dict(trained.facts),
        "held_out": [{"tasks": list(it.names), **it.figures} for it in trained.scores],
    }


def _quality_table(scores: Sequence[FoldScore]) -> Table:
    from autotune.models.training import mean_figures
    from autotune.report import Table

    names = list(scores[0].figures)
    rows = [
        (f"{len(score.names)} tasks", *(f"{score.figures[name]:.3f}" for name in names))
        for score in scores
    ]
    if len(scores) > 1:
        means = mean_figures(scores)
        rows.append(("mean", *(f"{means[name]:.3f}" for name in names)))
    return Table("", ("judged by", *(f"{name}>" for name in names)), tuple(rows))


EPILOG = """\b
Examples:
  autotune train record --tasks cpu-60 --time 3600 --database cpu.db
  autotune train info --database cpu.db
  autotune train fit --cost-model gbdt --database cpu.db --output gbdt.npz --hold-out 5

Then: autotune tune gemm --shape m=512,n=512,k=512 --cost-model gbdt --load-cost-model gbdt.npz
"""


@click.group("train", cls=CommandGroup, epilog=EPILOG)
def command() -> None:
    """Record schedules of many tasks, and train a cost model on them.

    Every command takes --json.
    """


for _member in (record, fit, info):
    command.add_command(_member)
