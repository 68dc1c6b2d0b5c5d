"""Tapes that hypothesis makes up, with bounds within which they can be relaxed."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from autotune.errors import InvalidValueError
from autotune.nest import Tape
from autotune.nest.relaxed import RelaxedTape
from autotune.nest.tape import OPERATIONS

INPUTS = ("x", "y", "z")
BOUNDS = {"x": (1.0, 12.0), "y": (1.0, 64.0), "z": (0.0, 3.0)}


@st.composite
def tapes(draw: st.DrawFn) -> Tape:
    """Any operations on any slots that some output needs; division by zero is not excluded."""
    constants = tuple(draw(st.lists(st.integers(-3, 9), min_size=1, max_size=3)))
    first = len(INPUTS) + len(constants)
    instructions: list[Any] = []
    for index in range(draw(st.integers(0, 12))):
        slots = st.integers(0, first + index - 1)
        operation = draw(st.sampled_from(OPERATIONS))
        operands = [draw(slots) for _ in range(3 if operation == "select" else 2)]
        instructions.append((operation, *operands))
    last = first + len(instructions) - 1
    found = draw(st.lists(st.integers(0, last), min_size=1, max_size=4))
    outputs = tuple((f"output {index}", slot) for index, slot in enumerate(found))
    tape = Tape(INPUTS, constants, tuple(instructions), outputs)
    return tape.restricted([name for name, _ in outputs])


def relaxable(tape: Tape, **options: Any) -> RelaxedTape | None:
    """The tape, relaxed; None where it may divide by zero or become too large."""
    try:
        return RelaxedTape(tape, "relaxed", BOUNDS, **options)
    except InvalidValueError:
        return None


def points() -> st.SearchStrategy[Any]:
    """Real points within the bounds, ``[n, inputs]``."""
    # Rounded: a divisor of 1e-257 is a case of its own, and not one of these laws.
    return _rows(st.floats(0, 1).map(lambda share: round(share, 6))).map(
        lambda share: np.array([low + (high - low) * s for (low, high), s in _columns(share)]).T
    )


def whole_points() -> st.SearchStrategy[Any]:
    """Whole numbers within the bounds, int64 ``[n, inputs]``."""
    return points().map(lambda values: np.round(values).astype(np.int64))


def _rows(elements: st.SearchStrategy[float]) -> st.SearchStrategy[Any]:
    shape = st.tuples(st.integers(1, 70), st.just(len(INPUTS)))
    return arrays.arrays(np.float64, shape, elements=elements)


def _columns(share: Any) -> Any:
    return zip(BOUNDS.values(), share.T, strict=True)
