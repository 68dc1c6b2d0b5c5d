"""Constraints as text: what Python says of every row, and nothing that runs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.spaces.parameters import Parameter, parameter_space, parse_condition

DOMAINS = {
    "a": (1, 2, 3, 8),
    "b": (0, 1, 4),
    # Products of these need more than 64 bits.
    "m": (-3, 2**31, 2**53 - 1),
    "f": (0.25, 1.5, 2.0),
    "flag": (False, True),
    "layout": ("nchw", "nhwc"),
}
ROWS = [dict(zip(DOMAINS, row, strict=True)) for row in itertools.product(*DOMAINS.values())]

numbers = st.sampled_from(["a", "b", "f", "m", "flag", "0", "1", "3", "0.5"])
wholes = st.sampled_from(["a", "b", "m", "2", "5", "4611686018427387904"])


def arithmetic(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Numbers, also as operands of ``and``, ``or`` and ``if`` that are used as numbers."""
    operators = st.sampled_from(["+", "-", "*", "/", "//", "%", "or", "and"])
    return st.recursive(
        leaves,
        lambda part: (
            st.builds(lambda x, op, y: f"({x} {op} {y})", part, operators, part)
            | st.builds(lambda x, y, z: f"({x} if {y} else {z})", part, part, part)
            # Larger exponents would fill the memory of Python, which is asked, too.
            | st.builds(lambda x, y: f"({x} ** {y})", part, st.sampled_from("0124b"))
            | part.map(lambda it: f"(-{it})")
        ),
        max_leaves=4,
    )


compared = st.builds(
    lambda x, op, y: f"{x} {op} {y}",
    arithmetic(numbers) | arithmetic(wholes),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "in [2, 4, True, 0.5, 'nchw'] and 1 <="]),
    arithmetic(numbers),
)
members = st.sampled_from(
    ["layout in ['nhwc']", "a not in (1, 3)", "layout == 'nchw'", "flag", "a * b in (1, 4)"]
)
conditions = st.recursive(
    compared | members,
    lambda part: (
        st.builds(lambda x, op, y: f"({x} {op} {y})", part, st.sampled_from(["and", "or"]), part)
        | part.map(lambda it: f"(not {it})")
    ),
    max_leaves=4,
)


def according_to_python(text: str) -> list[bool] | None:
    """Python's own value of every row; None where it cannot compute some."""
    code = compile(text, "condition", "eval")
    try:
        return [bool(eval(code, {"__builtins__": {}}, dict(row))) for row in ROWS]
    except (ZeroDivisionError, OverflowError, TypeError):
        return None


@given(conditions)
@settings(max_examples=150, deadline=None)
def test_a_condition_holds_where_python_says_so(text: str) -> None:
    condition = parse_condition(text, DOMAINS)
    columns = {name: np.array([row[name] for row in ROWS]) for name in condition.names}
    expected = according_to_python(text)
    if expected is None:
        with pytest.raises(InvalidValueError, match="divides by zero|cannot be computed"):
            condition.holds(columns)
    else:
        assert condition.holds(columns).tolist() == (expected if columns else expected[:1])


@given(st.lists(conditions, min_size=1, max_size=2))
@settings(max_examples=100, deadline=None)
def test_a_space_has_exactly_the_rows_that_satisfy_its_constraints(texts: list[str]) -> None:
    said = [according_to_python(text) for text in texts]
    parameters = [Parameter(name, values) for name, values in DOMAINS.items()]
    assume(None not in said)
    expected = [
        row
        for row, holds in zip(ROWS, zip(*said, strict=True), strict=True)
        if all(holds)  # type: ignore[arg-type]
    ]
    if not expected:
        with pytest.raises(InvalidValueError, match="is empty"):
            parameter_space("program", parameters, texts)
        return
    space = parameter_space("program", parameters, texts)
    found = [space.decode(candidate) for candidate in space.enumerate()]
    assert space.count() == len(expected)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max(a, b) < 3", r"calls a function: 'max\(a, b\)'"),
        ("__import__('os').system('true')", "calls a function"),
        ("a.real < 3", "'a.real' is not allowed"),
        ("a[0]", "'a\\[0\\]' is not allowed"),
        ("(lambda: 1)", "is not allowed"),
        ("a := 3", "is no expression"),
        ("a in b", "'b' is no list of values"),
        ("a in [b]", "'b' is no value"),
        ("a is b", "is not allowed"),
        ("a <", "is no expression"),
        ("", "is an expression in a text"),
        ("1j < a", "'1j' is not allowed"),
        ("(" * 90 + "a" + ")" * 90 + "+1" * 90, "deep"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        parse_condition(text, DOMAINS)


def test_a_condition_about_an_unknown_parameter_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"'layuot'.*Did you mean 'layout'"):
        parse_condition("layuot == 'nchw'", DOMAINS)


def test_texts_and_numbers_cannot_be_ordered() -> None:
    condition = parse_condition("layout < a", DOMAINS)
    with pytest.raises(InvalidValueError, match="cannot be computed"):
        condition.holds(
            {name: np.array(DOMAINS[name][:1], dtype=object) for name in condition.names}
        )


@pytest.mark.parametrize(
    "text", ["9 ** 9 ** 9 > a", "a ** (9 ** 9) > 3", "'x' * 10 ** 18 == layout", "'%9d' % a == 1"]
)
def test_what_would_fill_the_memory_is_not_computed(text: str) -> None:
    condition = parse_condition(text, DOMAINS)
    columns = {name: np.array(DOMAINS[name]) for name in condition.names}
    with pytest.raises(InvalidValueError, match=r"cannot be computed: .*(bits|not texts)"):
        condition.holds(columns)
