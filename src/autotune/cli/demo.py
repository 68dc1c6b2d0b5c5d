"""``autotune demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve, frozen

from autotune.cli.app import NOTHING_FOUND, OK
from autotune.cli.arguments import command_of
from autotune.cli.options import tuning, watching_option
from autotune.cli.output import Output

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


@frozen
class _Asked:
    options: TuneOptions = tuning("trials", "backend", "threads", "fresh", "database")
    watching: Watching = watching_option()


@command_of("demo", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Tune a matrix product and a convolution on this machine, and show the speed-up.

    A second run answers from the records.
    """
    from autotune.cli.vendor import time_vendor
    from autotune.plugins.workload_names import make_workload
    from autotune.report import comparison_table
    from autotune.tuning.api import run_tasks

    results = []
    tables = []
    for name, shape in OPERATORS:
        with asked.watching.listeners() as listeners:
            options = evolve(asked.options, listeners=listeners)
            (result,) = run_tasks([make_workload(name, shape)], options)
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
