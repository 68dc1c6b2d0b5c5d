from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.converter import from_json, to_json
from autotune.ir.expressions import IntExpr, ceildiv, const, maximum, minimum, var
from autotune.ir.expressions.integer import MOST_OPERANDS, evaluate

NAMES = ("x", "y", "z")
x, y, z = (var(name) for name in NAMES)

# A tree of operations, from which both an expression and a plain integer can be made.
Tree = Any
LEAVES = st.integers(-7, 24) | st.sampled_from(NAMES)
OPERATIONS = ("+", "-", "*", "//", "%", "min", "max", "ceildiv")
TREES = st.recursive(
    LEAVES, lambda tree: st.tuples(st.sampled_from(OPERATIONS), tree, tree), max_leaves=12
)
ENVIRONMENTS = st.fixed_dictionaries({name: st.integers(1, 60) for name in NAMES})


def build(tree: Tree) -> IntExpr:
    if isinstance(tree, int):
        return const(tree)
    if isinstance(tree, str):
        return var(tree)
    operation, left, right = tree[0], build(tree[1]), build(tree[2])
    if operation == "min":
        return minimum(left, right)
    if operation == "max":
        return maximum(left, right)
    if operation == "ceildiv":
        return ceildiv(left, right)
    return compute(operation, left, right)


def value(tree: Tree, env: dict[str, int]) -> int:
    """The value of ``tree`` by Python's own arithmetic."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    operation, left, right = tree[0], value(tree[1], env), value(tree[2], env)
    if operation in ("min", "max"):
        return min(left, right) if operation == "min" else max(left, right)
    if operation in ("//", "%", "ceildiv") and right == 0:
        raise ZeroDivisionError
    if operation == "ceildiv":
        assume(right > 0)
        return -(-left // right)
    result: int = compute(operation, left, right)
    return result


def compute(operation: str, left: Any, right: Any) -> Any:
    if operation == "+":
        return left + right
    if operation == "-":
        return left - right
    if operation == "*":
        return left * right
    return left // right if operation == "//" else left % right


@given(TREES, ENVIRONMENTS)
def test_simplification_preserves_the_value(tree: Tree, env: dict[str, int]) -> None:
    try:
        expected = value(tree, env)
    except ZeroDivisionError:
        assume(False)
    assert evaluate(build(tree), env) == expected


@given(TREES, st.lists(ENVIRONMENTS, min_size=1, max_size=5))
def test_arrays_give_what_integers_give(tree: Tree, rows: list[dict[str, int]]) -> None:
    try:
        expected = [value(tree, row) for row in rows]
    except ZeroDivisionError:
        assume(False)
    columns = {name: np.array([row[name] for row in rows], dtype=np.int64) for name in NAMES}
    result = np.broadcast_to(evaluate(build(tree), columns), len(rows))
    assume(max(map(abs, expected)) < 2**62)
    assert result.tolist() == expected


@given(TREES)
def test_json_round_trip(tree: Tree) -> None:
    try:
        expression = build(tree)
    except InvalidValueError:
        assume(False)
    data = json.loads(json.dumps(to_json(expression)))
    restored = from_json(IntExpr, data)
    assert restored == expression
    assert hash(restored) == hash(expression)
    assert to_json(restored) == data


@given(TREES, ENVIRONMENTS)
def test_substituting_numbers_is_evaluating(tree: Tree, env: dict[str, int]) -> None:
    try:
        expected = value(tree, env)
    except ZeroDivisionError:
        assume(False)
    numbers = build(tree).substitute(env)
    assert numbers == const(expected) and numbers.value == expected
    assert numbers.variables == frozenset()


@given(TREES, TREES, ENVIRONMENTS)
def test_substituting_an_expression(tree: Tree, inner: Tree, env: dict[str, int]) -> None:
    try:
        at = value(inner, env)
        assume(at > 0)
        expected = value(tree, {**env, "x": at})
        replaced = build(tree).substitute({"x": build(inner)})
    except (ZeroDivisionError, InvalidValueError):
        assume(False)
    assert evaluate(replaced, env) == expected


@given(st.lists(TREES, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_the_order(trees: list[Tree], random: Any) -> None:
    try:
        terms = [build(tree) for tree in trees]
    except InvalidValueError:
        assume(False)
    shuffled = list(terms)
    random.shuffle(shuffled)
    assert sum(terms, const(0)) == sum(shuffled, const(0))
    total = sum(terms, const(0))
    assert total - total == const(0)
    assert total + total == total * 2 == 2 * total
    assert repr(total) == repr(sum(shuffled, const(0)))


def test_sums_are_linear_combinations() -> None:
    assert x + y == y + x
    assert (x + y) + z == x + (z + y)
    assert 2 * x + 3 * x == x * 5
    assert x - x == const(0) and (x + 1) - x == const(1)
    assert (x + 2) * 3 == 3 * x + 6
    assert -(x - y) == y - x
    assert 5 - x == -x + 5
    assert x * y + y * x == 2 * (x * y)


def test_products_do_not_depend_on_the_order() -> None:
    assert x * y * z == z * (y * x)
    assert x * 2 * y * 3 == 6 * y * x
    assert x * 0 == const(0) and x * 1 == x


def test_exact_quotients_are_found() -> None:
    assert (6 * x * y) // (2 * x) == 3 * y
    assert (6 * x * y) % (2 * x) == const(0)
    assert x // x == const(1) and x % 1 == const(0)
    assert ceildiv(4 * x, 4) == x and ceildiv(7, 2) == const(4)
    assert ((3 * x) // 2).op == "floordiv" and ((3 * x) % 2).op == "mod"
    assert ceildiv(x, 4) == (x + 3) // 4


def test_extrema_are_symmetric() -> None:
    assert minimum(x, y) == minimum(y, x) and maximum(x, 3) == maximum(3, x)
    assert minimum(x, x) == x and maximum(2, 5) == const(5) and minimum(2, 5) == const(2)


@pytest.mark.parametrize("make", [lambda: x // 0, lambda: x % (y - y), lambda: const(1) // 0])
def test_division_by_a_zero_constant_is_refused(make: Any) -> None:
    with pytest.raises(InvalidValueError, match="zero"):
        make()


def test_a_variable_without_a_value_is_named() -> None:
    with pytest.raises(InvalidValueError, match="'y'"):
        evaluate(x + y, {"x": 1})


def test_variables() -> None:
    assert (x * y + const(3) // 2).variables == {"x", "y"}
    assert const(3).variables == frozenset() and const(3).value == 3 and x.value is None
    assert (x - x + y).variables == {"y"}


def test_equal_expressions_are_one_key() -> None:
    assert len({x + y, y + x, x * y, x + y + 0}) == 2
    assert x != "x" and const(1) != 1


def test_text() -> None:
    assert repr(2 * x + y // 4 + 1) == "((y // 4) + 2*x + 1)"
    assert repr(minimum(x, y % 3)) == "min((y % 3), x)"


def test_a_number_stays_in_front_of_a_product_with_a_sum() -> None:
    total = (var("a") + var("b")) * var("c") * 4
    assert from_json(IntExpr, to_json(total)) == total
    assert total.substitute({"a": var("a")}) == total


@pytest.mark.parametrize(
    "data",
    [
        None,
        True,
        1.5,
        {},
        [],
        ["add"],
        ["add", 1],
        ["pow", 1, 2],
        ["add", 1, None],
        ["min", "x", 2, 3],
        ["floordiv", "x", 2, 3],
        ["floordiv", "x", 0],
        [["add"], 1, 2],
    ],
    ids=str,
)
def test_malformed_json_is_refused(data: Any) -> None:
    with pytest.raises(InvalidValueError):
        from_json(IntExpr, data)


def test_constants_that_are_multiplied_out_on_reading_have_64_bits() -> None:
    nested: object = "x"
    for _ in range(62):
        nested = ["mul", 2, nested]
    assert const(1 << 62) in from_json(IntExpr, nested).args
    with pytest.raises(InvalidValueError, match="9223372036854775808, has over 64 bits"):
        from_json(IntExpr, ["mul", 2, nested])


def test_the_operands_of_an_expression_that_is_read_are_limited() -> None:
    names = [f"x{number}" for number in range(MOST_OPERANDS)]
    read = from_json(IntExpr, ["mul", *names])
    assert len(read.args) == MOST_OPERANDS
    for wide in (["mul", *names, "y"], ["mul", ["mul", *names], "y"], ["add", *names, 1]):
        with pytest.raises(InvalidValueError, match="has 1025 operands, more than 1024"):
            from_json(IntExpr, wide)


def test_a_copy_has_a_hash_of_its_own() -> None:
    """Hashes of strings differ from process to process, and pools are given copies."""
    foreign = IntExpr("var", ("x",))
    object.__setattr__(foreign, "_hash", hash(x) + 1)
    assert foreign != x
    assert copy.copy(foreign) == x
