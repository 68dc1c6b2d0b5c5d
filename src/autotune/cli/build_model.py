"""``autotune build-model``."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.destinations import OutputFile
from autotune.cli.models import (
    SOURCE_HELP,
    AskedModel,
    ReadingLines,
    model_options,
    notify_remarks,
)
from autotune.cli.options import json_option, tune_options
from autotune.cli.output import notify

if TYPE_CHECKING:
    from autotune.networks.model_result import ModelResult
    from autotune.tuning.options import TuneOptions

__all__ = ["command", "library_option", "timed_and_saved"]

# Inferences that timing a network takes at least: two that are timed, and two by task.
_TIMED_CALLS = 4

_MOST_UNDECIDED = 0.25

EPILOG = """\b
Examples:
  autotune build-model --network mobilenet_v2 -o mobilenet.so
  autotune build-model model.onnx --database records.db -o model.so
  autotune build-model model.mlir -o library.mlir
  autotune build-model --network resnet_50 --target h100 -o resnet.cuda
"""

library_option = click.option(
    "--output",
    "-o",
    "library_path",
    metavar="FILE",
    type=OutputFile("library"),
    help="Write the network with its weights to this file, a shared library; for CUDA devices an "
    "archive of machine code; of an MLIR module, the schedules of its functions as a transform "
    "library.",
)


@click.command(
    "build-model",
    epilog=EPILOG,
    help="Build a network with the fastest schedules that the database has for its tasks, and "
    "time it. Tasks without a record are run by the backend's default schedule.\n\n" + SOURCE_HELP,
)
@model_options(reads_database=True)
@tune_options("target", "threads", "backend", "database")
@library_option
@json_option
def command(
    model: AskedModel, library_path: str | None, json_path: str | None, options: TuneOptions
) -> int:
    from attrs import evolve

    from autotune.cli.app import OK
    from autotune.cli.output import Output
    from autotune.networks.api import build_recorded

    output = Output(json_path)
    listeners = [ReadingLines(model.verbose)]
    reading = model.reading()
    recorded = build_recorded(model.source(options), reading, evolve(options, listeners=listeners))
    notify_remarks(recorded.network)
    result = timed_and_saved(recorded, library_path, model.check)
    output.json(result.to_json())
    output.table(result.table())
    return OK


def timed_and_saved(
    result: ModelResult,
    library_path: str | None,
    check: bool,
    most_seconds: float = math.inf,
    left: Callable[[], float] = lambda: math.inf,
) -> ModelResult:
    """Build a network, write it where a path is given, and time it.

    Args:
        result: What is run for its tasks.
        library_path: Where to; ``"-"`` is refused, for a library is no text.
        check: Whether its outputs are compared with the model's.
        most_seconds: About how long it may be timed.
        left: Seconds that there are, once it has been built. A network that would take longer, or
            that needs a device that is not here, is not called: the result says what was
            ``skipped``.

    Raises:
        AutotuneError: the network cannot be built, computes something else, or cannot be written.
    """
    from attrs import evolve

    from autotune.networks.model_result import DEFAULT, percent_text
    from autotune.networks.running import TIMING_SECONDS, check_network, saving_seconds

    compiled = result.build(check=False)
    saving = saving_seconds(result.network.weight_bytes) if library_path else 0.0

    def calls(then: float) -> float:
        """Number of inferences there is time for, with so many seconds kept for what follows."""
        if compiled.lacks:
            return 0.0
        return max(left() - then, TIMING_SECONDS) / max(result.expected, 1e-9)

    checks = check and calls(saving) >= 1
    if checks and not check_network(result.network, compiled, target=result.target):
        notify(
            f"autotune: warning: {result.name}: its outputs were not compared: the model itself "
            "does not run here"
        )
    if result.undecided > _MOST_UNDECIDED:
        names = [it.name for it in result.tasks if it.run_by == DEFAULT]
        notify(
            f"autotune: warning: {result.name}: {len(names)} of {len(result.tasks)} tasks have no "
            f"record, which are {percent_text(result.undecided, 1.0)} of its time: tune it longer "
            "(autotune tune-model)"
        )
    if library_path is not None:
        for remark in compiled.save(Path(library_path)):
            notify(remark)
    times = calls(0.0) >= _TIMED_CALLS
    skipped = [
        name
        for name, is_left_out in (("checked", check and not checks), ("timed", not times))
        if is_left_out
    ]
    result = evolve(result, skipped=tuple(skipped), lacks=compiled.lacks)
    return result.timed(compiled, most_seconds) if times else result
