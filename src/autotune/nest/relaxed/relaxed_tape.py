"""A tape over real numbers: values and the product of a vector with its Jacobian, natively."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.nest import Tape
from autotune.nest.relaxed.lowering import (
    FORMS,
    Interval,
    Lowered,
    Smoothing,
    lower_exact,
    lower_relaxed,
)

if TYPE_CHECKING:
    from autotune._native import RelaxedProgram

Values = NDArray[np.float64]

MODES = ("exact", "relaxed")

# Points may miss their bounds by this much, relatively: they are often powers of real exponents.
_TOLERANCE = 1e-6


class RelaxedTape:
    """A tape read over real numbers, in float64.

    ``mode="exact"`` keeps the hard operations (floor, remainder, minimum, 0 or 1); it equals the
    integer tape at whole numbers below 2^53. ``mode="relaxed"`` has the smooth forms of
    ``docs/relaxed.md``, which have a useful derivative everywhere (Felix, ASPLOS'24, section on
    smoothing; minima, thresholds and widths differ).

    Args:
        tape: The tape.
        mode: ``"exact"`` or ``"relaxed"``.
        bounds: Least and greatest value of every input by name, such as
            :func:`autotune.nest.relaxed.param_bounds` gives. A relaxed tape needs them: they
            decide which forms it takes. Points outside are refused; those that miss them by
            rounding (1e-6, relatively) are taken to be on them.
        smoothing: Widths of the smooth forms; without a meaning for an exact tape.

    Raises:
        UnknownNameError: there is no such mode.
        InvalidValueError: bounds are missing or empty, or within them the tape may divide by zero
            or pass what a double can hold.
    """

    def __init__(
        self,
        tape: Tape,
        mode: str,
        bounds: Mapping[str, Interval] | None = None,
        smoothing: Smoothing | None = None,
    ) -> None:
        if mode not in MODES:
            raise UnknownNameError("mode of a relaxed tape", mode, MODES)
        self.tape = tape
        self.mode = mode
        self.smoothing = Smoothing() if smoothing is None else smoothing
        self._bounds = None if bounds is None else _checked(tape, bounds)
        self.lowered = self._lower()

    def _lower(self) -> Lowered:
        if self.mode == "exact":
            return lower_exact(self.tape)
        if self._bounds is None:
            raise InvalidValueError("a relaxed tape needs bounds of its inputs")
        return lower_relaxed(self.tape, self._bounds, self.smoothing)

    @cached_property
    def program(self) -> RelaxedProgram:
        """The tape as native code runs it, with the best vector instructions of this machine.

        Raises:
            InvalidValueError: the tape is malformed.
        """
        return self.program_for("best")

    def program_for(self, simd: str) -> RelaxedProgram:
        """The tape for ``"baseline"``, ``"avx2"``, ``"avx512"`` or the ``"best"`` of them here.

        All of them compute the same.

        Raises:
            InvalidValueError: this machine lacks the instructions, or the tape is malformed.
        """
        from autotune._native import RelaxedProgram

        operands = np.zeros((len(self.lowered.instructions), 3), dtype=np.int32)
        for index, (_, slots) in enumerate(self.lowered.instructions):
            operands[index, : len(slots)] = slots
        try:
            return RelaxedProgram(
                self.lowered.inputs,
                np.array(self.lowered.constants, dtype=np.float64),
                np.array([FORMS.index(form) for form, _ in self.lowered.instructions], np.uint8),
                operands,
                np.array(self.lowered.outputs, dtype=np.int32),
                self.smoothing.temperature,
                self.smoothing.epsilon,
                self.smoothing.half_step,
                simd,
            )
        except (OverflowError, ValueError) as error:
            raise InvalidValueError(f"a tape that cannot be run: {error}") from error

    def values(self, x: Values, threads: int = 1) -> Values:
        """Outputs ``[n, outputs]`` at points ``[n, inputs]``.

        Raises:
            InvalidValueError: the points have another shape or type or are outside the bounds, or
                for one of them an exact tape divides by zero or has a value that is not finite.
        """
        points = self._points(x)
        try:
            return self.program.values(points, threads)
        except (OverflowError, ValueError) as error:
            raise InvalidValueError(str(error)) from error

    def vjp(self, x: Values, cotangent: Values, threads: int = 1) -> Values:
        """Gradient ``[n, inputs]`` of the sum over outputs of ``cotangent * values(x)``.

        Args:
            x: Points ``[n, inputs]``.
            cotangent: Weights ``[n, outputs]``.
            threads: Threads that share the rows; results do not depend on it.

        Raises:
            InvalidValueError: as for :meth:`values`, or the weights have another shape or type.
        """
        points = self._points(x)
        shape = (len(points), len(self.tape.outputs))
        if cotangent.shape != shape or cotangent.dtype != np.float64:
            raise InvalidValueError(
                f"a cotangent is a matrix {shape} of float64, not {cotangent.shape} of "
                f"{cotangent.dtype}"
            )
        try:
            return self.program.vector_jacobian(points, np.ascontiguousarray(cotangent), threads)
        except (OverflowError, ValueError) as error:
            raise InvalidValueError(str(error)) from error

    def _points(self, x: Values) -> Values:
        if x.ndim != 2 or x.shape[1] != len(self.tape.inputs) or x.dtype != np.float64:
            raise InvalidValueError(
                f"a tape over {len(self.tape.inputs)} parameters takes points [n, "
                f"{len(self.tape.inputs)}] of float64, not {x.shape} of {x.dtype}"
            )
        if not self._bounds:
            if not np.isfinite(x).all():
                raise InvalidValueError("points are finite")
            return np.ascontiguousarray(x)
        low, high = np.array(self._bounds, dtype=np.float64).T
        margin = _TOLERANCE * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))
        # Written so that NaN is outside.
        inside = (x >= low - margin) & (x <= high + margin)
        if not inside.all():
            row, column = np.argwhere(~inside)[0]
            raise InvalidValueError(
                f"{self.tape.inputs[column]!r} is {x[row, column]} in row {row}; its bounds are "
                f"{low[column]:g} and {high[column]:g}"
            )
        return np.clip(x, low, high, order="C")


def _checked(tape: Tape, bounds: Mapping[str, Interval]) -> list[Interval]:
    result = []
    for name in tape.inputs:
        if name not in bounds:
            raise InvalidValueError(f"input {name!r} of the tape has no bounds")
        low, high = (float(value) for value in bounds[name])
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise InvalidValueError(f"bounds of {name!r} are not in order: {bounds[name]!r}")
        result.append((low, high))
    return result
