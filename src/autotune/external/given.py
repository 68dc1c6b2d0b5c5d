"""Programs that the user of this process has given: the only ones that are ever run.

A record holds the text of a program, which is data: what a database says is looked up here, and
what nobody has given is refused.
"""

from __future__ import annotations

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.external.program import ExternalProgram
from autotune.spaces import SpaceContext
from autotune.spaces.parameters import ParameterSpace

__all__ = ["Given", "given_program", "make_parameter_space", "note_given"]


@frozen(eq=False)
class Given:
    """A program that may be run in this process.

    Attributes:
        program: The program.
        space: Its configurations.
        text: By which it is known.
    """

    program: ExternalProgram
    space: ParameterSpace
    text: str


_GIVEN: dict[str, Given] = {}


def note_given(program: ExternalProgram) -> Given:
    """Let a program be run in this process.

    Raises:
        InvalidValueError: it has no configuration, or its default is not feasible.
    """
    given = Given(program, program.space(), program.text)
    _GIVEN[given.text] = given
    return given


def given_program(text: str | None) -> Given:
    """The program with this text.

    Raises:
        InvalidValueError: nobody has given it in this process.
    """
    found = _GIVEN.get(text or "")
    if found is None:
        raise InvalidValueError(
            "an external program is run only for who gives it, as the commands of a record are "
            "data: run autotune tune-external SPEC, or autotune.external(...)"
        )
    return found


def make_parameter_space(context: SpaceContext) -> ParameterSpace:
    """The space of the program that the user has given under the context's text.

    Raises:
        InvalidValueError: nobody has given it here, or an option is given.
    """
    from autotune.plugins.options import NoOptions, read_options

    read_options("search space 'parameters'", NoOptions, context.options)
    return given_program(context.program).space
