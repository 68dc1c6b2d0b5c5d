"""A tape over real numbers: values and the product of a vector with its Jacobian, natively.

What its operations mean is decided once, before any point is seen. An exact tape keeps the hard
operations. A relaxed one has smooth forms: by logarithm where the operands are positive for all
inputs within bounds, linear where that is not certain, none where bounds decide a comparison.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import IntExpr
from autotune.nest import Tape
from autotune.nest.tape import OPERATIONS
from autotune.sketches import Factor, ProductEquals, Sketch

if TYPE_CHECKING:
    from autotune._native import RelaxedProgram


@frozen
class Smoothing:
    """Widths of smooth forms; octaves where operands are compared by logarithm, else units.

    Attributes:
        temperature: Width of a comparison.
        epsilon: Width of a minimum or maximum; 0 leaves it hard.
        half_step: Whether ``a < b`` turns between ``a`` and ``a + 1``, the first whole number
            for which it holds, rather than at ``a``.

    Raises:
        InvalidValueError: a width is negative or not finite, or the temperature is zero.
    """

    temperature: float = 0.25
    epsilon: float = 0.1
    half_step: bool = True

    def __attrs_post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise InvalidValueError(
                f"a temperature is a positive number, not {self.temperature!r}; usual: 0.25"
            )
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise InvalidValueError(
                f"epsilon is zero or a positive number, not {self.epsilon!r}; usual: 0.1"
            )


FELIX = Smoothing(temperature=1.0, epsilon=0.0, half_step=False)
"""Widths as in Felix (ASPLOS'24): comparisons one unit wide and not shifted, hard minima."""


Interval = tuple[float, float]
"""Least and greatest value."""

# Beyond this a double has too little room left for products and logarithms of it.
_LARGEST = 2.0**1000


def add(left: Interval, right: Interval) -> Interval:
    """Sums."""
    return left[0] + right[0], left[1] + right[1]


def multiply(left: Interval, right: Interval) -> Interval:
    """Products."""
    return _hull(a * b for a in left for b in right)


def divide(left: Interval, right: Interval) -> Interval:
    """Quotients.

    Raises:
        InvalidValueError: the divisor may be zero.
    """
    if right[0] <= 0.0 <= right[1]:
        raise InvalidValueError(
            f"may divide by zero: its divisor is between {right[0]:g} and {right[1]:g}"
        )
    return _hull(a / b for a in left for b in right)


def minimum(left: Interval, right: Interval) -> Interval:
    """The smaller of two."""
    return min(left[0], right[0]), min(left[1], right[1])


def maximum(left: Interval, right: Interval) -> Interval:
    """The larger of two."""
    return max(left[0], right[0]), max(left[1], right[1])


def blend(condition: Interval, when_true: Interval, when_false: Interval) -> Interval:
    """``c * t + (1 - c) * f``, which takes its extremes at corners."""
    corners = itertools.product(condition, when_true, when_false)
    return _hull(c * t + (1.0 - c) * f for c, t, f in corners)


def blend_log(condition: Interval, when_true: Interval, when_false: Interval) -> Interval:
    """``t^c * f^(1 - c)`` of positive values."""
    low, high = blend(condition, _log2(when_true), _log2(when_false))
    return 2.0**low, 2.0**high


def is_bounded(interval: Interval) -> bool:
    """Return whether the values are numbers that can be computed with."""
    return -_LARGEST <= interval[0] <= interval[1] <= _LARGEST


def is_positive(interval: Interval) -> bool:
    """Return whether the values are positive, with room for a logarithm."""
    return interval[0] >= 1.0 / _LARGEST


def of_expression(expression: IntExpr, bounds: Mapping[str, Interval]) -> Interval:
    """Range of an expression of sums and products.

    Raises:
        InvalidValueError: the expression has another operation, or a variable without bounds.
    """
    if expression.op == "const":
        return float(expression.args[0]), float(expression.args[0])
    if expression.op == "var" and expression.args[0] in bounds:
        return bounds[expression.args[0]]
    if expression.op not in ("add", "mul"):
        raise InvalidValueError(f"no bounds are known for {expression!r}")
    operation = add if expression.op == "add" else multiply
    result, *others = (of_expression(arg, bounds) for arg in expression.args)
    for other in others:
        result = operation(result, other)
    return result


def _log2(interval: Interval) -> Interval:
    return math.log2(interval[0]), math.log2(interval[1])


def _hull(values: Iterable[float]) -> Interval:
    found = list(values)
    return min(found), max(found)


ParamBounds = Mapping[str, Interval]
"""Least and greatest value of every parameter by name."""


def param_bounds(sketch: Sketch) -> dict[str, Interval]:
    """Bounds of all parameters of ``sketch``.

    A factor without listed values reaches from 1 to the total of the products it is part of.

    Raises:
        InvalidValueError: a factor has no listed values and is part of no product whose total
            is bounded.
    """
    known: dict[str, Interval] = {}
    for param in sketch.params:
        if param.values:
            known[param.name] = (float(min(param.values)), float(max(param.values)))
    result = {}
    for param in sketch.params:
        if param.name in known:
            result[param.name] = known[param.name]
            continue
        totals = [
            of_expression(constraint.total, known)[1]
            for constraint in sketch.constraints
            if isinstance(constraint, ProductEquals) and param.name in constraint.factors
            if constraint.total.variables <= known.keys()
        ]
        if not isinstance(param, Factor) or not totals:
            raise InvalidValueError(
                f"parameter {param.name!r} of sketch {sketch.name!r} has neither values nor a "
                "product that it is a factor of"
            )
        result[param.name] = (1.0, min(totals))
    return result


FORMS = (
    "add",
    "mul",
    "divide",
    "floordiv",
    "mod",
    "min",
    "max",
    "less",
    "select",
    "min_log",
    "max_log",
    "min_linear",
    "max_linear",
    "less_log",
    "less_linear",
    "select_log",
    "select_linear",
)
"""Names of the forms in the order in which native code numbers them."""

# What needs no instruction: constants, and an operand as it is.
_ZERO, _ONE = "zero", "one"
_OPERANDS = ("first", "second", "third")

RelaxedInstruction = tuple[str, tuple[int, ...]]
"""Form and operand slots; the condition of a select comes first."""


@frozen
class Lowered:
    """A tape as forms over slots: inputs, then constants, then one slot per instruction.

    Attributes:
        inputs: Number of inputs.
        constants: Values of the constant slots.
        instructions: Form and operands; every one is needed for some output.
        outputs: Slot of every output.
    """

    inputs: int
    constants: tuple[float, ...]
    instructions: tuple[RelaxedInstruction, ...]
    outputs: tuple[int, ...]


def lower_exact(tape: Tape) -> Lowered:
    """The tape with its hard operations.

    Raises:
        InvalidValueError: an operation is unknown.
    """
    instructions = []
    for operation, *operands in tape.instructions:
        _require_known(operation)
        instructions.append((operation, tuple(operands)))
    constants = [float(value) for value in tape.constants]
    return _pruned(tape, constants, instructions, [slot for _, slot in tape.outputs])


def lower_relaxed(tape: Tape, bounds: Sequence[Interval], smoothing: Smoothing) -> Lowered:
    """The tape in smooth forms, for inputs within ``bounds`` (one pair for each).

    Raises:
        InvalidValueError: an operation is unknown, or for inputs within the bounds something may
            be divided by zero or pass what a double can hold.
    """
    constants = [*(float(value) for value in tape.constants), 0.0, 1.0]
    ranges = [*bounds, *((value, value) for value in constants)]
    special = {_ZERO: len(ranges) - 2, _ONE: len(ranges) - 1}
    place = list(range(len(ranges) - 2))
    instructions: list[RelaxedInstruction] = []
    for index, (operation, *operands) in enumerate(tape.instructions):
        given = tuple(place[slot] for slot in operands)
        try:
            form, found = _relaxed(operation, [ranges[slot] for slot in given], smoothing)
        except InvalidValueError as error:
            raise InvalidValueError(
                f"{_user(tape, index)} cannot be relaxed: instruction {index} ({operation}) "
                f"{error}. Bounds may be too wide; Tape.restricted leaves outputs out"
            ) from error
        if form in FORMS:
            place.append(len(ranges))
            instructions.append((form, given))
            ranges.append(found)
        else:
            place.append({**special, **dict(zip(_OPERANDS, given, strict=False))}[form])
    return _pruned(tape, constants, instructions, [place[slot] for _, slot in tape.outputs])


def _relaxed(
    operation: str, given: Sequence[Interval], smoothing: Smoothing
) -> tuple[str, Interval]:
    """Form of an operation whose operands are in these ranges, and the range of its value."""
    _require_known(operation)
    if operation == "mod":
        return _ZERO, (0.0, 0.0)
    if operation == "less":
        return _less(given[0], given[1])
    if operation in ("min", "max"):
        form, found = _extremum(operation, given[0], given[1], smoothing.epsilon)
    elif operation == "select":
        form, found = _select(given[0], given[1], given[2])
    elif operation == "floordiv":
        form, found = "divide", divide(given[0], given[1])
    else:
        combine = add if operation == "add" else multiply
        form, found = operation, combine(given[0], given[1])
    if not is_bounded(found):
        raise InvalidValueError(f"may reach from {found[0]:g} to {found[1]:g}")
    return form, found


def _less(left: Interval, right: Interval) -> tuple[str, Interval]:
    if left[1] < right[0]:
        return _ONE, (1.0, 1.0)
    if right[1] <= left[0]:
        return _ZERO, (0.0, 0.0)
    logarithmic = is_positive(left) and is_positive(right)
    return ("less_log" if logarithmic else "less_linear"), (0.0, 1.0)


def _extremum(
    operation: str, left: Interval, right: Interval, epsilon: float
) -> tuple[str, Interval]:
    """A smooth minimum is at most half of epsilon below the minimum, a maximum above."""
    if left[1] <= right[0]:
        return (_OPERANDS[0], left) if operation == "min" else (_OPERANDS[1], right)
    if right[1] <= left[0]:
        return (_OPERANDS[1], right) if operation == "min" else (_OPERANDS[0], left)
    low, high = (minimum if operation == "min" else maximum)(left, right)
    if epsilon == 0:
        # It stays hard, on the values themselves: they tie exactly or not at all.
        return operation, (low, high)
    half = epsilon / 2
    if is_positive(left) and is_positive(right):
        found = (low * 2.0**-half, high) if operation == "min" else (low, high * 2.0**half)
        return f"{operation}_log", found
    return f"{operation}_linear", (low - half, high) if operation == "min" else (low, high + half)


def _select(
    condition: Interval, when_true: Interval, when_false: Interval
) -> tuple[str, Interval]:
    if condition in ((0.0, 0.0), (1.0, 1.0)):
        return (_OPERANDS[1], when_true) if condition[0] else (_OPERANDS[2], when_false)
    positive = is_positive(when_true) and is_positive(when_false)
    if positive and condition[0] >= 0 and condition[1] <= 1:
        return "select_log", blend_log(condition, when_true, when_false)
    return "select_linear", blend(condition, when_true, when_false)


def _require_known(operation: str) -> None:
    if operation not in OPERATIONS:
        raise InvalidValueError(
            f"unknown operation {operation!r} of a tape; known: {', '.join(OPERATIONS)}"
        )


def _user(tape: Tape, index: int) -> str:
    """Name an output that needs an instruction, for a message."""
    first = len(tape.inputs) + len(tape.constants)
    affected = {first + index}
    for later in range(index + 1, len(tape.instructions)):
        if affected.intersection(tape.instructions[later][1:]):
            affected.add(first + later)
    names = [name for name, slot in tape.outputs if slot in affected]
    return f"output {names[0]!r}" if names else "a tape"


def _pruned(
    tape: Tape,
    constants: Sequence[float],
    instructions: Sequence[RelaxedInstruction],
    outputs: Sequence[int],
) -> Lowered:
    """Only what outputs need."""
    inputs, first = len(tape.inputs), len(tape.inputs) + len(constants)
    needed = set(outputs)
    for index in range(len(instructions) - 1, -1, -1):
        if first + index in needed:
            needed.update(instructions[index][1])
    kept_constants = [slot for slot in range(inputs, first) if slot in needed]
    kept = [index for index in range(len(instructions)) if first + index in needed]
    place = {slot: slot for slot in range(inputs)}
    for slot in (*kept_constants, *(first + index for index in kept)):
        place[slot] = len(place)
    return Lowered(
        inputs,
        tuple(constants[slot - inputs] for slot in kept_constants),
        tuple((instructions[i][0], tuple(place[s] for s in instructions[i][1])) for i in kept),
        tuple(place[slot] for slot in outputs),
    )


Values = NDArray[np.float64]

MODES = ("exact", "relaxed")

# Points may miss their bounds by this much, relatively: they are often powers of real exponents.
_TOLERANCE = 1e-6


class RelaxedTape:
    """A tape read over real numbers, in float64.

    ``mode="exact"`` keeps the hard operations (floor, remainder, minimum, 0 or 1); it equals the
    integer tape at whole numbers below 2^53. ``mode="relaxed"`` has the smooth forms of
    ``docs/loop-nest.md``, which have a useful derivative everywhere (Felix, ASPLOS'24, section on
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
