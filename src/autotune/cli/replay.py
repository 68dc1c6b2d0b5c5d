"""``autotune replay``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from autotune.cli.app import INTERRUPTED, NOTHING_FOUND, OK
from autotune.cli.arguments import argument, command_of, option
from autotune.cli.destinations import InputFile, OutputFile
from autotune.cli.options import read_options
from autotune.cli.output import Output, drawing, notify, write_text
from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.evaluation.replay import Contestant, Replay, Study, Summary
    from autotune.evaluation.replay.study import LeftOut, Piece, Source
    from autotune.evaluation.replay.summary import Difference

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune replay gemm-A100.json.gz gemm-W7800.t4.json
  autotune replay gemm-*.json.gz --strategies random,evolutionary,kernel-tuner:genetic_algorithm
  autotune replay gemm-A100.json.gz --seeds 20 --jobs 4 --results runs.jsonl -o replay.html
  autotune replay --database autotune.db --strategies random,pruner

A space is a cache of Kernel Tuner or a T4 file, which gzip may have packed.
"""
_PLAIN_SECONDS = 10.0
_MOST_RUNS, _MOST_EVALUATIONS, _MOST_JOBS = 100_000, 1_000_000, 1024


@frozen
class _Asked:
    paths: tuple[str, ...] = argument("[SPACE]...", InputFile())
    database: str | None = option(
        "--database FILE",
        "Also replay the tasks of this database that have enough measurements.",
        InputFile(),
    )
    strategies: str | None = option(
        "--strategies NAME,...",
        "Strategies by name; kernel-tuner:NAME is one of Kernel Tuner, and kernel-tuner stands "
        "for all that need no further package.  [default: all of the library]",
    )
    option_texts: tuple[str, ...] = option(
        "--strategy-option NAME.K=V", "Option K of strategy NAME; may be repeated."
    )
    seeds: int = option(
        "--seeds", "Runs on each space; by default 20.", click.IntRange(1, _MOST_RUNS), default=20
    )
    budget: int = option(
        "--budget",
        "Evaluations of each run; by default 200.",
        click.IntRange(1, _MOST_EVALUATIONS),
        default=200,
    )
    seconds: float | None = option("--time SECONDS", "Virtual time of each run.")
    round_size: int = option(
        "--round-size",
        "Configurations that a strategy is asked for at once; by default 1.",
        click.IntRange(1, _MOST_EVALUATIONS),
        default=1,
    )
    described_by: str | None = option(
        "--parameters FILE",
        "A T1 file with the parameters and constraints of the spaces, which are checked.",
        InputFile(),
    )
    unit_texts: tuple[str, ...] = option(
        "--unit NAME=UNIT",
        "Unit of the times of a space whose file is wrong about it: s, ms, us or ns.",
    )
    against: str | None = option(
        "--against NAME", "Also show how much better each strategy is than this one."
    )
    jobs: int = option(
        "--jobs", "Runs at once; by default 1.", click.IntRange(1, _MOST_JOBS), default=1
    )
    results_path: str | None = option(
        "--results FILE",
        "Append each run as a line of JSON; runs that are there already are not repeated.",
        OutputFile("runs"),
    )
    plot_path: str | None = option("--plot FILE", "Write score curves as SVG.", OutputFile("plot"))
    page_path: str | None = option("-o --output FILE", "Write a page.", OutputFile("page"))
    quiet: bool = option("--quiet", "Show no progress.")


@command_of("replay", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Compare strategies on recorded spaces, without a device.

    Every strategy is run on every SPACE with every seed: what it asks for is looked up, on a
    virtual clock. The score is 0 for what random search is expected to find after as many
    evaluations, and 1 for the optimum.
    """
    from autotune.evaluation.replay import Budget, Study, load, summarize
    from autotune.evaluation.replay.views import tables
    from autotune.ir.converter import to_json

    if not asked.paths and asked.database is None:
        raise InvalidValueError("name a recorded space, or a --database, to replay")
    contestants = _contestants(asked.strategies, asked.option_texts)
    _check_against(asked.against, contestants)
    units = read_options(asked.unit_texts, "--unit")
    found, sources = load(
        asked.paths,
        asked.database,
        asked.described_by,
        {name: str(unit) for name, unit in units.items()},
    )
    budget = Budget(asked.budget, asked.seconds, asked.round_size)
    study = Study(tuple(found), contestants, tuple(range(asked.seeds)), budget)
    left_out = study.left_out()
    pieces = study.wanted(left_out)
    known = _known_runs(asked.results_path, pieces, study)
    stopped = False
    runs = list(known.values())
    missing = [piece for piece in pieces if piece not in known]
    try:
        for run in _made(missing, study, sources, asked, left_out):
            runs.append(run)
    except KeyboardInterrupt:
        stopped = True
    summary = summarize(study.tables, runs, study.budget, left_out)
    differences = _differences(summary, asked.against)
    for table in tables(summary, differences):
        output.table(table)
        output.say()
    _write(summary, differences, asked)
    output.json({**summary.to_json(), "differences": [to_json(it) for it in differences]})
    if stopped:
        kept = f"; {asked.results_path} keeps them" if asked.results_path else ""
        notify(f"autotune: interrupted after {len(runs)} of {len(pieces)} runs{kept}")
        return INTERRUPTED
    return OK if runs else NOTHING_FOUND


def _differences(summary: Summary, against: str | None) -> list[Difference]:
    """Differences of each strategy from one of them."""
    from autotune.evaluation.replay import compare

    labels = [it.strategy for it in summary.strategies]
    if against is None or against not in labels:
        return []
    return [compare(summary, name, against) for name in labels if name != against]


def _made(
    pieces: Sequence[Piece],
    study: Study,
    sources: Sequence[Source],
    asked: _Asked,
    left_out: list[LeftOut],
) -> Iterator[Replay]:
    """Each run once it is there, and in the file of results; failures are noted."""
    from autotune.evaluation.replay import LeftOut, run_study
    from autotune.evaluation.replay.study import append_run

    with _progress(len(pieces), asked.quiet) as advance:
        for made in run_study(pieces, study.tables, sources, asked.jobs):
            advance()
            if isinstance(made, LeftOut):
                if made not in left_out:
                    left_out.append(made)
                continue
            if asked.results_path is not None:
                append_run(asked.results_path, made)
            yield made


def _contestants(text: str | None, option_texts: Sequence[str]) -> tuple[Contestant, ...]:
    """Contestants to be replayed, each once."""
    from autotune.evaluation.replay import Contestant
    from autotune.evaluation.replay.contestants import strategy_names
    from autotune.evaluation.replay.kernel_tuner import COMPARED, PREFIX

    names = list(strategy_names())
    if text is not None:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names:
            raise InvalidValueError("--strategies names none")
    every = [
        name
        for given in names
        for name in (
            [PREFIX + each for each in COMPARED] if given == PREFIX.removesuffix(":") else [given]
        )
    ]
    options = _options(option_texts)
    for name in options:
        if name not in every:
            raise InvalidValueError(
                f"--strategy-option names {name!r}, which is not among the strategies"
            )
    return tuple(Contestant(name, options.get(name, {})) for name in dict.fromkeys(every))


def _options(texts: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """The options of each strategy."""
    found: dict[str, list[str]] = {}
    for text in texts:
        left, equals, value = text.partition("=")
        name, dot, key = left.rpartition(".")
        if not (dot and equals and name and key):
            raise InvalidValueError(f"--strategy-option {text!r} is not of the form NAME.K=V")
        found.setdefault(name, []).append(f"{key}={value}")
    return {name: read_options(own, "--strategy-option") for name, own in found.items()}


def _check_against(against: str | None, contestants: Sequence[Contestant]) -> None:
    labels = [contestant.label for contestant in contestants]
    if against is not None and against not in labels:
        raise UnknownNameError("strategy to compare with", against, labels)


def _known_runs(path: str | None, pieces: Sequence[Piece], study: Study) -> Mapping[Piece, Replay]:
    from autotune.evaluation.replay.study import matching, read_runs

    if path is None:
        return {}
    if path == "-":
        raise InvalidValueError("--results '-' is standard output; name a file")
    return matching(read_runs(path), pieces, study.tables)


def _write(summary: Summary, differences: Sequence[Difference], asked: _Asked) -> None:
    """Write the plot and the page that were asked for.

    Raises:
        AutotuneError: a library that draws or writes them is not installed.
    """
    from autotune.evaluation.replay.views import page, plot_svg

    with drawing("plots and pages are made"):
        if asked.plot_path is not None:
            write_text(asked.plot_path, plot_svg(summary))
        if asked.page_path is not None:
            write_text(asked.page_path, page(summary, differences))


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Any]:
    """A bar on a terminal, a line now and then elsewhere; called after each run."""
    if quiet or not total:
        yield lambda: None
        return
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress("replaying", *columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=total)
            yield lambda: bar.advance(task)
        return
    done, said = 0, time.monotonic()

    def advance() -> None:
        nonlocal done, said
        done += 1
        if time.monotonic() - said >= _PLAIN_SECONDS:
            said = time.monotonic()
            notify(f"autotune: {done} of {total} runs")

    yield advance
