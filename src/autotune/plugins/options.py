"""Options of a part: a frozen attrs class whose defaults say which types are accepted.

A part declares its options once::

    @frozen
    class Options:
        epsilon: float = option(0.1, low=0.0, high=1.0)

and reads what the user gave with :func:`read_options`.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from autotune.errors import InvalidValueError, UnknownNameError, did_you_mean, near_matches


@attrs.frozen
class NoOptions:
    """Of a part that has none."""


_Options = TypeVar("_Options")


def option(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Collection[str] = (),
) -> Any:
    """An option with a default, whose type is the option's, and inclusive bounds.

    A text with ``choices`` is one of these, or the default.
    """
    return attrs.field(default=default, metadata={"low": low, "high": high, "choices": choices})


def read_options(owner: str, cls: type[_Options], given: Mapping[str, Any] | None) -> _Options:
    """An instance of ``cls`` with the values in ``given``, checked.

    Args:
        owner: What the options belong to, for messages: ``"strategy 'random'"``.
        cls: A frozen attrs class whose attributes are made by :func:`option`.
        given: What the user gave; None for nothing.

    Raises:
        InvalidValueError: an option is unknown, of the wrong type, or out of its bounds.
        UnknownNameError: an option is none of its choices.
    """
    # Every field of an options class has a default, so its type says what the option takes.
    known = {item.name: item for item in attrs.fields(cls)}  # type: ignore[arg-type]
    values = {}
    given = given or {}
    check_known(owner, given, known)
    for name, value in given.items():
        values[name] = _checked(f"option {name!r} of {owner}", known[name], value)
    return cls(**values)


def meanings(cls: type[Any]) -> dict[str, str]:
    """Descriptions of a class's attributes, from the section ``Attributes:`` of its docstring."""
    texts: dict[str, str] = {}
    current = ""
    inside = False
    for line in (inspect.getdoc(cls) or "").splitlines():
        if line == "Attributes:":
            inside = True
        elif inside and (match := re.fullmatch(r"    (\w+): (.*)", line)):
            current = match[1]
            texts[current] = match[2]
        elif inside and current and line.startswith("        "):
            texts[current] += " " + line.strip()
        elif line and not line.startswith(" "):
            inside = False
    return texts


def check_known(owner: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse options that a part does not have.

    Raises:
        InvalidValueError: an option is unknown.
    """
    for name in given:
        if name in known:
            continue
        message = f"{owner} has no option {name!r}; allowed: {', '.join(sorted(known)) or 'none'}"
        hint = did_you_mean(near_matches(str(name), known))
        raise InvalidValueError(f"{message}.{hint}" if hint else message)


def _checked(what: str, attribute: attrs.Attribute[Any], value: Any) -> Any:
    wanted = type(attribute.default)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if wanted is float and (whole or isinstance(value, float)):
        value = float(value)
        accepted = math.isfinite(value)
    elif wanted is int:
        accepted = whole
    else:
        accepted = isinstance(value, wanted)
    if not accepted:
        noun = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
        raise InvalidValueError(f"{what} must be {noun[wanted]}, not {value!r}")
    choices = attribute.metadata["choices"]
    if choices and value != attribute.default and value not in choices:
        raise UnknownNameError(f"value of {what}", value, choices)
    low, high = attribute.metadata["low"], attribute.metadata["high"]
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise InvalidValueError(f"{what} must be {bounds}, not {value!r}")
    return value
