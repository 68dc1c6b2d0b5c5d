from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.tape import evaluate_row
from random_tapes import BOUNDS, INPUTS, points, relaxable, tapes, whole_points
from relaxed_samples import Sample, samples

from autotune._native import simd_level
from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.ir.expressions import const, maximum, var
from autotune.nest import Tape, build_tape
from autotune.nest.relaxed import FELIX, RelaxedTape, Smoothing

SMOOTHINGS = (Smoothing(), FELIX, Smoothing(0.5, 0.3, True))
LEVELS = ("baseline", "avx2", "avx512")
x, y, z = map(var, INPUTS)


@pytest.fixture(params=samples(), ids=lambda sample: sample.name)
def sample(request: pytest.FixtureRequest) -> Sample:
    found: Sample = request.param
    return found


def test_exact_equals_the_integer_tape_of_every_sketch(sample: Sample) -> None:
    expected = sample.tape.evaluate(sample.rows)
    assert (expected < 2**53).all()
    found = sample.exact().values(sample.rows.astype(np.float64))
    np.testing.assert_array_equal(found, expected)


@given(tapes(), whole_points())
def test_exact_equals_the_integer_tape(tape: Tape, rows: Any) -> None:
    try:
        expected = [evaluate_row(tape, row) for row in rows.tolist()]
    except ZeroDivisionError:
        with pytest.raises(InvalidValueError, match="divides by zero"):
            RelaxedTape(tape, "exact").values(rows.astype(np.float64))
        return
    assume(all(abs(value) < 2**50 for row in expected for value in row))
    # What is in between may pass 2^53, whatever the outputs are.
    every = Tape(tape.inputs, tape.constants, tape.instructions, _every_slot(tape))
    assume(all(abs(v) < 2**53 for row in rows.tolist() for v in evaluate_row(every, row)))
    found = RelaxedTape(tape, "exact").values(rows.astype(np.float64))
    np.testing.assert_array_equal(found, np.array(expected, dtype=np.float64))


def _every_slot(tape: Tape) -> tuple[tuple[str, int], ...]:
    count = len(tape.inputs) + len(tape.constants) + len(tape.instructions)
    return tuple((str(slot), slot) for slot in range(count))


@given(tapes(), points(), st.sampled_from(["exact", "relaxed"]))
def test_every_instruction_set_and_number_of_threads_gives_the_same(
    tape: Tape, at: Any, mode: str
) -> None:
    relaxed = RelaxedTape(tape, "exact") if mode == "exact" else relaxable(tape)
    assume(relaxed is not None)
    assert relaxed is not None
    weights = np.random.default_rng(0).normal(size=(len(at), len(tape.outputs)))
    try:
        values, gradient = relaxed.values(at), relaxed.vjp(at, weights)
    except InvalidValueError:
        assert mode == "exact"
        return
    for threads in (2, 7):
        np.testing.assert_array_equal(relaxed.values(at, threads), values)
        np.testing.assert_array_equal(relaxed.vjp(at, weights, threads), gradient)
    for level in LEVELS[: LEVELS.index(simd_level()) + 1]:
        program = relaxed.program_for(level)
        assert program.simd == level
        np.testing.assert_array_equal(program.values(at), values)
        np.testing.assert_array_equal(program.vector_jacobian(at, weights), gradient)


def by_formulas(tape: RelaxedTape, at: Any) -> Any:
    """Values of all slots ``[n, slots]``, each form as docs/loop-nest.md writes it."""
    smoothing, lowered = tape.smoothing, tape.lowered

    def step(distance: Any) -> Any:
        z = distance / smoothing.temperature
        return 0.5 + z / (2 * np.sqrt(1 + z * z))

    def between(p: Any, q: Any, sign: int) -> Any:
        return (p + q + sign * np.hypot(p - q, smoothing.epsilon)) / 2

    def less_log(p: Any, q: Any) -> Any:
        turn = (np.log2(p) + np.log2(p + 1)) / 2 if smoothing.half_step else np.log2(p)
        return step(np.log2(q) - turn)

    forms: dict[str, Callable[..., Any]] = {
        "add": np.add,
        "mul": np.multiply,
        "divide": np.divide,
        "min": np.minimum,
        "max": np.maximum,
        "min_log": lambda p, q: np.exp2(between(np.log2(p), np.log2(q), -1)),
        "max_log": lambda p, q: np.exp2(between(np.log2(p), np.log2(q), 1)),
        "min_linear": lambda p, q: between(p, q, -1),
        "max_linear": lambda p, q: between(p, q, 1),
        "less_log": less_log,
        "less_linear": lambda p, q: step(q - p - 0.5 * smoothing.half_step),
        "select_log": lambda c, p, q: q * (p / q) ** c,
        "select_linear": lambda c, p, q: c * p + (1 - c) * q,
    }
    slots = [*at.T, *(np.full(len(at), value) for value in lowered.constants)]
    for form, operands in lowered.instructions:
        slots.append(forms[form](*(slots[slot] for slot in operands)))
    return np.stack(slots, axis=1)


@pytest.mark.parametrize("smoothing", SMOOTHINGS[:2], ids=["usual", "felix"])
def test_values_of_every_sketch_are_those_of_the_formulas(
    sample: Sample, smoothing: Smoothing
) -> None:
    tape = sample.relaxed(smoothing)
    at = np.concatenate(
        [sample.between(12, np.random.default_rng(3)), sample.rows[:12].astype(np.float64)]
    )
    wanted = by_formulas(tape, at)[:, tape.lowered.outputs]
    np.testing.assert_allclose(tape.values(at), wanted, rtol=1e-9, atol=1e-9)


@given(tapes(), points(), st.sampled_from(SMOOTHINGS))
def test_values_of_any_tape_are_those_of_the_formulas(
    tape: Tape, at: Any, smoothing: Smoothing
) -> None:
    relaxed = relaxable(tape, smoothing=smoothing)
    assume(relaxed is not None)
    assert relaxed is not None
    slots = by_formulas(relaxed, at)
    # What cancels is as accurate as what it was made of.
    scale = np.maximum(np.abs(slots).max(axis=1, keepdims=True), 1)
    assume((scale < 1e9).all())
    wanted = slots[:, relaxed.lowered.outputs]
    assert (np.abs(relaxed.values(at) - wanted) <= 1e-9 * scale).all()


def test_rows_do_not_know_of_each_other(sample: Sample) -> None:
    """G5: nothing depends on what else is in a batch or where (batches of other sizes too)."""
    rng = np.random.default_rng(1)
    at = sample.between(45, rng)
    weights = rng.normal(size=(45, len(sample.tape.outputs)))
    order = rng.permutation(45)
    for tape in (sample.exact(), sample.relaxed()):
        values, gradient = tape.values(at), tape.vjp(at, weights)
        np.testing.assert_array_equal(tape.values(at[order]), values[order])
        np.testing.assert_array_equal(tape.vjp(at[order], weights[order]), gradient[order])
        np.testing.assert_array_equal(tape.values(at[40:41]), values[40:41])
        np.testing.assert_array_equal(tape.vjp(at[40:41], weights[40:41]), gradient[40:41])


def test_no_rows_and_no_outputs() -> None:
    tape = RelaxedTape(build_tape(INPUTS, {"a": x * y}), "relaxed", BOUNDS)
    assert tape.values(np.zeros((0, 3))).shape == (0, 1)
    assert tape.vjp(np.zeros((0, 3)), np.zeros((0, 1))).shape == (0, 3)
    nothing = RelaxedTape(build_tape(INPUTS, {}), "relaxed", BOUNDS)
    assert nothing.values(np.ones((4, 3))).shape == (4, 0)
    np.testing.assert_array_equal(nothing.vjp(np.ones((4, 3)), np.zeros((4, 0))), np.zeros((4, 3)))


def test_an_output_may_be_an_input_or_a_constant_or_another_output() -> None:
    tape = RelaxedTape(build_tape(INPUTS, {"a": x, "b": const(4), "c": x, "d": y}), "exact")
    at = np.array([[2.5, 3.0, 1.0]])
    assert tape.values(at).tolist() == [[2.5, 4.0, 2.5, 3.0]]
    assert tape.vjp(at, np.array([[1.0, 10.0, 100.0, 1000.0]])).tolist() == [[101.0, 1000.0, 0.0]]


def test_points_may_be_anywhere_in_memory() -> None:
    tape = RelaxedTape(build_tape(INPUTS, {"a": x * y + z}), "relaxed", BOUNDS)
    at = np.asfortranarray(np.random.default_rng(0).uniform(1, 3, (50, 6)))
    weights = np.asfortranarray(np.ones((50, 2)))[:, ::2]
    np.testing.assert_array_equal(tape.values(at[:, ::2]), tape.values(at[:, ::2].copy()))
    np.testing.assert_array_equal(
        tape.vjp(at[:, ::2], weights), tape.vjp(at[:, ::2].copy(), weights.copy())
    )


TAPE = build_tape(INPUTS, {"a": maximum(x, y) // (z + 1)})


@pytest.mark.parametrize(
    "at",
    [
        np.ones(3),
        np.ones((2, 4)),
        np.ones((2, 3), dtype=np.float32),
        np.ones((2, 3), dtype=np.int64),
        np.array([[1.0, 1.0, np.nan]]),
        np.array([[1.0, 1.0, np.inf]]),
        np.array([[1.0, 65.0, 0.0]]),
        np.array([[0.9, 1.0, 0.0]]),
    ],
    ids=["flat", "wide", "float32", "int64", "nan", "infinite", "above", "below"],
)
def test_bad_points_are_refused(at: Any) -> None:
    tape = RelaxedTape(TAPE, "relaxed", BOUNDS)
    with pytest.raises(InvalidValueError, match="points|in row"):
        tape.values(at)
    with pytest.raises(InvalidValueError, match="points|in row"):
        tape.vjp(at, np.ones((len(at), 1)))


def test_points_may_miss_their_bounds_by_rounding() -> None:
    tape = RelaxedTape(TAPE, "relaxed", BOUNDS)
    at = np.array([[1.0 - 1e-9, 64.0 + 1e-9, -1e-9]])
    assert np.isfinite(tape.values(at)).all()


@pytest.mark.parametrize(
    "weights",
    [np.ones((2, 2)), np.ones((1, 1)), np.ones(2), np.ones((2, 1), dtype=np.float32)],
    ids=["wide", "short", "flat", "float32"],
)
def test_bad_cotangents_are_refused(weights: Any) -> None:
    with pytest.raises(InvalidValueError, match="a cotangent is a matrix"):
        RelaxedTape(TAPE, "exact").vjp(np.ones((2, 3)), weights)


@pytest.mark.parametrize("threads", [0, -1, 100000])
def test_bad_numbers_of_threads_are_refused(threads: int) -> None:
    with pytest.raises(InvalidValueError, match="threads"):
        RelaxedTape(TAPE, "exact").values(np.ones((2, 3)), threads)


def test_an_exact_tape_divides_by_zero_only_where_it_is_asked_to() -> None:
    tape = RelaxedTape(build_tape(INPUTS, {"a": x // z}), "exact")
    assert tape.values(np.array([[7.0, 1.0, 2.0]])).tolist() == [[3.0]]
    with pytest.raises(InvalidValueError, match="divides by zero"):
        tape.values(np.array([[7.0, 1.0, 0.0]]))


def test_what_passes_a_double_is_refused() -> None:
    power = var("x")
    for _ in range(8):
        power = power * power
    exact = RelaxedTape(build_tape(("x",), {"a": power}), "exact")
    assert np.isfinite(exact.values(np.array([[10.0]]))).all()
    with pytest.raises(InvalidValueError, match="not finite"):
        exact.values(np.array([[100.0]]))
    with pytest.raises(InvalidValueError, match="output 'a' cannot be relaxed"):
        RelaxedTape(exact.tape, "relaxed", {"x": (1.0, 100.0)})


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="relaxd.*exact, relaxed.*'relaxed'"):
        RelaxedTape(TAPE, "relaxd", BOUNDS)


@pytest.mark.parametrize(
    "bounds",
    [None, {"x": (1.0, 2.0)}, {**BOUNDS, "y": (3.0, 2.0)}, {**BOUNDS, "y": (1.0, np.nan)}],
    ids=["none", "missing", "empty", "nan"],
)
def test_a_relaxed_tape_needs_bounds(bounds: Any) -> None:
    with pytest.raises(AutotuneError, match="bounds"):
        RelaxedTape(TAPE, "relaxed", bounds)
