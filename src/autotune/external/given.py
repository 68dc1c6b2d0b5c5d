"""Programs that the user of this process has given: the only ones that are ever run.

A record holds the text of a program, which is data: what a database says is looked up here, and
what nobody has given is refused.
"""

from __future__ import annotations

from autotune.errors import InvalidValueError
from autotune.external.program import ExternalProgram
from autotune.external.specs import parameters_of_text
from autotune.sketches import Candidate
from autotune.spaces import SpaceContext
from autotune.spaces.parameters import ParameterSpace, Value
from autotune.store.records import Record

__all__ = [
    "configuration_of",
    "given_program",
    "make_parameter_space",
    "note_given",
    "recorded_configuration",
]


_GIVEN: dict[str, tuple[ExternalProgram, ParameterSpace]] = {}
"""By their texts, with their configurations as they were when they were given."""


def note_given(program: ExternalProgram) -> ParameterSpace:
    """Let a program be run in this process; returns its configurations.

    Raises:
        InvalidValueError: it has no configuration, or its default is not feasible.
    """
    space = program.space()
    _GIVEN[program.text] = program, space
    return space


def given_program(text: str | None) -> ExternalProgram:
    """The program with this text.

    Raises:
        InvalidValueError: nobody has given it in this process.
    """
    return _given(text)[0]


def make_parameter_space(context: SpaceContext) -> ParameterSpace:
    """The space of the program that the user has given under the context's text.

    Raises:
        InvalidValueError: nobody has given it here, or an option is given.
    """
    from autotune.plugins.options import NoOptions, read_options

    read_options("search space 'parameters'", NoOptions, context.options)
    return _given(context.program)[1]


def _given(text: str | None) -> tuple[ExternalProgram, ParameterSpace]:
    found = _GIVEN.get(text or "")
    if found is None:
        raise InvalidValueError(
            "an external program is run only for who gives it, as the commands of a record are "
            "data: run autotune tune-external SPEC, or autotune.external(...)"
        )
    return found


def configuration_of(candidate: Candidate | None, program: str | None) -> dict[str, Value]:
    """The values of a candidate by name, as the user knows them.

    Args:
        candidate: The candidate; None is the default configuration.
        program: Text of the external program that it is of.

    Raises:
        InvalidValueError: the text is of no external program, or a value none of its own.
    """
    parameters = parameters_of_text(program or "")
    if candidate is None:
        return {it.name: it.default for it in parameters if it.default is not None}
    columns = candidate.config
    names = [parameter.name for parameter in parameters]
    if set(names) != set(columns):
        raise InvalidValueError(
            f"the record has values of {', '.join(columns)}, and its program is tuned by "
            f"{', '.join(names)}"
        )
    return {it.name: it.decode(columns[it.name]) for it in parameters}


def recorded_configuration(record: Record) -> dict[str, Value] | None:
    """The values that a record of an external program stands for; None for any other record."""
    if not record.candidate.sketch.workload.external or record.program is None:
        return None
    return configuration_of(record.scheduled, record.program)
