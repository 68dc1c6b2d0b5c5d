"""The command group: finds subcommands lazily and turns errors into one line and a status."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TextIO

import click

from autotune.errors import AutotuneError, NoValidCandidate, did_you_mean, near_matches, one_line
from autotune.ir.printable import printable

__all__ = [
    "ERROR",
    "INTERRUPTED",
    "NOTHING_FOUND",
    "OK",
    "OTHER_TUNERS",
    "UNCHECKED",
    "CommandGroup",
    "command_group",
    "run",
]

OK = 0
NOTHING_FOUND = 1
"""Nothing was wrong with the call, but there is no valid candidate or no matching record."""
ERROR = 2
UNCHECKED = 3
"""A network was tuned and built, and there was no time to compare its outputs."""
INTERRUPTED = 130
_MESSAGE_WIDTH = 4000

SUMMARIES: Mapping[str, str] = MappingProxyType(
    {
        "tune": "Find a fast schedule for an operator.",
        "tune-external": "Find the best parameters of any program.",
        "tune-model": "Find fast schedules for a whole network.",
        "build-model": "Build a network with recorded schedules.",
        "model-tasks": "List the tasks of a network, and which can be tuned.",
        "bench-model": "Time a network beside other runtimes that run it here.",
        "compare": "Compare strategies, live, with intervals.",
        "best": "Show the fastest records.",
        "show": "Show a recorded schedule: steps, script, loop nest.",
        "export": "Write a recorded schedule as C, an object or a library.",
        "explain": "Explain what would make a schedule faster.",
        "replay": "Compare strategies on recorded spaces, without a device.",
        "report": "Write a page about a database, with plots.",
        "records": "List, export, import and check records; analyse failures.",
        "train": "Record training data and fit a cost model on it.",
        "fleet": "List the machines that build and time.",
        "plugins": "List installed parts, and plugins that failed to load.",
        "workloads": "List workload builders and their parameters.",
        "doctor": "Check this machine and installation.",
        "demo": "Tune two operators and show the speed-up.",
    }
)
"""Commands and what they do. Each is the object ``command`` of ``autotune.cli.<name>``, with ``_``
for ``-``; the summaries are here so that the list can be shown without importing any."""

MODULES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("build-model", "bench-model", "model-tasks"), "models"),
        **dict.fromkeys(("plugins", "workloads", "fleet"), "lists"),
    }
)
"""Modules of several commands, each of which is the object of its own name there."""


class CommandGroup(click.Group):
    """A group of commands, listed in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in names:
            hint = did_you_mean(near_matches(args[0], names))
            raise click.UsageError(
                f"unknown command {args[0]!r}; available: {', '.join(names)}.{hint}", ctx
            )
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """A group whose commands are imported when they are run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUMMARIES:
            return None
        own = cmd_name.replace("-", "_")
        module = importlib.import_module(f"autotune.cli.{MODULES.get(cmd_name, own)}")
        command: click.Command = getattr(module, own if cmd_name in MODULES else "command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


class _Version(click.Option):
    """``--version``, looked up only when asked for."""

    def __init__(self) -> None:
        super().__init__(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_show_version,
            help="Show the version and exit.",
        )


def _show_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib import metadata

    try:
        version = metadata.version("tensor-autotune")
    except metadata.PackageNotFoundError:
        version = "of a source tree"
    click.echo(f"autotune {version}")
    context.exit()


command_group = LazyGroup(
    name="autotune",
    help="Find fast schedules for tensor programs.\n\n"
    "Example: autotune tune gemm --shape m=512,n=512,k=512 --trials 64",
    params=[_Version()],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns its exit status.

    0: done. 1: there is no valid candidate, no matching record, or something is wrong with the
    machine. 2: the call is wrong or cannot be carried out; one line on stderr says why.
    130: interrupted.
    """
    try:
        return _run(arguments)
    finally:
        for stream in (sys.stdout, sys.stderr):
            _flush_or_discard(stream)


def _flush_or_discard(stream: TextIO) -> None:
    """Else the interpreter tries it again at exit, and makes the failure the exit status."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: Sequence[str]) -> int:
    try:
        status = command_group.main(
            args=list(arguments), prog_name="autotune", standalone_mode=False
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return ERROR
    except click.NoSuchOption as error:
        return _fail(unknown_option(error))
    except click.ClickException as error:
        return _fail(error.format_message())
    except NoValidCandidate as error:
        return _fail(str(error), NOTHING_FOUND)
    except AutotuneError as error:
        # Imported here: it is part of tuning, and `autotune --help` is not.
        from autotune.process.interrupts import TuningInterrupted

        if isinstance(error, TuningInterrupted):
            click.echo(f"autotune: {error}", err=True)
            return INTERRUPTED
        return _fail(str(error))
    except MemoryError as error:
        page = os.sysconf("SC_PAGE_SIZE")
        free = os.sysconf("SC_AVPHYS_PAGES") * page / 2**30
        return _fail(f"memory is not sufficient: {error}; {free:.1f} GiB are free")
    except (KeyboardInterrupt, click.Abort):
        click.echo("autotune: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away, as with `| head`; nothing may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            return _fail(f"{_shortened(error.filename)} cannot be used: {error.strerror}")
        if error.errno != errno.ENOSPC:
            raise
        return _fail(f"what was to be shown cannot be written: {error.strerror}")


def _shortened(name: object) -> str:
    text = repr(name)
    return text if len(text) < 80 else f"{text[:40]}...{text[-20:]}"


def _fail(message: str, status: int = ERROR) -> int:
    click.echo(f"autotune: error: {printable(one_line(message, _MESSAGE_WIDTH))}", err=True)
    return status


OTHER_TUNERS: Mapping[str, str] = MappingProxyType(
    {
        "--build-timeout": "--protocol deadlines.build=SECONDS",
        "--config": "--tasks FILE",
        "--early-stopping": "--patience TRIALS",
        "--load-model": "--load-cost-model FILE",
        "--load_model": "--load-cost-model FILE",
        "--log-file": "--database FILE",
        "--min-repeat-ms": "--protocol min_sample_seconds=SECONDS",
        "--model-file": "--load-cost-model FILE",
        "--n-trials": "--trials N",
        "--num-measure-per-iter": "--round-size N",
        "--num-measures-per-round": "--round-size N",
        "--num-trials": "--trials N",
        "--num-trials-per-iter": "--round-size N",
        "--psa": "--pruning-model-option gpu_spec=NAME, or the figures of --target by default",
        "--repeat": "--protocol max_samples=N",
        "--run-timeout": "--protocol deadlines.run=SECONDS",
        "--timeout": "--protocol deadlines.run=SECONDS, or --time for the whole run",
        "--tuner": "--strategy NAME",
        "-c": "--tasks FILE",
        "-p": "--target NAME",
    }
)
"""Options of other tuners, and what to write here in a command that has that option."""


def unknown_option(error: click.NoSuchOption) -> str:
    """Name the option to write instead: another tuner's, or one that looks alike."""
    known: list[str] = []
    if error.ctx is not None:
        for parameter in error.ctx.command.get_params(error.ctx):
            known += [*parameter.opts, *parameter.secondary_opts]
    here = OTHER_TUNERS.get(error.option_name, "")
    if here.split(" ")[0] in known:
        return f"No such option: {error.option_name}. Here it is {here}."
    return f"{error.message}{did_you_mean(near_options(error.option_name, known))}"


def near_options(name: str, known: Iterable[str]) -> list[str]:
    """Up to two options that look like one that there is not, best first.

    Those that begin like it, such as ``--trials`` for ``--trial``; else those that have its
    letters in their order, from the first one on, such as ``--database`` for ``--db``; else those
    that differ in some letters.
    """
    plain = {option.lstrip("-"): option for option in known if option.startswith("--")}
    wanted = name.lstrip("-").casefold()
    begun = [word for word in plain if word.startswith(wanted) or wanted.startswith(f"{word}-")]
    short = [word for word in plain if word[:1] == wanted[:1] and _is_within(wanted, word)]
    found = sorted(begun or short, key=len)[:2] or near_matches(wanted, plain)
    return [plain[word] for word in found]


def _is_within(letters: str, word: str) -> bool:
    """Return whether letters are found in a word, in their order."""
    rest = iter(word)
    return all(letter in rest for letter in letters)
