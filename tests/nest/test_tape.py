from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.tape import evaluate_row

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import (
    IntExpr,
    ceildiv,
    const,
    less,
    maximum,
    minimum,
    nontrivial,
    select,
    var,
)
from autotune.ir.expressions.integer import evaluate
from autotune.nest import Tape, build_tape

INPUTS = ("x", "y", "z")
x, y, z = map(var, INPUTS)
EXPRESSIONS = st.recursive(
    st.integers(0, 9).map(const) | st.sampled_from([x, y, z]),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: a - b, inner, inner),
        st.builds(lambda a, b: a * b, inner, inner),
        st.builds(lambda a, b: a // (b * b + 1), inner, inner),
        st.builds(lambda a, b: a % (b * b + 1), inner, inner),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
        st.builds(less, inner, inner),
        st.builds(lambda a, b, c: select(nontrivial(a), b, c), inner, inner, inner),
        st.builds(ceildiv, inner, st.sampled_from([x, y, const(4)])),
    ),
    max_leaves=6,
)
OUTPUTS = st.lists(EXPRESSIONS, min_size=1, max_size=4).map(
    lambda found: {f"output {index}": expression for index, expression in enumerate(found)}
)
MATRICES = st.lists(st.tuples(*[st.integers(1, 12)] * 3), min_size=1, max_size=4).map(
    lambda rows: np.array(rows, dtype=np.int64)
)


@given(OUTPUTS, MATRICES)
def test_a_tape_computes_its_expressions(outputs: dict[str, IntExpr], matrix: Any) -> None:
    tape = build_tape(INPUTS, outputs)
    result = tape.evaluate(matrix)
    assert result.dtype == np.int64 and result.shape == (len(matrix), len(outputs))
    for row, values in zip(result.tolist(), matrix.tolist(), strict=True):
        env = dict(zip(INPUTS, values, strict=True))
        assert row == [evaluate(expression, env) for expression in outputs.values()]
        assert row == evaluate_row(tape, values)
    assert list(tape.output_index) == list(outputs)


@given(OUTPUTS, MATRICES)
def test_json_round_trip(outputs: dict[str, IntExpr], matrix: Any) -> None:
    tape = build_tape(INPUTS, outputs)
    restored = Tape.from_json(json.loads(json.dumps(tape.to_json())))
    assert restored == tape and restored.digest == tape.digest
    np.testing.assert_array_equal(restored.evaluate(matrix), tape.evaluate(matrix))


@given(OUTPUTS, st.integers(0, 200), st.integers(1, 3), st.randoms(use_true_random=False))
def test_instruction_sets_and_threads_make_no_difference(
    outputs: dict[str, IntExpr], rows: int, threads: int, random: Any
) -> None:
    tape = build_tape(INPUTS, outputs)
    matrix = np.array([[random.randint(1, 40) for _ in INPUTS] for _ in range(rows)], np.int64)
    matrix = matrix.reshape(rows, len(INPUTS))
    expected = [evaluate_row(tape, row) for row in matrix.tolist()]
    levels = ["baseline", "avx2", "avx512"]
    for level in levels[: levels.index(tape.program.simd) + 1]:
        assert tape.program_for(level).evaluate(matrix, threads).tolist() == expected
    assert tape.evaluate(matrix, threads).tolist() == expected


@given(OUTPUTS, st.lists(st.sampled_from([1, -1]), min_size=3, max_size=3), st.integers(2, 62))
def test_large_values_are_exact_or_refused(
    outputs: dict[str, IntExpr], signs: list[int], exponent: int
) -> None:
    tape = build_tape(INPUTS, outputs)
    row = [sign * (2**exponent - index) for index, sign in enumerate(signs)]
    first = len(INPUTS) + len(tape.constants)
    everything = tuple((str(i), i) for i in range(first + len(tape.instructions)))
    values = evaluate_row(Tape(INPUTS, tape.constants, tape.instructions, everything), row)
    matrix = np.array([row], dtype=np.int64)
    if all(-(2**63) <= value < 2**63 for value in values):
        assert tape.evaluate(matrix).tolist() == [evaluate_row(tape, row)]
    else:
        with pytest.raises(InvalidValueError, match="passes 64 bits"):
            tape.evaluate(matrix)


# Each of these is run as one instruction, and the last as two: what is used twice stays.
JOINED = {
    "sum of three": x + y + z,
    "product of three": x * y * z,
    "product of four": x * y * z * x,
    "product of six": (x * y * z) * (x + 1) * (y + 1) * (z + 1),
    "product and sum": x * y + z,
    "choice": select(less(x, y), z, x),
    "remainder": x % 8,
    "quotient": x // 16,
    "divisible": select(less(x % 8, 1), y, z),
    "divisible by no power": select(less(x % 6, 1), y, z),
    "below two": select(less(x % 8, 2), y, z),
    "used twice": (x * y) * z + x * y,
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("size", [10, 2**20, 2**31, 2**52])
def test_joined_instructions_compute_the_same(name: str, size: int) -> None:
    tape = build_tape(INPUTS, {"a": JOINED[name], "b": JOINED[name] + 1})
    rng = np.random.default_rng(0)
    # More than a block, and a part of one; zeros, and negative values.
    matrix = rng.integers(-size, size, (300, 3))
    matrix[::7, 2] = 0
    rows = matrix.tolist()
    first = len(INPUTS) + len(tape.constants)
    everything = tuple((str(i), i) for i in range(first + len(tape.instructions)))
    all_slots = Tape(INPUTS, tape.constants, tape.instructions, everything)
    fits = [max(map(abs, evaluate_row(all_slots, row))) < 2**63 for row in rows]
    levels = ["baseline", "avx2", "avx512"]
    for level in levels[: levels.index(tape.program.simd) + 1]:
        program = tape.program_for(level)
        if all(fits):
            found = program.evaluate(matrix, 1).tolist()
            assert found == [evaluate_row(tape, row) for row in rows]
        else:
            with pytest.raises(OverflowError, match="passes 64 bits"):
                program.evaluate(matrix, 1)


def test_results_share_columns_once_they_are_not_needed() -> None:
    chain = x
    for step in range(200):
        chain = maximum(chain + y, z + step)
    program = build_tape(INPUTS, {"a": chain, "b": chain % 7}).program
    constants = 200 + 1
    assert program.slots > 600 and program.columns < len(INPUTS) + constants + 8
    matrix = np.array([[1, 2, 3]])
    assert program.evaluate(matrix).tolist() == [[401, 401 % 7]]


@pytest.mark.parametrize("operation", ["floordiv", "mod"])
def test_division_by_zero_is_refused(operation: str) -> None:
    tape = Tape(("x", "y"), (), ((operation, 0, 1),), (("q", 2),))
    assert tape.evaluate(np.array([[-7, 2]])).tolist() == [[-4 if operation == "floordiv" else 1]]
    with pytest.raises(InvalidValueError, match="divides by zero"):
        tape.evaluate(np.array([[7, 2], [7, 0]]))


def test_a_matrix_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="int64, not of float64"):
        build_tape(("x",), {"a": x + 1}).evaluate(np.ones((2, 1)))  # type: ignore[arg-type]


def test_unknown_instruction_sets_and_constants_too_large_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="known: best, baseline, avx2, avx512"):
        build_tape(("x",), {"a": x + 1}).program_for("neon")
    with pytest.raises(InvalidValueError, match="cannot be run"):
        build_tape(("x",), {"a": x + 2**70}).evaluate(np.array([[1]]))


@given(OUTPUTS, MATRICES, st.randoms(use_true_random=False))
def test_a_restricted_tape_has_what_its_outputs_need(
    outputs: dict[str, IntExpr], matrix: Any, random: Any
) -> None:
    tape = build_tape(INPUTS, outputs)
    names = random.sample(list(outputs), random.randint(0, len(outputs)))
    part = tape.restricted(names)
    assert part == Tape.from_json(part.to_json())
    assert part == part.restricted(names)
    columns = [tape.output_index[name] for name in names]
    np.testing.assert_array_equal(part.evaluate(matrix), tape.evaluate(matrix)[:, columns])
    assert len(part.instructions) <= len(tape.instructions)


def test_an_unknown_output_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'ab'"):
        build_tape(("x",), {"ab": x + 1}).restricted(["abc"])


def test_what_is_equal_is_computed_once() -> None:
    tape = build_tape(("x", "y"), {"a": x * y + 1, "b": 1 + y * x, "c": (x * y + 1) // 2})
    assert len(tape.instructions) == 3
    slots = dict(tape.outputs)
    assert slots["a"] == slots["b"] != slots["c"]


def test_an_output_may_be_an_input_or_a_constant() -> None:
    tape = build_tape(("x",), {"same": x, "four": const(4)})
    assert tape.instructions == ()
    assert tape.evaluate(np.array([[7], [8]])).tolist() == [[7, 4], [8, 4]]


def test_no_rows_and_no_outputs() -> None:
    tape = build_tape(("x",), {"a": x + 1})
    assert tape.evaluate(np.zeros((0, 1), dtype=np.int64)).shape == (0, 1)
    assert build_tape(("x",), {}).evaluate(np.ones((3, 1), dtype=np.int64)).shape == (3, 0)


def test_the_digest_covers_everything() -> None:
    tapes = [
        build_tape(("x", "y"), {"a": x + y}),
        build_tape(("y", "x"), {"a": x + y}),
        build_tape(("x", "y"), {"b": x + y}),
        build_tape(("x", "y"), {"a": x * y}),
        build_tape(("x", "y"), {"a": x + 1}),
        build_tape(("x", "y"), {"a": x + 2}),
    ]
    assert len({tape.digest for tape in tapes}) == len(tapes)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 3), (1, 3, 2)], ids=str)
def test_the_width_of_a_matrix_is_checked(shape: tuple[int, ...]) -> None:
    tape = build_tape(("x", "y"), {"a": x + y})
    with pytest.raises(InvalidValueError, match="a tape over 2 parameters got a matrix"):
        tape.evaluate(np.ones(shape, dtype=np.int64))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="'y' is not an input of the tape"):
        build_tape(("x",), {"a": x + y})


GOOD: dict[str, Any] = {
    "inputs": ["x", "y"],
    "constants": [2],
    "instructions": [["mul", 0, 1], ["floordiv", 3, 2]],
    "outputs": [["a", 4]],
}


def test_the_form_in_json() -> None:
    assert build_tape(("x", "y"), {"a": x * y // 2}).to_json() == GOOD
    assert Tape.from_json(GOOD).evaluate(np.array([[3, 4]])).tolist() == [[6]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instructions": [["sub", 0, 1]]}, "malformed instruction 0"),
        ({"instructions": [["mul", 0, 1], ["add", 0, 4]]}, "malformed instruction 1"),
        ({"instructions": [["mul", 0, 3]]}, "malformed instruction 0"),
        ({"instructions": [["mul", -1, 0]]}, "malformed instruction 0"),
        ({"instructions": [["mul", 0, 1.0]]}, "malformed instruction 0"),
        ({"instructions": [["mul", 0, "y"]]}, "malformed instruction 0"),
        ({"instructions": [["mul", 0, None]]}, "malformed instruction 0"),
        ({"instructions": [["mul", 0]]}, "not a tape"),
        ({"instructions": [["mul", 0, 1, 1]]}, "malformed instruction 0"),
        ({"instructions": [["select", 0, 1]]}, "malformed instruction 0"),
        ({"instructions": [["select", 0, 1, 1, 1]]}, "not a tape"),
        ({"instructions": 3}, "not a tape"),
        ({"outputs": [["a", 5]]}, "slot that does not exist"),
        ({"outputs": [["a", -1]]}, "slot that does not exist"),
        ({"outputs": [["a", "4"]]}, "slot that does not exist"),
        ({"outputs": ["abc"]}, "not a tape"),
        ({"outputs": [["a", 3], ["a", 4]]}, "two outputs are called 'a'"),
        ({"constants": ["2"]}, "constants"),
        ({"constants": [2.5]}, "constants"),
        ({"constants": None}, "not a tape"),
        ({"inputs": [1, 2]}, "inputs"),
        ({"inputs": ["x", "x"]}, "inputs"),
    ],
    ids=str,
)
def test_malformed_tapes_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Tape.from_json({**GOOD, **change})


@pytest.mark.parametrize("data", [None, [], 3, {}, {"inputs": []}], ids=str)
def test_what_is_no_tape_is_refused(data: Any) -> None:
    with pytest.raises(InvalidValueError, match="not a tape"):
        Tape.from_json(data)
