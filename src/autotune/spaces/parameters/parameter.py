"""Parameters of programs that only their own tools understand: named lists of values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, near_matches
from autotune.sketches import Categorical, Ordinal, Param

__all__ = ["Parameter", "Value", "column_scale", "encode_config"]

Value = int | float | str | bool
"""What a parameter can be."""

_LARGEST = 2**53
"""Whole numbers up to here are exact in float64, in which surrogates compute."""
MOST_VALUES = 1 << 20
"""Of one parameter."""
_SHOWN = 12


def _as_tuple(values: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(values)


@frozen
class Parameter:
    """Tunable: a name and the values it may have.

    A configuration holds one integer per parameter: the value itself where all values are whole
    numbers or truth values, else its position among :attr:`values`.

    Attributes:
        name: What constraints and commands call it: letters, digits and ``_``.
        values: Its values, each once.
        default: The value where nobody tunes, or None.

    Raises:
        InvalidValueError: the name is no identifier, a value is of another type, not finite or
            there twice, or the default is none of the values.
    """

    name: str
    values: tuple[Value, ...] = field(converter=_as_tuple)
    default: Value | None = None
    # 1, 1.0 and True are three values, which dictionaries take for one.
    _positions: dict[type, dict[Value, int]] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise InvalidValueError(
                f"a parameter is called {self.name!r}; names are letters, digits and _"
            )
        if not 0 < len(self.values) <= MOST_VALUES:
            raise InvalidValueError(
                f"parameter {self.name!r} has {len(self.values)} values; there can be 1 to "
                f"{MOST_VALUES}"
            )
        positions: dict[type, dict[Value, int]] = {}
        for position, value in enumerate(self.values):
            _check_value(self.name, value)
            if positions.setdefault(type(value), {}).setdefault(value, position) != position:
                raise InvalidValueError(f"parameter {self.name!r} has value {value!r} twice")
        object.__setattr__(self, "_positions", positions)
        if self.default is not None:
            self.encode(self.default)

    @property
    def is_whole(self) -> bool:
        """True if its values are whole numbers, which then stand for themselves."""
        return set(self._positions) in ({int}, {bool})

    @property
    def column(self) -> Param:
        """The column of a configuration matrix that holds it."""
        if self.is_whole:
            return Ordinal(self.name, tuple(sorted(map(int, self.values))))
        return Categorical(self.name, tuple(map(_label, self.values)))

    def encode(self, value: Value) -> int:
        """Encode a value as a configuration holds it.

        Raises:
            InvalidValueError: it is none of the values; says which are, and what is near.
        """
        kinds = [type(value)]
        if _is_number(kinds[0]):
            # Numbers proper are equal by value: JSON may write 1.0 as 1.
            kinds += filter(_is_number, self._positions)
        for kind in kinds:
            if kind in self._positions and value in self._positions[kind]:
                return int(value) if self.is_whole else self._positions[kind][value]
        raise InvalidValueError(self._unknown(value))

    def decode(self, column: int) -> Value:
        """The value that a configuration holds as ``column``.

        Raises:
            InvalidValueError: there is none.
        """
        if not self.is_whole:
            if 0 <= column < len(self.values):
                return self.values[column]
        else:
            (kind,) = self._positions
            position = self._positions[kind].get(column)
            if position is not None:
                return self.values[position]
        raise InvalidValueError(self._unknown(column))

    def _unknown(self, value: object) -> str:
        shown = ", ".join(map(repr, self.values[:_SHOWN]))
        more = "" if len(self.values) <= _SHOWN else f" and {len(self.values) - _SHOWN} more"
        near = self._nearest(value)
        return (
            f"parameter {self.name!r} cannot be {value!r}; allowed: {shown}{more}"
            f"{'' if near is None else f'; the nearest is {near!r}'}"
        )

    def _nearest(self, value: object) -> Value | None:
        if isinstance(value, (int, float)) and math.isfinite(value):
            numbers = [it for it in self.values if isinstance(it, (int, float))]
            return min(numbers, key=lambda it: abs(it - value), default=None)
        texts = {str(it): it for it in self.values}
        found = near_matches(str(value), tuple(texts))
        return texts[found[0]] if found else None


def column_scale(param: Param) -> NDArray[np.float64] | None:
    """The numbers that the values of a column stand for, in the order of the values; [values].

    None where a column is an unordered choice, or a factor whose values only its product says.
    """
    if isinstance(param, Categorical):
        try:
            numbers = np.array([float(label) for label in param.labels])
        except ValueError:
            return None
        return numbers if np.isfinite(numbers).all() else None
    return None if param.values is None else np.array(param.values, dtype=np.float64)


def encode_config(parameters: Sequence[Parameter], config: Mapping[str, Value]) -> tuple[int, ...]:
    """A row of a configuration matrix from values by name.

    Raises:
        InvalidValueError: a parameter is missing or unknown, or a value none of its own.
    """
    names = [parameter.name for parameter in parameters]
    if set(names) != set(config):
        missing = sorted(set(names) - set(config))
        unknown = sorted(map(str, set(config) - set(names)))
        said = [f"lacks {', '.join(missing)}"] * bool(missing)
        said += [f"has {', '.join(unknown)}"] * bool(unknown)
        raise InvalidValueError(
            f"a configuration {' and '.join(said)}; its parameters are {', '.join(names)}"
        )
    return tuple(parameter.encode(config[parameter.name]) for parameter in parameters)


def _check_value(name: str, value: object) -> None:
    if not isinstance(value, (bool, int, float, str)):
        raise InvalidValueError(
            f"parameter {name!r} has value {value!r}; values are numbers, texts or truth values"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValueError(f"parameter {name!r} has value {value!r}, which is not finite")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise InvalidValueError(f"parameter {name!r} has value {value}, which is beyond 2**53")


def _is_number(kind: type) -> bool:
    return issubclass(kind, (int, float)) and kind is not bool


def _label(value: Value) -> str:
    return value if isinstance(value, str) else repr(value)
