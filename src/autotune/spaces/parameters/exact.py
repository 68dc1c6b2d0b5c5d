"""Operations on columns of values that give what Python gives.

They are done in machine numbers as long as those hold every whole number exactly, and beyond that
on Python's own numbers, row by row.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ARITHMETIC", "column_of", "joined", "negated", "operated", "spread", "truth"]

_LARGEST = 2**53
"""Whole numbers up to here are the same in int64 and in float64."""
_MOST_BITS = 4096
"""Of a power: constraints come with files, and a short text can ask for all of memory."""


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and abs(base) > 1 and base.bit_length() * exponent > _MOST_BITS:
        raise OverflowError(f"a power has more than {_MOST_BITS} bits")
    return base**exponent


def _of_numbers(operate: Callable[[Any, Any], Any], symbol: str) -> Callable[[Any, Any], Any]:
    """An operation that means something else, of any size, for texts."""

    def checked(first: Any, second: Any) -> Any:
        if isinstance(first, str) or isinstance(second, str):
            raise TypeError(f"{symbol} is for numbers, not texts")
        return operate(first, second)

    return checked


ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**")
_DIVISIONS = ("/", "//", "%")
_PYTHON: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": _of_numbers(operator.mul, "*"),
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": _of_numbers(operator.mod, "%"),
    "**": _power,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_MACHINE = {**_PYTHON, "*": operator.mul, "%": operator.mod, "**": operator.pow}
_BY_ROW = {symbol: np.frompyfunc(operate, 2, 1) for symbol, operate in _PYTHON.items()}


def column_of(values: NDArray[Any]) -> NDArray[Any]:
    """Values as operations take them: truth values, int64, float64, or Python's objects; [n]."""
    kind = values.dtype.kind
    if kind == "b":
        return values
    if kind == "f":
        return values.astype(np.float64)
    if kind in "iu" and _reach(values) <= _LARGEST:
        return values.astype(np.int64)
    return values.astype(object)


def operated(symbol: str, first: Any, second: Any) -> Any:
    """An operation on scalars of Python or columns, as Python computes it for each row.

    Raises:
        ZeroDivisionError: a divisor is zero.
        TypeError: values of these types have no such operation.
        OverflowError: a number is too large.
    """
    if symbol in ARITHMETIC:
        first, second = _number(first), _number(second)
    if not isinstance(first, np.ndarray) and not isinstance(second, np.ndarray):
        return _PYTHON[symbol](first, second)
    if _is_exact(symbol, first, second):
        if symbol in _DIVISIONS and np.any(np.asarray(second) == 0):
            raise ZeroDivisionError
        return _MACHINE[symbol](first, second)
    found = _BY_ROW[symbol](first, second)
    return found if symbol in ARITHMETIC else truth(found)


def negated(value: Any) -> Any:
    """The value times -1."""
    return -_number(value)


def truth(value: Any) -> Any:
    """Where values count as true."""
    return value.astype(np.bool_) if isinstance(value, np.ndarray) else bool(value)


def spread(value: Any, size: int) -> NDArray[Any]:
    """A scalar on every row; a column as it is; [size]."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bool):
        return np.full(size, value)
    return np.full(size, value, dtype=object if _reach(value) > _LARGEST else None)


def joined(parts: Sequence[tuple[NDArray[np.intp], NDArray[Any]]], size: int) -> NDArray[Any]:
    """Join a column of parts, each the rows that it is of and their values; [size]."""
    kinds = {values.dtype for _, values in parts if len(values)}
    if len(kinds) == 1:
        (kind,) = kinds
    else:
        # Truth values and whole numbers agree in everything; fractions round.
        is_whole = kinds <= {np.dtype(np.bool_), np.dtype(np.int64)}
        kind = np.dtype(np.int64 if is_whole else object)
    column = np.empty(size, dtype=kind)
    for rows, values in parts:
        column[rows] = values
    return column


def _is_exact(symbol: str, first: Any, second: Any) -> bool:
    """Return whether machine numbers give what Python's give."""
    reaches = _reach(first), _reach(second)
    if max(reaches) > _LARGEST:
        return False
    if symbol == "**":
        return _is_whole(first) and _is_whole(second) and _has_small_powers(reaches, second)
    largest = {"+": sum(reaches), "-": sum(reaches), "*": math.prod(reaches)}
    return largest.get(symbol, 0) <= _LARGEST


def _has_small_powers(reaches: tuple[float, float], exponents: Any) -> bool:
    if not np.size(exponents) or np.min(exponents) < 0 or reaches[1] >= _LARGEST.bit_length():
        return False
    largest: int = int(reaches[0]) ** int(reaches[1])
    return largest <= _LARGEST


def _reach(value: Any) -> float:
    """Largest absolute value of whole numbers, 0 of fractions, infinity of all others."""
    if isinstance(value, np.ndarray):
        kind = value.dtype.kind
        if kind in "iu":
            return max(-int(value.min()), int(value.max())) if value.size else 0
        return {"b": 1, "f": 0}.get(kind, math.inf)
    if isinstance(value, int):
        return abs(value)
    return 0 if isinstance(value, float) else math.inf


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, np.ndarray) and value.dtype.kind == "i")


def _number(value: Any) -> Any:
    """Truth values count as 0 and 1, as in Python; numpy would refuse to subtract them."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return value.astype(np.int64)
    return value
