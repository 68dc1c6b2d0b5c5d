"""``autotune compare``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import json_option, shape_option, tune_options
from autotune.errors import AutotuneError, InvalidValueError

if TYPE_CHECKING:
    from autotune.evaluation.compare import ComparedWorkload, Contender, Plan, Progress, Study
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune compare gemm --shape m=512,n=512,k=512 --strategies evolutionary,pruner --trials 64
  autotune compare gemm:m=512,n=512,k=512 softmax:m=512,n=512 --results mine.jsonl \\
      --contender "mine=--strategy my_package.search:Mine --pruning-model none"

A WORKLOAD is a name with its shape, as in `gemm:m=512,n=512,k=512`, or a file of MLIR, as in
`network.mlir` or `network.mlir:function`. A contender takes any option of `autotune tune` that
chooses parts, their options or the size of a round.
"""


@click.command("compare", epilog=EPILOG)
@click.argument("workloads", metavar="WORKLOAD...", nargs=-1, type=InputFile())
@shape_option
@click.option("--dtype", help="Element type; the workload's default if it is not given.")
@click.option("--importer", metavar="NAME", help="Every WORKLOAD is what this importer reads.")
@click.option("--strategies", metavar="NAME,...", default="", help="Contenders: strategies.")
@click.option("--presets", metavar="NAME,...", default="", help="Contenders: published tuners.")
@click.option(
    "--contender",
    "texts",
    metavar="NAME=OPTIONS",
    multiple=True,
    help="A contender: options of `autotune tune` by which it differs; may be repeated.",
)
@click.option("--no-random", is_flag=True, help="Leave out `random`, the baseline of all figures.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Runs of each contender on each workload.",
)
@tune_options(
    *("target", "backend", "trials", "time", "threads", "round_size", "protocol"),
    parts=("search_space", "measurer"),
)
@click.option(
    "--results",
    "results_path",
    metavar="FILE",
    type=OutputFile("results"),
    help="Append every run to this file; runs that are there already are not repeated.",
)
@click.option("--retry-failed", is_flag=True, help="Repeat runs that failed.")
@click.option(
    "--csv", "csv_path", metavar="FILE", type=OutputFile("table"), help="Also write CSV."
)
@click.option(
    "-o",
    "--plot",
    "plot_path",
    metavar="FILE",
    type=OutputFile("plot"),
    help="Draw the best latency so far into this SVG file.",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@json_option
def command(
    workloads: tuple[str, ...],
    shape: tuple[str, ...],
    dtype: str | None,
    importer: str | None,
    strategies: str,
    presets: str,
    texts: tuple[str, ...],
    no_random: bool,
    seeds: int,
    results_path: str | None,
    retry_failed: bool,
    csv_path: str | None,
    plot_path: str | None,
    quiet: bool,
    json_path: str | None,
    options: TuneOptions,
) -> int:
    """Compare ways to tune each WORKLOAD, live.

    Every contender tunes every workload with several seeds and one budget, each time in a fresh
    process with an empty database, seed by seed in random order. At the end all winners of a
    workload are timed in turns. Figures have bootstrap intervals over the seeds.
    """
    from autotune.cli.app import INTERRUPTED, NOTHING_FOUND, OK
    from autotune.cli.contenders import compared_workload, read_contenders
    from autotune.cli.output import Output, notify, write_text
    from autotune.evaluation.compare import (
        BASELINE,
        compare_json,
        compare_tables,
        complete,
        csv_text,
        read_pieces,
        read_study,
    )

    _check_arguments(workloads, shape, results_path)
    plot = None if plot_path is None else _plotter()
    contenders = read_contenders(
        _names(strategies), _names(presets), texts, None if no_random else BASELINE
    )
    compared = [compared_workload(text, shape, dtype, importer) for text in workloads]
    plan = _plan(compared, contenders, seeds, options)
    output = Output(json_path, "-" if "-" in (csv_path, plot_path) else None)
    with tempfile.TemporaryDirectory(prefix="autotune-compare-") as folder:
        results = Path(results_path or f"{folder}/results.jsonl")
        try:
            complete(plan, results, _say(quiet), retry_failed=retry_failed)
        except KeyboardInterrupt:
            notify(f"autotune: interrupted; {_kept(plan, results, results_path)}")
            return INTERRUPTED
        study = read_study(plan, read_pieces(results))
    output.json(compare_json(plan, study))
    for number, table in enumerate(compare_tables(study)):
        if number:
            output.say()
        output.table(table)
    if csv_path is not None:
        write_text(csv_path, csv_text(study))
    if plot is not None and plot_path is not None:
        write_text(plot_path, plot(study, plan.budget.trials is None))
    return OK if study.runs else NOTHING_FOUND


def _check_arguments(
    workloads: Sequence[str], shape: Sequence[str], results_path: str | None
) -> None:
    """Refuse what cannot be compared.

    Raises:
        InvalidValueError: there is no workload, one shape for several, or no file for results.
    """
    if not workloads:
        raise InvalidValueError("Missing argument 'WORKLOAD', such as gemm:m=512,n=512,k=512")
    if shape and len(workloads) > 1:
        raise InvalidValueError(
            "--shape is for one WORKLOAD: write the shape of each behind it, as in "
            "gemm:m=512,n=512,k=512"
        )
    if results_path == "-":
        raise InvalidValueError("--results '-' is standard output; name a file")


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _plan(
    compared: Sequence[ComparedWorkload],
    contenders: Sequence[Contender],
    seeds: int,
    options: TuneOptions,
) -> Plan:
    """Check what is compared, as far as that is possible before anything starts."""
    from autotune.cli.contenders import common_arguments, read_contender
    from autotune.evaluation.compare import Arena, Budget, Plan
    from autotune.tuning.options import DEFAULT_TRIALS

    if len(options.backend) > 1:
        raise InvalidValueError(
            "a comparison has one backend: `autotune tune --backend "
            f"{','.join(options.backend)}` compares backends"
        )
    common = common_arguments(click.get_current_context().params)
    trials = options.trials
    if trials is None and options.time is None:
        trials = DEFAULT_TRIALS
    plan = Plan(
        workloads=tuple(compared),
        contenders=tuple(contenders),
        seeds=seeds,
        budget=Budget(trials, options.time),
        common=common,
        setting={
            "target": options.machine.name,
            "fingerprint": options.machine.fingerprint,
            "threads": options.machine.cores,
        },
        arena=Arena(
            backend=options.backend[0] if options.backend else None,
            measurer=options.chosen["measurer"],
        ),
    )
    for contender in plan.contenders:
        read_contender(contender, common, plan.budget)
    return plan


def _plotter() -> Callable[[Study, bool], str]:
    """Load the library that draws the curves, before anything is measured."""
    try:
        from autotune.evaluation.compare.plot import compare_plot
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        from autotune.plugins.installing import install_extra

        raise AutotuneError(
            "a plot is made with matplotlib, which is not installed: run "
            + install_extra("report")
        ) from error
    return lambda study, by_time: compare_plot(study, by_time).svg


def _say(quiet: bool) -> Callable[[Progress], None]:
    from autotune.cli.output import notify

    def say(progress: Progress) -> None:
        left = progress.seconds_left
        text = f"[{progress.done}/{progress.runs}] {progress.text}"
        notify(text if not left else f"{text}; about {_duration(left)} left")

    return (lambda _: None) if quiet else say


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _kept(plan: Plan, results: Path, named: str | None) -> str:
    """Describe what an interrupt leaves."""
    from autotune.evaluation.compare import done_runs, read_pieces

    if named is None:
        return "without --results nothing is kept"
    done = len(set(plan.pieces()) & set(done_runs(read_pieces(results))))
    return f"{named} holds {done} of {len(plan.pieces())} runs; the same command does the others"
