"""``autotune model-tasks``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autotune.cli.models import (
    SOURCE_HELP,
    AskedModel,
    ReadingLines,
    model_options,
    notify_remarks,
)
from autotune.cli.options import json_option, tune_options

if TYPE_CHECKING:
    from autotune.networks.api import Coverage
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune model-tasks --network mobilenet_v2
  autotune model-tasks my_package.models:small_bert -v
  autotune model-tasks model.onnx --dim batch=1 --input image=1,3,320,480 --json tasks.json
"""


@click.command(
    "model-tasks",
    epilog=EPILOG,
    help="List the tasks of a network with their calls and flop, and which can be tuned. "
    "Graph passes depend on --target and --threads: those of tune-model list its tasks."
    + "\n\n"
    + SOURCE_HELP,
)
@model_options(check=False)
@tune_options("target", "threads", parts=("search_space",))
@json_option
def command(model: AskedModel, json_path: str | None, options: TuneOptions) -> int:
    from attrs import evolve

    from autotune.cli.app import OK
    from autotune.cli.output import Output
    from autotune.networks.api import model_tasks
    from autotune.networks.tables import coverage_table

    output = Output(json_path)
    listeners = [ReadingLines(model.verbose)]
    reading = model.reading()
    coverage = model_tasks(model.source(options), reading, evolve(options, listeners=listeners))
    notify_remarks(coverage.network)
    output.json(coverage_json(coverage))
    output.table(coverage_table(coverage))
    return OK


def coverage_json(coverage: Coverage) -> dict[str, Any]:
    """Tunable share of a network, as JSON."""
    return {
        "network": coverage.network.name,
        "backend": coverage.network.backend,
        "space": coverage.space,
        "flop": coverage.flop,
        "tunable_flop": coverage.tunable_flop,
        "passes": [
            {"name": it.name, "seconds": it.seconds, "note": it.note}
            for it in coverage.network.passes
        ],
        "tasks": [
            {
                "name": it.task.name,
                "names": list(it.task.names),
                "nodes": list(it.task.nodes),
                "digest": None if it.task.workload is None else it.task.workload.digest,
                "occurrences": it.task.occurrences,
                "flop": it.task.flop,
                "view": it.task.view,
                "tunable": it.task.is_tunable,
                "refusal": it.task.refusal,
                "sketches": it.sketches,
                "configurations": it.configurations,
                "space": it.space or None,
            }
            for it in coverage.tasks
        ],
    }
