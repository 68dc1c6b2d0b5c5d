"""``autotune tune-external``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen
from click.core import ParameterSource

from autotune.cli.app import INTERRUPTED, NOTHING_FOUND, OK
from autotune.cli.arguments import argument, command_of, option
from autotune.cli.destinations import InputFile
from autotune.cli.options import (
    protocol_option,
    read_protocol,
    read_value,
    tuning,
    watching_option,
)
from autotune.cli.output import Output, notify, notify_interrupted, warn
from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.cli.watching import Watching
    from autotune.external import ExternalProgram, ExternalResult
    from autotune.spaces.parameters import Parameter, Value
    from autotune.tuning.options import TuneOptions

__all__ = ["command"]

EPILOG = """\b
Examples:
  autotune tune-external flags.toml --trials 100
  autotune tune-external flags.toml --set tile_i=16,256 --json out.json

SPEC is a file in TOML, or JSON where its name ends in .json: parameters, constraints, and the
commands or the Python function that measure a configuration. These are run, so give only a SPEC
that you trust. The same command resumes a run that was interrupted.
"""
FIELDS = (
    "target",
    "trials",
    "time",
    "patience",
    "seed",
    "threads",
    "database",
    "fresh",
    "round_size",
    "lookahead",
)
"""Fields of ``TuneOptions`` that external programs have a use for."""
PROTOCOL = ("min_rounds", "max_rounds", "resolution")
"""Settings of the protocol that do: SPEC says the rest."""
TEXTS = {
    "round_size": "Configurations proposed at once; by default 4 where there is a build, else 1.",
    "lookahead": "Rounds proposed while the last one is measured; by default 0.",
}


@frozen
class _Asked:
    spec: str = argument(kind=InputFile())
    settings: tuple[str, ...] = option(
        "--set NAME=V,...", "Let a parameter have these values only; may be repeated."
    )
    options: TuneOptions = tuning(
        *FIELDS, parts=("strategy",), usual={"strategy": "auto"}, texts=TEXTS
    )
    protocol: tuple[str, ...] = protocol_option(
        "How often the leaders take turns: min_rounds=, max_rounds= or resolution=; may be "
        "repeated."
    )
    watching: Watching = watching_option()


@command_of("tune-external", _Asked, EPILOG)
def command(asked: _Asked, output: Output) -> int:
    """Find the values of parameters with which the program of SPEC is fastest."""
    from autotune.external.api import run_external, usual_rounds
    from autotune.external.specs import read_spec
    from autotune.process.interrupts import TuningInterrupted

    measuring = read_protocol(asked.protocol, only=PROTOCOL)
    program = _narrowed(read_spec(asked.spec), asked.settings)
    for name in program.unused_parameters:
        warn(f"no command has a placeholder {{{name}}}: parameter {name!r} changes nothing")
    try:
        with asked.watching.listeners() as listeners:
            rounds = _not_given(usual_rounds(program))
            options = evolve(asked.options, listeners=listeners, protocol=measuring, **rounds)
            found = run_external(program, options)
    except TuningInterrupted as interrupted:
        notify_interrupted(interrupted, asked.options.fresh)
        return INTERRUPTED
    return _report(found, output)


def _not_given(usual: Mapping[str, int]) -> dict[str, Any]:
    """Names of the usual settings that the command line leaves open."""
    source = click.get_current_context().get_parameter_source
    return {key: it for key, it in usual.items() if source(key) is ParameterSource.DEFAULT}


def _narrowed(program: ExternalProgram, settings: Sequence[str]) -> ExternalProgram:
    """The program with the values that ``--set`` leaves to its parameters."""
    given: dict[str, tuple[Value, ...]] = {}
    known = {parameter.name: parameter for parameter in program.parameters}
    for text in settings:
        name, equals, values = text.partition("=")
        if not (name and equals and values):
            raise InvalidValueError(f"--set {text!r} is not of the form NAME=V,...")
        if name not in known:
            raise UnknownNameError("parameter of --set", name, known)
        if name in given:
            raise InvalidValueError(f"--set names {name!r} twice")
        given[name] = tuple(_value(known[name], value) for value in values.split(","))
        default = known[name].default
        if default is not None and default not in given[name]:
            raise InvalidValueError(
                f"--set {text} leaves out the default {default!r}, which everything is compared "
                "with: name it, too, or change it in SPEC"
            )
    narrowed = [
        evolve(it, values=given[it.name]) if it.name in given else it for it in program.parameters
    ]
    return evolve(program, parameters=narrowed)


def _value(parameter: Parameter, text: str) -> Value:
    """A value of a parameter as the command line spells it.

    Text where its values are text; otherwise a number, true or false.
    """
    if any(isinstance(it, str) for it in parameter.values):
        return text
    value: Value = read_value(text)
    return value


def _report(found: ExternalResult, output: Output) -> int:
    """Show and write a result; returns the exit status."""
    from autotune.external.program import value_text
    from autotune.report import comparison_table

    output.json(found.to_json())
    output.table(comparison_table(found.result))
    if found.result.best is None:
        notify(f"autotune: error: {found.result.failure_text()}")
        return NOTHING_FOUND
    text = str if found.program.is_called else value_text
    values = ", ".join(f"{name}={text(it)}" for name, it in found.config.items())
    output.say(f"best configuration: {values}")
    if found.program.is_rate:
        output.say(f"its result: {found.value:.6g} {found.program.unit}")
    return OK
