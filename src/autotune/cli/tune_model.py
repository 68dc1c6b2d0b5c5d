"""``autotune tune-model``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from autotune.cli.build_model import library_option, timed_and_saved
from autotune.cli.destinations import OutputFile
from autotune.cli.models import SOURCE_HELP, AskedModel, model_options
from autotune.cli.options import (
    TUNING,
    TUNING_PARTS,
    json_option,
    progress_options,
    read_progress_mode,
    tune_options,
)

if TYPE_CHECKING:
    from autotune.cli.output import Output
    from autotune.networks.model_result import ModelResult
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune tune-model --network mobilenet_v2 --time 300 -o mobilenet.so
  autotune tune-model my_package.models:small_bert --trials 2000 --json bert.json
  autotune tune-model model.onnx --time 600 --total-latency latency.tsv

The same command resumes a run that was interrupted, and answers from the records a run that was
finished. `autotune model-tasks` shows what can be tuned before anything is, `autotune build-model`
builds the network again from the records.
"""


@click.command(
    "tune-model",
    epilog=EPILOG,
    help="Find fast schedules for all programs of a network on this machine, and build it.\n\n"
    + SOURCE_HELP
    + "\n\nThe budget is one for the whole network. What the search space cannot express is run "
    "by the backend's default schedule, and the table says so.",
)
@model_options()
@tune_options(*TUNING, parts=TUNING_PARTS)
@library_option
@click.option(
    "--total-latency",
    "totals_path",
    metavar="FILE",
    type=OutputFile("totals"),
    help="Append seconds, trials and the estimated latency to this file whenever it changes, "
    "separated by tabs.",
)
@progress_options
@json_option
def command(
    model: AskedModel,
    library_path: str | None,
    totals_path: str | None,
    progress_mode: str | None,
    quiet: bool,
    log_path: str | None,
    json_path: str | None,
    options: TuneOptions,
) -> int:
    from attrs import evolve

    from autotune.cli.app import INTERRUPTED
    from autotune.cli.event_log import event_log
    from autotune.cli.machine import BusyWarning
    from autotune.cli.network_progress import network_progress, total_latency_log
    from autotune.cli.output import Output, notify
    from autotune.cli.progress import chosen_mode
    from autotune.networks.api import run_model
    from autotune.process.interrupts import TuningInterrupted

    mode = chosen_mode(read_progress_mode(progress_mode, quiet), sys.stderr)
    output = Output(json_path, "-" if "-" in (log_path, totals_path) else None)
    watchers = [] if mode == "quiet" else [BusyWarning()]
    reading = model.reading()
    try:
        with (
            event_log(log_path) as logs,
            total_latency_log(totals_path) as totals,
            network_progress(sys.stderr, mode, model.verbose) as listeners,
        ):
            asked = evolve(options, listeners=[*logs, *totals, *watchers, *listeners])
            result = run_model(model.source(), reading, asked)
    except TuningInterrupted as interrupted:
        advice = "the same command without --fresh" if options.fresh else "the same command"
        notify(
            f"autotune: interrupted after {interrupted.trials} trials, which are recorded in "
            f"{interrupted.database}; {advice} resumes the run"
        )
        return INTERRUPTED
    return _report(result, output, library_path, model.check)


def _report(result: ModelResult, output: Output, library_path: str | None, check: bool) -> int:
    """Build the network, show and write what came of it; returns the exit status."""
    from autotune.cli.app import NOTHING_FOUND, OK
    from autotune.cli.output import notify
    from autotune.networks.model_result import DEFAULT, VIEW

    try:
        result = timed_and_saved(result, library_path, check)
    finally:
        # What was tuned is shown also where the network cannot be built.
        output.json(result.to_json())
        output.table(result.table())
    if all(task.run_by in (DEFAULT, VIEW) for task in result.tasks):
        notify(f"autotune: error: {result.name}: no task was tuned, as the table says")
        return NOTHING_FOUND
    return OK
