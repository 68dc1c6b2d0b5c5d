"""``autotune compare``."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen
from click.core import ParameterSource

from autotune.cli.app import INTERRUPTED, NOTHING_FOUND, OK
from autotune.cli.arguments import argument, command_of, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import (
    SHAPE_HELP,
    TUNING,
    TUNING_PARTS,
    read_shape,
    read_tune_options,
    tuning,
)
from autotune.cli.output import Output, drawing, notify, write_text
from autotune.cli.programs import DTYPE_HELP, AskedProgram, read_workload
from autotune.cli.tune import command as tune
from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.evaluation.compare import (
        Budget,
        ComparedRuns,
        ComparedWorkload,
        Contender,
        Plan,
        Progress,
    )
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

_MLIR = ".mlir"
_DTYPE = "dtype"
# What a contender may choose; everything else is the same for all.
_PARTS = ("strategy", "cost_model", "pruning_model", "search_space", "task_scheduler")
_CHOICES = (
    *_PARTS,
    *(f"{kind}_options" for kind in _PARTS),
    *("preset", "load_cost_model", "patience", "round_size", "first_round", "lookahead"),
)
# Options of the comparison that every run is given.
_COMMON = (
    *("target", "threads", "backend", "round_size", "search_space", "search_space_options"),
    *("measurer", "measurer_options", "protocol"),
)


def compared_workload(
    text: str, shape: Sequence[str], dtype: str | None, importer: str | None
) -> ComparedWorkload:
    """A workload as `autotune compare` is given it.

    Args:
        text: ``gemm``, ``gemm:m=512,n=512,k=512``, ``file.mlir``, ``file.mlir:function``, or what
            the importer reads.
        shape: ``--shape``, for a name without one.
        dtype: ``--dtype``, for a name without one.
        importer: ``--importer``.

    Raises:
        AutotuneError: there is no such workload, or the file cannot be read.
    """
    from autotune.evaluation.compare import ComparedWorkload

    if importer is not None:
        found = AskedProgram(text, tuple(shape), dtype).imported(importer)
        return ComparedWorkload(text, found.digest, (text, "--importer", importer))
    path, dot, function = text.partition(_MLIR)
    if dot and (not function or function.startswith(":")):
        path, function = path + dot, function.removeprefix(":")
        program = AskedProgram(None, tuple(shape), dtype, path, function or None).file()
        assert program is not None  # a path is given
        named = ("--function", function) if function else ()
        label = os.path.basename(path) + (f":{function}" if function else "")
        return ComparedWorkload(label, read_workload(program).digest, ("--mlir", path, *named))
    return _named_workload(text, shape, dtype)


def _named_workload(text: str, shape: Sequence[str], dtype: str | None) -> ComparedWorkload:
    from autotune.evaluation.compare import ComparedWorkload
    from autotune.plugins.workload_names import make_workload, task_name

    name, colon, own = text.partition(":")
    if colon and (shape or not own):
        reason = "--shape is for a WORKLOAD without a shape" if shape else "its shape is missing"
        raise InvalidValueError(f"{text!r}: {reason}")
    parameters = read_shape([own] if colon else shape)
    dtype = parameters.pop(_DTYPE, dtype)
    workload = make_workload(name, parameters, dtype)
    arguments = [name, "--shape", ",".join(f"{key}={value}" for key, value in parameters.items())]
    arguments += [] if dtype is None else ["--dtype", dtype]
    return ComparedWorkload(task_name(workload), workload.digest, tuple(arguments))


def common_arguments(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Arguments that every run gets from the comparison's own options."""
    flags = {option.name: option.opts[0] for option in tune.params}
    arguments: list[str] = []
    for name in _COMMON:
        value = values[name]
        given = value if isinstance(value, tuple) else () if value is None else (value,)
        for item in given:
            arguments += [flags[name], str(item)]
    return tuple(arguments)


def read_contenders(
    strategies: Sequence[str], presets: Sequence[str], texts: Sequence[str], baseline: str | None
) -> list[Contender]:
    """The contenders in order: the baseline, strategies, presets, and what is given freely.

    Args:
        strategies: Names of strategies, which contenders are called by.
        presets: Names of presets, likewise.
        texts: ``NAME=OPTIONS``.
        baseline: A strategy that takes part unless it is named; None for none.

    Raises:
        InvalidValueError: there is none but the baseline, or a text is not of this form.
    """
    from autotune.evaluation.compare import Contender

    named = [("--strategy", name) for name in strategies] + [("--preset", it) for it in presets]
    contenders = [Contender(name, (flag, name)) for flag, name in named]
    for text in texts:
        name, equals, rest = text.partition("=")
        if not (name.strip() and equals and rest.strip()) or name.startswith("-"):
            raise InvalidValueError(
                f"--contender {text!r} is not of the form NAME=OPTIONS, such as "
                "'mine=--strategy package.module:Strategy'"
            )
        contenders.append(Contender(name.strip(), _split(name.strip(), rest)))
    if not contenders:
        raise InvalidValueError(
            "there is nothing to compare: name --strategies, --presets or a --contender"
        )
    if baseline is not None and baseline not in strategies:
        contenders.insert(0, Contender(baseline, ("--strategy", baseline)))
    return contenders


def _split(name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidValueError(f"contender {name!r}: {str(error).lower()}") from error


def read_contender(contender: Contender, common: Sequence[str], budget: Budget) -> None:
    """Check a contender, by all that `autotune tune` would check before it starts.

    Args:
        contender: The contender.
        common: What all contenders are given.
        budget: Of each run.

    Raises:
        InvalidValueError: an option is unknown or not for a contender to choose, or the budget is
            too small for one round.
        AutotuneError: an option is out of range, or there is no such part.
    """
    own = _parsed(contender, contender.arguments)
    if own.params["workload"] is not None:
        raise InvalidValueError(
            f"contender {contender.name!r}: {own.params['workload']!r} is no option; for a "
            f"strategy, write '{contender.name}=--strategy {own.params['workload']}'"
        )
    for param in own.command.params:
        given = own.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if given and param.name not in _CHOICES:
            raise InvalidValueError(
                f"contender {contender.name!r}: {param.opts[0]} is no choice of a contender: "
                "the comparison sets it, for all alike"
            )
    whole = _parsed(contender, (*common, *contender.arguments))
    options = read_tune_options(whole.params, (*TUNING, "backend", "observers"), TUNING_PARTS)
    if budget.trials is not None and budget.trials < options.round_size:
        raise InvalidValueError(
            f"--trials {budget.trials} is less than one round of {contender.name!r}: give at "
            f"least {options.round_size}, or a smaller --round-size"
        )


def _parsed(contender: Contender, arguments: Sequence[str]) -> click.Context:
    try:
        return tune.make_context("autotune tune", list(arguments), help_option_names=[])
    except click.ClickException as error:
        raise InvalidValueError(
            f"contender {contender.name!r}: {error.format_message()}"
        ) from error


EPILOG = """\b
Examples:
  autotune compare gemm --shape m=512,n=512,k=512 --strategies evolutionary,pruner --trials 64
  autotune compare gemm:m=512,n=512,k=512 softmax:m=512,n=512 --results mine.jsonl \\
      --contender "mine=--strategy my_package.search:Mine --pruning-model none"

A WORKLOAD is a name with its shape, as in `gemm:m=512,n=512,k=512`, or a file of MLIR, as in
`network.mlir` or `network.mlir:function`. A contender takes any option of `autotune tune` that
chooses parts, their options or the size of a round.
"""


@frozen
class _Asked:
    workloads: tuple[str, ...] = argument("WORKLOAD...", InputFile())
    shape: tuple[str, ...] = option("--shape K=V,...", SHAPE_HELP)
    dtype: str | None = option("--dtype", DTYPE_HELP)
    importer: str | None = option("--importer NAME", "Every WORKLOAD is what this importer reads.")
    strategies: str = option("--strategies NAME,...", "Contenders: strategies.", default="")
    presets: str = option("--presets NAME,...", "Contenders: published tuners.", default="")
    texts: tuple[str, ...] = option(
        "--contender NAME=OPTIONS",
        "A contender: options of `autotune tune` by which it differs; may be repeated.",
    )
    no_random: bool = option("--no-random", "Leave out `random`, the baseline of all figures.")
    seeds: int = option(
        "--seeds", "Runs of each contender on each workload.", click.IntRange(1, 1000), shown=5
    )
    options: TuneOptions = tuning(
        *("target", "backend", "trials", "time", "threads", "round_size", "protocol"),
        parts=("search_space", "measurer"),
    )
    results_path: str | None = option(
        "--results FILE",
        "Append every run to this file; runs that are there already are not repeated.",
        OutputFile("results"),
    )
    retry_failed: bool = option("--retry-failed", "Repeat runs that failed.")
    csv_path: str | None = option("--csv FILE", "Also write CSV.", OutputFile("table"))
    plot_path: str | None = option(
        "-o --plot FILE", "Draw the best latency so far into this SVG file.", OutputFile("plot")
    )
    quiet: bool = option("--quiet", "Show no progress.")


@command_of("compare", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Compare ways to tune each WORKLOAD, live.

    Every contender tunes every workload with several seeds and one budget, each time in a fresh
    process with an empty database, seed by seed in random order. At the end all winners of a
    workload are timed in turns. Figures have bootstrap intervals over the seeds.
    """
    from autotune.evaluation.compare import (
        compare_json,
        compare_tables,
        complete,
        csv_text,
        read_pieces,
        read_study,
    )

    _check_arguments(asked)
    plot = None if asked.plot_path is None else _plotter()
    plan = _plan(asked)
    with tempfile.TemporaryDirectory(prefix="autotune-compare-") as folder:
        results = Path(asked.results_path or f"{folder}/results.jsonl")
        try:
            complete(plan, results, _say(asked.quiet), retry_failed=asked.retry_failed)
        except KeyboardInterrupt:
            notify(f"autotune: interrupted; {_kept(plan, results, asked.results_path)}")
            return INTERRUPTED
        study = read_study(plan, read_pieces(results))
    output.json(compare_json(plan, study))
    for number, table in enumerate(compare_tables(study)):
        if number:
            output.say()
        output.table(table)
    if asked.csv_path is not None:
        write_text(asked.csv_path, csv_text(study))
    if plot is not None and asked.plot_path is not None:
        write_text(asked.plot_path, plot(study, plan.budget.trials is None))
    return OK if study.runs else NOTHING_FOUND


def _check_arguments(asked: _Asked) -> None:
    """Refuse what cannot be compared.

    Raises:
        InvalidValueError: there is no workload, one shape for several, or no file for results.
    """
    if not asked.workloads:
        raise InvalidValueError("Missing argument 'WORKLOAD', such as gemm:m=512,n=512,k=512")
    if asked.shape and len(asked.workloads) > 1:
        raise InvalidValueError(
            "--shape is for one WORKLOAD: write the shape of each behind it, as in "
            "gemm:m=512,n=512,k=512"
        )
    if asked.results_path == "-":
        raise InvalidValueError("--results '-' is standard output; name a file")


def _names(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _plan(asked: _Asked) -> Plan:
    """Check what is compared, as far as that is possible before anything starts."""
    from autotune.evaluation.compare import BASELINE, Arena, Budget, Plan
    from autotune.tuning.options import DEFAULT_TRIALS

    contenders = read_contenders(
        _names(asked.strategies),
        _names(asked.presets),
        asked.texts,
        None if asked.no_random else BASELINE,
    )
    compared = [
        compared_workload(text, asked.shape, asked.dtype, asked.importer)
        for text in asked.workloads
    ]
    options = asked.options
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
        seeds=asked.seeds,
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


def _plotter() -> Callable[[ComparedRuns, bool], str]:
    """Load the library that draws the curves, before anything is measured."""
    with drawing("a plot is made"):
        from autotune.evaluation.compare.plot import compare_plot
    return lambda study, by_time: compare_plot(study, by_time).svg


def _say(quiet: bool) -> Callable[[Progress], None]:
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
