"""``autotune train record`` and ``info``: training data of many tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    database_option,
    existing_database_option,
    json_option,
    progress_options,
    tune_options,
    watched,
)
from autotune.cli.protocols import protocol_option, read_protocol
from autotune.cli.query import open_for_reading
from autotune.cli.task_lists import task_list_options
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
    from autotune.models.training import ListedTask, TaskList
    from autotune.report import Table
    from autotune.tuning.events import EventListener
    from autotune.tuning.options import TuneOptions
    from autotune.tuning.recording import RecordedTask

__all__ = ["info", "record"]

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


@click.command("record", epilog=RECORD_EPILOG)
@database_option
@task_list_options(required=True)
@click.option(
    "--programs", type=int, default=300, show_default=True, help="Candidates of each task."
)
@click.option(
    "--random-share",
    type=float,
    default=0.5,
    show_default=True,
    help="Share of the candidates that is random; the others are evolved.",
)
@protocol_option(
    "How candidates are timed: quick, which is the default, standard as in tune, or a setting "
    "such as deadlines.build=60; may be repeated."
)
@tune_options("time", "seed", "target", "backend", "threads", parts=("search_space", "cost_model"))
@progress_options
@json_option
@watched
def record(
    database: str,
    task_list: str,
    only: tuple[str, ...],
    protocol: tuple[str, ...],
    programs: int,
    random_share: float,
    watching: Watching,
    json_path: str | None,
    options: TuneOptions,
) -> int:
    """Measure random and evolved schedules of every task of a list.

    Each task is an ordinary run. The same command continues where it was interrupted.
    """
    from attrs import evolve

    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output
    from autotune.models.training import TaskList
    from autotune.tuning.recording import record_tasks

    listed = TaskList.read(task_list).only(only)
    listed.workloads()
    for task in listed.tasks:
        if task.options:
            raise InvalidValueError(
                f"{listed.place(task)}: options are those of `autotune tune`; tasks are recorded "
                "alike: leave them out"
            )
    output = Output(json_path, watching.log_path)
    done = record_tasks(
        listed.tasks,
        evolve(options, database=database, protocol=read_protocol(protocol, usual="quick")),
        programs=programs,
        random_share=random_share,
        watching=_watching(listed, watching),
    )
    complete = sum(task.is_complete for task in done)
    output.json(
        {
            "database": database,
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
    from autotune.cli.output import notify

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


@click.command("info", epilog=INFO_EPILOG)
@existing_database_option
@json_option
def info(database: str, json_path: str | None) -> int:
    """Show the recorded tasks: programs, outcomes, spread of the latencies."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output, notify
    from autotune.report import spread_table, spreads

    with open_for_reading(database) as opened:
        found = spreads(opened.records())
    output = Output(json_path)
    output.json([spread.to_json() for spread in found])
    if not found:
        notify(f"autotune: {database} has no records")
        return NOTHING_FOUND
    output.table(spread_table(found))
    return OK
