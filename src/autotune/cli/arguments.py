"""Arguments of commands, declared once: as attributes of a class, of which a command is given one.

``database: str | None = option("--database FILE", "Also replay ...", InputFile())`` is an option
that is spelled so, described so, and read into ``asked.database``. What it takes follows from the
annotation: ``bool`` is a switch, a tuple may be repeated, and what is neither optional nor has a
default must be given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
import click
from attrs import field, frozen

from autotune.cli.destinations import OutputFile, checked_destinations
from autotune.cli.output import Output

__all__ = [
    "BEGAN",
    "Given",
    "Nothing",
    "Values",
    "argument",
    "command_of",
    "given",
    "nested",
    "option",
]

BEGAN = "autotune.began"
"""Key of the command's beginning, by the monotonic clock, among the context's ``meta``."""
_GIVEN = "autotune.given"
_NUMBERS: Mapping[str, type] = {"int": int, "float": float}
_JSON, _FORCE = "json_path", "force"

Asked = TypeVar("Asked")
Values = Mapping[str, Any]


@frozen
class Given:
    """Parameters of a command that make one attribute.

    Attributes:
        params: The parameters.
        read: Makes the attribute, from the values of all parameters of the command by name.
    """

    params: Sequence[click.Parameter]
    read: Callable[[Values], Any]


@frozen
class Nothing:
    """Arguments of a command that has none of its own."""


def given(make: Callable[[], Given]) -> Any:
    """An attribute that several parameters make, which are asked for when a command has it."""
    return field(default=None, metadata={_GIVEN: lambda _: make()})


def option(spelled: str, text: str, kind: Any = None, **settings: Any) -> Any:
    """An attribute that an option gives.

    Args:
        spelled: Its names and how its value is called, as in the help: ``"-o --output FILE"``.
        text: Its help.
        kind: Type of the value for click, where the annotation does not say it.
        settings: Others of ``click.Option``; ``shown`` is a default that the help shows.
    """
    words = spelled.split()
    names = [word for word in words if word.startswith("-")]
    metavar = " ".join(words[len(names) :]) or None
    if "shown" in settings:
        settings |= {"default": settings.pop("shown"), "show_default": True}

    def make(attribute: attrs.Attribute[Any]) -> Given:
        annotation = str(attribute.type)
        plain = annotation.removesuffix(" | None")
        own: dict[str, Any] = {"type": kind or _NUMBERS.get(plain), "metavar": metavar}
        if plain == "bool":
            own = {"is_flag": True}
        elif plain.startswith("tuple"):
            own["multiple"] = True
        elif plain == annotation and "default" not in settings:
            own["required"] = True
        return _plain(click.Option([*names, attribute.name], help=text, **own, **settings))

    return field(default=None, metadata={_GIVEN: make})


def argument(metavar: str | None = None, kind: Any = None) -> Any:
    """An attribute that words without a flag give: one, or all that are left for a tuple."""

    def make(attribute: attrs.Attribute[Any]) -> Given:
        annotation = str(attribute.type)
        several = annotation.startswith("tuple")
        required = not (several or annotation.endswith("None"))
        number = -1 if several else 1
        made = click.Argument(
            [attribute.name], metavar=metavar, type=kind, required=required, nargs=number
        )
        return _plain(made)

    return field(default=None, metadata={_GIVEN: make})


def nested(
    cls: type,
    *,
    without: Collection[str] = (),
    texts: Mapping[str, str] = MappingProxyType({}),
    **fixed: Any,
) -> Any:
    """An attribute that is an object of another class of this kind.

    Args:
        cls: The class.
        without: Names of its attributes that the command does not ask for.
        texts: The command's own help of options, by name.
        fixed: Values of attributes that the command itself knows.
    """

    def make(_: object) -> Given:
        members = {name: it for name, it in _declared(cls) if name not in without}
        params = [param for it in members.values() for param in it.params]
        for param in params:
            if isinstance(param, click.Option):
                param.help = texts.get(str(param.name), param.help)
        return Given(params, lambda values: cls(**_read(members, values), **fixed))

    return field(default=None, metadata={_GIVEN: make})


def command_of(
    name: str, asked: type[Asked], epilog: str, text: str | None = None
) -> Callable[[Callable[[Asked, Output], int]], click.Command]:
    """A command that takes such arguments and where to show its result; it returns its status.

    It has ``--json FILE`` as well, and ``--force`` for this file and every other that it writes.

    Args:
        name: What it is called.
        asked: The class of its arguments.
        epilog: Examples, shown below its help.
        text: The help; by default the docstring of what is decorated.
    """
    members = dict(_declared(asked))
    params = [param for it in members.values() for param in it.params]

    def decorate(function: Callable[[Asked, Output], int]) -> click.Command:
        def called(**values: Any) -> int:
            context = click.get_current_context()
            context.meta[BEGAN] = time.monotonic()
            chosen = checked_destinations(context, values[_FORCE])
            values |= chosen
            shares = any(path == "-" for name, path in chosen.items() if name != _JSON)
            output = Output(values[_JSON], "-" if shares else None)
            return function(asked(**_read(members, values)), output)

        return click.Command(
            name,
            callback=called,
            params=[*params, *_written()],
            help=text or function.__doc__,
            epilog=epilog,
        )

    return decorate


def _written() -> list[click.Parameter]:
    """``--json FILE``, and ``--force``."""
    text = "Also write the result as JSON; - for standard output."
    force = "Also replace existing files of another kind."
    return [
        click.Option(["--json", _JSON], metavar="FILE", type=OutputFile("report"), help=text),
        click.Option(["--force", _FORCE], is_flag=True, help=force),
    ]


def _declared(asked: type) -> Iterator[tuple[str, Given]]:
    for attribute in attrs.fields(asked):
        if _GIVEN in attribute.metadata:
            yield attribute.name, attribute.metadata[_GIVEN](attribute)


def _read(members: Mapping[str, Given], values: Values) -> dict[str, Any]:
    return {name: it.read(values) for name, it in members.items()}


def _plain(param: click.Parameter) -> Given:
    return Given([param], lambda values: values[str(param.name)])
