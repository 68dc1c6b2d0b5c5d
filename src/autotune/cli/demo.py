"""``autotune demo``."""

from __future__ import annotations

import sys
from typing import Any

import click

from autotune.cli.options import (
    backend_option,
    check_log_path,
    database_option,
    json_option,
    progress_options,
    read_progress_mode,
)

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


@click.command("demo", epilog=EPILOG)
@click.option("--trials", type=int, default=64, show_default=True, help="Budget per operator.")
@backend_option
@click.option("--threads", type=int, help="Threads to run on; one per core if not given.")
@click.option("--fresh", is_flag=True, help="Ignore the records and earlier runs.")
@database_option
@progress_options
@json_option
def command(
    progress_mode: str | None,
    quiet: bool,
    log_path: str | None,
    json_path: str | None,
    **settings: Any,
) -> int:
    """Tune a matrix product and a convolution here, and show what it gained.

    Run again, it answers from the records.
    """
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.event_log import event_log
    from autotune.cli.machine import BusyWarning
    from autotune.cli.output import Output
    from autotune.cli.progress import chosen_mode, progress
    from autotune.cli.vendor import VENDOR_NAME, time_vendor
    from autotune.plugins.workload_names import make_workload
    from autotune.report import comparison_table
    from autotune.tuning.api import tune

    check_log_path(log_path, json_path)
    mode = chosen_mode(read_progress_mode(progress_mode, quiet), sys.stderr)
    output = Output(json_path, log_path)
    results = []
    tables = []
    for name, shape in OPERATORS:
        with event_log(log_path) as logs, progress(sys.stderr, mode) as listeners:
            listeners += [*logs, *([] if mode == "quiet" else [BusyWarning()])]
            result = tune(make_workload(name, shape), listeners=listeners, **settings)
        timing = time_vendor(result)
        results.append((result, timing))
        caveat = timing.caveat if timing else ""
        outcome = timing.outcome if timing else None
        tables.append(comparison_table(result, outcome, VENDOR_NAME, caveat))
    for table in tables:
        output.say()
        output.table(table)
    output.json(
        [
            {**result.to_json(), "vendor": timing.to_json() if timing else None}
            for result, timing in results
        ]
    )
    failed = any(result.best is None for result, _ in results)
    return NOTHING_FOUND if failed else OK
