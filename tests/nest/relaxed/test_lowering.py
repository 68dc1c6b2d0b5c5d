from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import assume, given
from random_tapes import BOUNDS, INPUTS, points, tapes
from relaxed_samples import samples

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, const, less, maximum, minimum, select, var
from autotune.ir.workloads import gemm
from autotune.nest import Tape, build_tape
from autotune.nest.relaxed import (
    FELIX,
    FORMS,
    RelaxedTape,
    Smoothing,
    lower_exact,
    lower_relaxed,
    param_bounds,
)
from autotune.sketches import Categorical, Factor, Ordinal, ProductEquals, Sketch

x, y, z = map(var, INPUTS)


def forms(expression: IntExpr, smoothing: Smoothing | None = None) -> list[str]:
    tape = build_tape(INPUTS, {"a": expression})
    return [
        form for form, _ in RelaxedTape(tape, "relaxed", BOUNDS, smoothing).lowered.instructions
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (x * y + 1, ["mul", "add"]),
        (x // y, ["divide"]),
        (minimum(x, y), ["min_log"]),
        (maximum(x, 4), ["max_log"]),
        (minimum(x, z), ["min_linear"]),
        (maximum(x - 3, 2), ["add", "max_linear"]),
        (less(x, y), ["less_log"]),
        (less(1, x), ["less_log"]),
        (less(z, x), ["less_linear"]),
        (select(less(x, y), x, y), ["less_log", "select_log"]),
        (select(less(x, y), x, z), ["less_log", "select_linear"]),
        # Three quarters are positive, a difference may not be.
        (minimum(3 * x // 4, y), ["mul", "divide", "min_log"]),
        (minimum(12 - x, y), ["mul", "add", "min_linear"]),
        # What bounds decide needs no smooth form.
        (maximum(1, x) + minimum(y, 64), ["add"]),
        (maximum(x, z - 2) + maximum(z - 2, x), ["mul"]),
        (less(0, x) + less(y, 1) + y, ["add", "add"]),
        (select(less(x, 13), x, y) + z, ["add"]),
        # A condition is known to be in [0, 1]; a parameter that reaches to 3 is none.
        (select(z, x, y), ["select_linear"]),
        (select(1 - less(x, y) * less(1, x), x, y), None),
    ],
    ids=str,
)
def test_forms(expression: IntExpr, expected: list[str] | None) -> None:
    if expected is None:
        assert forms(expression)[-1] == "select_log"
    else:
        assert forms(expression) == expected
    assert set(forms(expression)) <= set(FORMS)


def test_a_minimum_without_a_width_is_hard() -> None:
    assert forms(minimum(x, y), FELIX) == ["min"]
    assert forms(maximum(x, z), FELIX) == ["max"]
    assert forms(less(x, y), FELIX) == ["less_log"]


def test_what_only_remainders_need_is_left_out() -> None:
    tape = build_tape(INPUTS, {"a": (x * y) % 7 + x, "b": (x * y) % 5, "c": y // x})
    lowered = RelaxedTape(tape, "relaxed", BOUNDS).lowered
    assert [form for form, _ in lowered.instructions] == ["add", "divide"]
    assert lowered.constants == (0.0,)
    at = np.array([[4.0, 6.0, 1.0]])
    assert RelaxedTape(tape, "relaxed", BOUNDS).values(at).tolist() == [[4.0, 0.0, 1.5]]
    assert RelaxedTape(tape, "exact").values(at).tolist() == [[7.0, 4.0, 1.0]]


def test_what_no_output_needs_is_left_out() -> None:
    tape = Tape(("x",), (2, 3), (("mul", 0, 1), ("mul", 0, 2), ("add", 3, 3)), (("a", 5),))
    lowered = lower_exact(tape)
    assert lowered.instructions == (("mul", (0, 1)), ("add", (2, 2)))
    assert lowered.constants == (2.0,) and lowered.outputs == (3,)


@given(tapes(), points())
def test_ranges_hold(tape: Tape, at: Any) -> None:
    """Values said to be positive are: a relaxed tape takes the logarithm of nothing else.

    A number of a tape is larger than what its range allows only by rounding; here every slot is
    an output, and none of them is not finite.
    """
    count = len(tape.inputs) + len(tape.constants) + len(tape.instructions)
    every = attrs.evolve(tape, outputs=tuple((str(slot), slot) for slot in range(count)))
    try:
        relaxed = RelaxedTape(every, "relaxed", BOUNDS)
    except InvalidValueError:
        assume(False)
    lowered = relaxed.lowered
    values = np.abs(relaxed.values(at))
    signed = relaxed.values(at)
    assert np.isfinite(values).all()
    column = {slot: index for index, slot in enumerate(lowered.outputs)}
    for form, operands in lowered.instructions:
        if form.endswith("_log"):
            for slot in operands[-2:]:
                assert (signed[:, column[slot]] > 0).all()


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (x // z, "output 'a' cannot be relaxed: instruction 1 .floordiv. may divide by zero"),
        (3 + x // (x - y), "its divisor is between -63 and 11"),
        (y // (x % 5), "its divisor is between 0 and 0"),
    ],
    ids=str,
)
def test_what_cannot_be_relaxed(expression: IntExpr, words: str) -> None:
    tape = build_tape(INPUTS, {"fine": x * y, "a": expression})
    with pytest.raises(InvalidValueError, match=words):
        RelaxedTape(tape, "relaxed", BOUNDS)
    assert RelaxedTape(tape.restricted(["fine"]), "relaxed", BOUNDS).values(
        np.array([[2.0, 3.0, 0.0]])
    ).tolist() == [[6.0]]


@pytest.mark.parametrize("lower", [lower_exact, lambda t: lower_relaxed(t, [(1, 2)], Smoothing())])
def test_unknown_operations_are_refused(lower: Any) -> None:
    tape = Tape(("x",), (), (("power", 0, 0),), (("a", 1),))
    with pytest.raises(InvalidValueError, match="unknown operation 'power'.*known: add"):
        lower(tape)


@pytest.mark.parametrize(
    "widths",
    [
        {"temperature": 0.0},
        {"temperature": -1.0},
        {"temperature": np.nan},
        {"temperature": np.inf},
        {"epsilon": -0.1},
        {"epsilon": np.nan},
    ],
    ids=str,
)
def test_widths_are_checked(widths: Any) -> None:
    with pytest.raises(InvalidValueError, match="usual: 0"):
        Smoothing(**widths)


def test_bounds_of_parameters() -> None:
    sketch = Sketch(
        "made",
        gemm(m=8, n=8, k=8),
        (
            Ordinal("padded", (12, 14, 16)),
            Factor("a"),
            Factor("b"),
            Factor("c", (4,)),
            Categorical("d", ("none", "some")),
        ),
        (
            ProductEquals(("a", "b"), 3 * var("padded")),
            ProductEquals(("b", "c"), const(24)),
        ),
        (),
    )
    assert param_bounds(sketch) == {
        "padded": (12, 16),
        "a": (1, 48),
        "b": (1, 24),
        "c": (4, 4),
        "d": (0, 1),
    }


@pytest.mark.parametrize(
    "constraints", [(), (ProductEquals(("a",), var("b")),)], ids=["none", "unknown"]
)
def test_a_factor_of_nothing_has_no_bounds(constraints: Any) -> None:
    sketch = Sketch("made", gemm(m=8, n=8, k=8), (Factor("a"), Factor("b")), constraints, ())
    with pytest.raises(InvalidValueError, match="'a' of sketch 'made' has neither values nor"):
        param_bounds(sketch)


@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.name)
def test_every_configuration_is_within_bounds(sample: Any) -> None:
    low, high = np.array(list(param_bounds(sample.sketch).values())).T
    assert (sample.rows >= low).all() and (sample.rows <= high).all()
