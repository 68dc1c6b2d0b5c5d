"""``autotune demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    json_option,
    progress_options,
    tune_options,
    watched,
)

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

EPILOG = """\b
Example:
  autotune demo --json demo.json
"""

OPERATORS: tuple[tuple[str, dict[str, int]], ...] = (
    ("gemm", {"m": 512, "n": 512, "k": 512}),
    ("conv2d", {"h": 14, "w": 14, "ci": 256, "co": 256, "kh": 3, "kw": 3, "pad": 1}),
)
"""A matrix product, and a convolution of ResNet; both float32."""

NETWORKS = "A whole network: autotune tune-model --network mobilenet_v2 --time 300"


@click.command("demo", epilog=EPILOG)
@tune_options("trials", "backend", "threads", "fresh", "database")
@progress_options
@json_option
@watched
def command(
    watching: Watching,
    json_path: str | None,
    options: TuneOptions,
) -> int:
    """Tune a matrix product and a convolution on this machine, and show the speed-up.

    A second run answers from the records.
    """
    from attrs import evolve

    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import Output
    from autotune.cli.vendor import time_vendor
    from autotune.plugins.workload_names import make_workload
    from autotune.report import comparison_table
    from autotune.tuning.api import run_tasks

    output = Output(json_path, watching.log_path)
    results = []
    tables = []
    for name, shape in OPERATORS:
        with watching.listeners() as listeners:
            asked = evolve(options, listeners=listeners)
            (result,) = run_tasks([make_workload(name, shape)], asked)
        timing = time_vendor(result)
        results.append((result, timing))
        compared = (timing.outcome, timing.name, timing.caveat) if timing else ()
        tables.append(comparison_table(result, *compared))
    for table in tables:
        output.say()
        output.table(table)
    output.say()
    output.say(NETWORKS)
    output.json(
        [
            {**result.to_json(), "vendor": timing.to_json() if timing else None}
            for result, timing in results
        ]
    )
    failed = any(result.best is None for result, _ in results)
    return NOTHING_FOUND if failed else OK
