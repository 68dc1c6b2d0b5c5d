"""``--protocol``: how candidates are checked and timed, as the command line says it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autotune.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from autotune.measure import MeasureProtocol

__all__ = ["protocol_option", "read_protocol", "settings"]

Command = TypeVar("Command", bound=Callable[..., Any])

HELP = (
    "How candidates are timed: standard, quick, or a setting such as deadlines.build=60, "
    "max_samples=100, memory_bytes=4e9 or cold=true; may be repeated."
)
_DEADLINES = "deadlines"


def protocol_option(text: str = HELP) -> Callable[[Command], Command]:
    """``--protocol NAME|K=V``, which the command takes as a tuple of texts."""
    return click.option(
        "--protocol", "protocol", metavar="NAME|K=V", multiple=True, default=(), help=text
    )


def settings() -> tuple[str, ...]:
    """Every setting that ``--protocol`` takes a value of, in the protocol's order."""
    import attrs

    from autotune.measure import PHASES, MeasureProtocol

    names = [it.name for it in attrs.fields(MeasureProtocol) if it.name != "version"]
    phases = [f"{_DEADLINES}.{phase}" for phase in PHASES]
    return tuple(it for name in names for it in (phases if name == _DEADLINES else [name]))


def read_protocol(
    texts: Sequence[str], *, usual: str = "standard", only: Sequence[str] | None = None
) -> MeasureProtocol:
    """The protocol that ``--protocol`` means.

    Args:
        texts: Names of protocols, of which there may be one, and settings ``name=value``.
        usual: The name of the protocol that the settings change, where none is given.
        only: The settings that the command has a use for; by default all.

    Raises:
        UnknownNameError: there is no such protocol or setting.
        InvalidValueError: a value is out of range, or something is given twice.
    """
    from autotune.measure import MeasureProtocol

    names = [text for text in texts if "=" not in text]
    if len(names) > 1 or (names and only is not None):
        allowed = "one named protocol" if only is None else f"settings: {', '.join(only)}"
        raise InvalidValueError(f"--protocol takes {allowed}, not {' and '.join(names)}")
    known = settings() if only is None else tuple(only)
    data = MeasureProtocol.named(names[0] if names else usual).to_json()
    given: set[str] = set()
    for text in texts:
        if text in names:
            continue
        name, _, value = text.partition("=")
        if name not in known:
            raise UnknownNameError("setting of --protocol", name, known)
        if name in given:
            raise InvalidValueError(f"--protocol names {name!r} twice")
        given.add(name)
        number = _number(value)
        if isinstance(number, float) and not math.isfinite(number):
            raise InvalidValueError(f"--protocol: {name} must be finite, not {value!r}")
        place, _, phase = name.partition(".")
        data[place] = {**data[place], phase: number} if phase else number
    return _made(data)


def _made(data: dict[str, Any]) -> MeasureProtocol:
    from autotune.measure import MeasureProtocol

    try:
        return MeasureProtocol.from_json(data)
    except InvalidValueError as error:
        reason = str(error).removeprefix("not a measure protocol: ")
        raise InvalidValueError(f"--protocol: {reason}") from error


def _number(text: str) -> Any:
    """A value as JSON has it, whole numbers such as 4e9 as integers; else the text itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return int(value) if isinstance(value, float) and value.is_integer() else value
