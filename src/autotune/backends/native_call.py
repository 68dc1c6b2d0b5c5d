"""Compiled functions that are called and timed without the interpreter in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune import _native
from autotune.errors import InvalidValueError

__all__ = ["NativeCall", "NativeCallFailed", "sample_native_call", "time_native_call"]

_MOST_ARGUMENTS = 6
_WORDS = range(-(1 << 63), 1 << 64)
_ADDRESSES = range(1, 1 << 64)


def _words(arguments: Iterable[int]) -> tuple[int, ...]:
    return tuple(arguments)


class NativeCallFailed(RuntimeError):
    """A compiled function returned a non-zero status: the program failed."""


@frozen
class NativeCall:
    """A C function with its arguments: ``int function(word, ...)``, where 0 means success.

    The caller vouches for the address and for what the arguments point to: a wrong one ends the
    process. That is why such calls are made in workers.

    Attributes:
        address: Where the function begins.
        arguments: At most six machine words, as a C function takes integers and pointers;
            negative numbers are passed in two's complement.
        keeps: Whatever has to stay alive as long as the call may be made: the library, arrays,
            prepared arguments.
        explain: Says why the latest call failed, on the thread that made it.

    Raises:
        InvalidValueError: there are too many arguments, or a number does not fit into a word.
    """

    address: int = field()
    arguments: tuple[int, ...] = field(converter=_words)
    keeps: object = field(default=None, repr=False, eq=False)
    explain: Callable[[], str] | None = field(default=None, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        # Only for integers is `in` a comparison: for others a range is walked through.
        if not isinstance(self.address, int) or self.address not in _ADDRESSES:
            raise InvalidValueError(
                f"the address of a native call is from 1 to 2**64 - 1, not {self.address!r}"
            )
        if len(self.arguments) > _MOST_ARGUMENTS:
            raise InvalidValueError(
                f"a native call has at most {_MOST_ARGUMENTS} arguments, not {len(self.arguments)}"
            )
        for argument in self.arguments:
            if not isinstance(argument, int) or argument not in _WORDS:
                raise InvalidValueError(
                    "an argument of a native call is a whole number from -2**63 to 2**64 - 1, "
                    f"not {argument!r}"
                )


def time_native_call(call: NativeCall, number: int) -> float:
    """Seconds per call, averaged over ``number`` calls made back to back in native code.

    See :func:`sample_native_call`.
    """
    return float(sample_native_call(call, number, 1)[0])


def sample_native_call(call: NativeCall, number: int, samples: int) -> NDArray[np.float64]:
    """Times a call without the interpreter, whose lock is released meanwhile.

    The clock is ``CLOCK_MONOTONIC_RAW``, which is never adjusted. Nothing is called that is not
    timed, and nothing happens between samples.

    Args:
        call: What to time.
        number: Calls per sample, from 1 to 1e9.
        samples: How many samples, from 1 to 1e7.

    Returns:
        Seconds per call of each sample [samples], in order.

    Raises:
        InvalidValueError: a count is out of range.
        NativeCallFailed: a call returned something else than 0; it was the last one made.
    """
    for name, value, most in (("number", number, 10**9), ("samples", samples, 10**7)):
        if not 1 <= value <= most:
            raise InvalidValueError(f"{name} must be from 1 to {most}, not {value}")
    words = [argument % (1 << 64) for argument in call.arguments]
    seconds, result = _native.sample_native_call(call.address, words, number, samples)
    if result != 0:
        reason = "" if call.explain is None else f": {call.explain()}"
        raise NativeCallFailed(f"a compiled function returned {result}{reason}")
    return seconds
