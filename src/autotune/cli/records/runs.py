"""``autotune records runs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import existing_database_option, json_option
from autotune.cli.query import open_for_reading

if TYPE_CHECKING:
    from autotune.store.records import Run

__all__ = ["runs"]


EPILOG = """\b
Example:
  autotune records runs --database records.db --json -
"""


@click.command("runs", epilog=EPILOG)
@existing_database_option
@json_option
def runs(database: str, json_path: str | None) -> int:
    """List runs of the tuner, and which of them the same call would continue."""
    from autotune.cli.app import OK
    from autotune.cli.output import Output
    from autotune.report import Table

    output = Output(json_path)
    with open_for_reading(database) as opened:
        found = [_as_json(run) for run in opened.runs()]
    output.json(found)
    heads = ("run", "tasks", "strategy", "space", "seed>", "trials>", "status", "note")
    names = [head.rstrip(">") for head in heads]
    rows = tuple(
        tuple(_tasks(run[name]) if name == "tasks" else str(run[name]) for name in names)
        for run in found
    )
    output.table(Table("", heads, rows))
    return OK


def _as_json(run: Run) -> dict[str, Any]:
    from autotune.tuning.resume import why_not_resumable

    why = why_not_resumable(run)
    return {
        "run": run.run_id,
        "tasks": list(run.task_names),
        "strategy": run.strategy,
        "space": run.space,
        "seed": run.seed,
        "trials": _trials(run),
        "budget": run.trials or None,
        "status": run.status,
        "note": f"cannot be continued: {why}" if why else "",
        "created": run.created,
    }


def _tasks(names: list[str]) -> str:
    """The first of the tasks, and how many more there are."""
    from autotune.report import formats

    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return formats.shortened(names[0]) + more if names else "-"


def _trials(run: Run) -> int:
    """Candidates that have an outcome; the budget where nothing else is known."""
    if run.checkpoint is None:
        return run.trials
    return sum(map(len, run.checkpoint["progress"]["logs"]))
