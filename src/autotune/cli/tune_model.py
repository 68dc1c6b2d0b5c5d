"""``autotune tune-model``."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve, frozen

from autotune.cli.app import ERROR, INTERRUPTED, NOTHING_FOUND, OK, UNCHECKED
from autotune.cli.arguments import BEGAN, command_of, nested, option
from autotune.cli.destinations import OutputFile
from autotune.cli.models import (
    SOURCE_HELP,
    AskedModel,
    library_option,
    read_objective,
    timed_and_saved,
)
from autotune.cli.options import TUNING, TUNING_PARTS, tuning, watching_option
from autotune.cli.output import Output, notify, notify_interrupted
from autotune.cli.progress import total_latency_log

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
    from autotune.errors import AutotuneError
    from autotune.networks.model_result import ModelResult
    from autotune.tuning.events import Event
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

GRACE_SECONDS = 5.0
GRACE_SHARE = 0.05
"""Excess over its time that a call may take before it says so: the larger of the two."""

EPILOG = """\b
Examples:
  autotune tune-model --network mobilenet_v2 --time 300 -o mobilenet.so
  autotune tune-model my_package.models:small_bert --trials 2000 --json bert.json
  autotune tune-model model.onnx --time 600 --total-latency latency.tsv
  autotune tune-model speech.onnx --dim sequence=64 --input rate=16000 --time 300
  autotune tune-model --network resnet_50 --target cuda --time 600 -o resnet.cuda

The same command resumes a run that was interrupted, and answers from the records a run that was
finished. `autotune model-tasks` shows what can be tuned before anything is, `autotune build-model`
builds the network again from the records.
"""


@frozen
class _Asked:
    model: AskedModel = nested(AskedModel, is_timed=True)
    options: TuneOptions = tuning(*TUNING, "backend", parts=TUNING_PARTS)
    objective: str | None = option(
        "--objective FUNCTION|TASK=WEIGHT,...",
        "What to minimise, in place of the sum of calls x latency: a function, "
        "package.module:function, of a dictionary with the latency of each task in seconds; or "
        "tasks with weights in place of their calls.",
    )
    library_path: str | None = library_option()
    totals_path: str | None = option(
        "--total-latency FILE",
        "Append seconds, trials and the estimated latency to this file whenever it changes, "
        "separated by tabs.",
        OutputFile("totals"),
    )
    watching: Watching = watching_option()


@command_of(
    "tune-model",
    _Asked,
    EPILOG,
    "Find fast schedules for all programs of a network on this machine, and build it.\n\n"
    + SOURCE_HELP
    + "\n\nThe budget is one for the whole network. What the search space cannot express is run "
    "by the backend's default schedule, and the table says so.",
)
def command(asked: _Asked, output: Output) -> int:
    from autotune.process import prepare_workers

    if asked.model.is_own or ":" not in asked.model.text:
        # A function may change the import path, which workers get.
        prepare_workers("autotune.measure.worker", "autotune.backends.native:NativeBackend")

    from autotune.process.interrupts import TuningInterrupted

    began: float = click.get_current_context().meta[BEGAN]
    try:
        result = _tuned(asked, began)
    except TuningInterrupted as interrupted:
        notify_interrupted(interrupted, asked.options.fresh)
        return INTERRUPTED
    limit = math.inf if asked.options.time is None else asked.options.time
    tuned = time.monotonic()

    most = limit + max(GRACE_SECONDS, GRACE_SHARE * limit)

    def left() -> float:
        return began + most - time.monotonic()

    status = _report(result, output, asked, left)
    done = time.monotonic()
    if done - began > most:
        notify(
            f"autotune: warning: the call took {done - began:.0f} s, more than --time {limit:g}: "
            f"to build, check and time the network took {done - tuned:.0f} s of them"
        )
    return status


def _tuned(asked: _Asked, began: float) -> ModelResult:
    """Read the model and tune its tasks."""
    from autotune.networks.api import run_model
    from autotune.networks.loading import ImportLimit
    from autotune.process.importing import no_collection

    model, options = asked.model, asked.options
    function, weights = read_objective(asked.objective)
    reading = evolve(model.reading(), weights=weights)
    with (
        total_latency_log(asked.totals_path) as totals,
        asked.watching.listeners(network=True, verbose=model.verbose) as listeners,
    ):
        listeners = [_keep_loaded, *totals, *listeners]
        importing = ImportLimit.of(options, model.text, lambda: time.monotonic() - began, _give_up)
        with importing.during("it was made"), no_collection():
            source = model.source(options)
            gc.freeze()
        return run_model(
            source,
            reading,
            evolve(options, objective=function, listeners=listeners),
            began=began,
            builds=True,
            saves=None if asked.library_path is None else Path(asked.library_path),
            limit=importing,
        )


def _keep_loaded(event: Event) -> None:
    """A listener: what a network is made of stays, and is not searched for garbage each time."""
    from autotune.tuning.events import NetworkLoaded

    if isinstance(event, NetworkLoaded):
        gc.freeze()


def _give_up(error: AutotuneError) -> None:
    """End the process where native code does not return: nothing of the run is written yet."""
    notify(f"autotune: error: {error}")
    os._exit(ERROR)


def _report(result: ModelResult, output: Output, asked: _Asked, left: Callable[[], float]) -> int:
    """Build the network, show and write what came of it; returns the exit status.

    Args:
        result: What came of tuning.
        output: Where to show it.
        asked: Says where the library is written to, and whether outputs are compared.
        left: Seconds that the call may still take.
    """
    from autotune.networks.model_result import DEFAULT, VIEW
    from autotune.networks.running import TIMING_SECONDS

    most_seconds = TIMING_SECONDS if math.isfinite(left()) else math.inf
    checks = not asked.model.no_check
    try:
        result = timed_and_saved(result, asked.library_path, checks, most_seconds, left)
    finally:
        # What was tuned is shown also where the network cannot be built.
        output.json(result.to_json())
        output.table(result.table())
    if result.is_tunable and all(task.run_by in (DEFAULT, VIEW) for task in result.tasks):
        notify(f"autotune: error: {result.name}: no task was tuned, as the table says")
        return NOTHING_FOUND
    if "checked" in result.skipped:
        notify(
            f"autotune: warning: {result.name}: its outputs were not compared with the model's "
            "for want of time; the same command with more time tunes the rest and compares them"
        )
        return UNCHECKED
    return OK
