"""A tape evaluated one Python integer at a time."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.nest import Tape


def evaluate_row(tape: Tape, row: Sequence[int]) -> list[int]:
    """Outputs of one configuration, in integers of any size."""
    slots = [*map(int, row), *tape.constants]
    for operation, *operands in tape.instructions:
        values = [slots[slot] for slot in operands]
        slots.append(_apply(operation, values))
    return [slots[slot] for _, slot in tape.outputs]


def _apply(operation: str, values: list[int]) -> int:
    if operation == "select":
        condition, when_true, when_false = values
        return when_true if condition else when_false
    left, right = values
    results = {
        "add": lambda: left + right,
        "mul": lambda: left * right,
        "floordiv": lambda: left // right,
        "mod": lambda: left % right,
        "min": lambda: min(left, right),
        "max": lambda: max(left, right),
        "less": lambda: int(left < right),
    }
    return results[operation]()
