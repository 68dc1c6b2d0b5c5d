"""How every operation of a tape is read over real numbers: decided once, before any point is seen.

An exact tape keeps the hard operations. A relaxed one has smooth forms: by logarithm where the
operands are positive for all inputs within bounds, linear where that is not certain.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.nest import Tape
from autotune.nest.tape import OPERATIONS
from autotune.relaxed import intervals
from autotune.relaxed.intervals import Interval
from autotune.relaxed.smoothing import Smoothing

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

# A remainder has no place among them: it becomes the constant 0.
_ZERO = "zero"
# Conditions are in [0, 1]. A parameter that is one may leave that as points may leave bounds.
_CONDITION = (-1e-3, 1.001)

Instruction = tuple[str, tuple[int, ...]]
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
    instructions: tuple[Instruction, ...]
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
    return _pruned(tape, instructions)


def lower_relaxed(tape: Tape, bounds: Sequence[Interval], smoothing: Smoothing) -> Lowered:
    """The tape in smooth forms, for inputs within ``bounds`` (one pair for each).

    Raises:
        InvalidValueError: an operation is unknown, or for inputs within the bounds something may
            be divided by zero or pass what a double can hold.
    """
    ranges = [*bounds, *((float(value), float(value)) for value in tape.constants)]
    instructions: list[Instruction] = []
    for index, (operation, *operands) in enumerate(tape.instructions):
        try:
            form, found = _relaxed(operation, [ranges[slot] for slot in operands], smoothing)
        except InvalidValueError as error:
            raise InvalidValueError(
                f"{_user(tape, index)} cannot be relaxed: instruction {index} ({operation}) "
                f"{error}. Bounds may be too wide; Tape.restricted leaves outputs out"
            ) from error
        instructions.append((form, tuple(operands)))
        ranges.append(found)
    return _pruned(tape, instructions)


def _relaxed(
    operation: str, given: Sequence[Interval], smoothing: Smoothing
) -> tuple[str, Interval]:
    """Form of an operation whose operands are in these ranges, and the range of its value."""
    _require_known(operation)
    if operation == "mod":
        return _ZERO, (0.0, 0.0)
    logarithmic = all(intervals.is_positive(each) for each in given[-2:])
    if operation == "floordiv":
        form, found = "divide", intervals.divide(given[0], given[1])
    elif operation in ("min", "max"):
        # Without a width it stays hard, on the values themselves: they tie exactly or not at all.
        smooth = f"{operation}_log" if logarithmic else f"{operation}_linear"
        form = smooth if smoothing.epsilon > 0 else operation
        found = _extremum(operation, given, smoothing.epsilon / 2, logarithmic)
    elif operation == "less":
        form, found = ("less_log" if logarithmic else "less_linear"), (0.0, 1.0)
    elif operation == "select":
        low, high = given[0]
        mixed = logarithmic and _CONDITION[0] <= low and high <= _CONDITION[1]
        form = "select_log" if mixed else "select_linear"
        blend = intervals.blend_log if mixed else intervals.blend
        found = blend(given[0], given[1], given[2])
    else:
        form = operation
        combine = intervals.add if operation == "add" else intervals.multiply
        found = combine(given[0], given[1])
    if not intervals.is_bounded(found):
        raise InvalidValueError(f"may reach from {found[0]:g} to {found[1]:g}")
    return form, found


def _extremum(
    operation: str, given: Sequence[Interval], half: float, logarithmic: bool
) -> Interval:
    """A smooth minimum is at most half of epsilon below the minimum, a maximum above."""
    low, high = (intervals.minimum if operation == "min" else intervals.maximum)(*given)
    if operation == "min":
        return (low * 2.0**-half, high) if logarithmic else (low - half, high)
    return (low, high * 2.0**half) if logarithmic else (low, high + half)


def _require_known(operation: str) -> None:
    if operation not in OPERATIONS:
        raise InvalidValueError(
            f"unknown operation {operation!r} of a tape; known: {', '.join(OPERATIONS)}"
        )


def _user(tape: Tape, index: int) -> str:
    """One output that needs an instruction, for a message."""
    first = len(tape.inputs) + len(tape.constants)
    affected = {first + index}
    for later in range(index + 1, len(tape.instructions)):
        if affected.intersection(tape.instructions[later][1:]):
            affected.add(first + later)
    names = [name for name, slot in tape.outputs if slot in affected]
    return f"output {names[0]!r}" if names else "a tape"


def _pruned(tape: Tape, instructions: Sequence[Instruction]) -> Lowered:
    """Only what outputs need, with zeros as constants."""
    inputs, first = len(tape.inputs), len(tape.inputs) + len(tape.constants)
    needed = {slot for _, slot in tape.outputs}
    for index in range(len(instructions) - 1, -1, -1):
        form, operands = instructions[index]
        if first + index in needed and form != _ZERO:
            needed.update(operands)
    constants = [slot for slot in range(inputs, first) if slot in needed]
    zeros = [first + i for i, (form, _) in enumerate(instructions) if form == _ZERO]
    kept = [i for i, (form, _) in enumerate(instructions) if first + i in needed and form != _ZERO]
    values = [float(tape.constants[slot - inputs]) for slot in constants]
    place = {slot: slot for slot in range(inputs)}
    place.update({slot: inputs + i for i, slot in enumerate(constants)})
    if needed.intersection(zeros):
        place.update(dict.fromkeys(zeros, inputs + len(values)))
        values.append(0.0)
    start = inputs + len(values)
    place.update({first + index: start + i for i, index in enumerate(kept)})
    return Lowered(
        inputs,
        tuple(values),
        tuple((instructions[i][0], tuple(place[s] for s in instructions[i][1])) for i in kept),
        tuple(place[slot] for _, slot in tape.outputs),
    )
