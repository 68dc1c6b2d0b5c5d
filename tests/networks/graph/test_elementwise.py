from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from network_graphs import (
    INTEGERS,
    SPECIAL,
    check_compiled,
    drawn,
    folded,
    numbers,
)

from autotune.errors import InvalidValueError
from autotune.networks.graph import (
    Value,
    binary,
    cast,
    constant,
    elementwise,
    input_value,
    select,
    unary,
)

PLAIN = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
NUMBERS = st.one_of(st.sampled_from(SPECIAL), st.floats(-1e3, 1e3, width=32))


@settings(max_examples=20)
@given(data=st.data())
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint16", "int32", "uint64", "int64"])
def test_operations_are_those_of_numpy(data: st.DataObject, dtype: str) -> None:
    """Special values and the ends of ranges with them, on shapes that broadcast."""
    shapes = data.draw(arrays.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    elements = NUMBERS if dtype == "float32" else None
    left, right = (
        data.draw(arrays.arrays(dtype, shape, elements=elements)) for shape in shapes.input_shapes
    )
    with np.errstate(all="ignore"):
        wanted = [function(left, right) for function in PLAIN.values()]
    found = folded(lambda a, b: [binary(op, a, b) for op in PLAIN], left, right)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.shape == shapes.result_shape and one.dtype == other.dtype


@settings(max_examples=20)
@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4))
def test_floats_are_divided_as_by_numpy(pairs: list[tuple[float, float]]) -> None:
    left, right = np.array(pairs, np.float32).T
    functions = {"div": np.divide, "mod": np.mod, "fmod": np.fmod, "pow": np.power}
    wide = left.astype(np.float64), right.astype(np.float64)
    found = folded(lambda a, b: [binary(op, a, b) for op in functions], left, right)
    with np.errstate(all="ignore"):
        for one, function in zip(found, functions.values(), strict=True):
            np.testing.assert_array_equal(one, function(*wide).astype(np.float32))


@settings(max_examples=20)
@given(data=st.data())
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_divided_towards_zero(data: st.DataObject, dtype: str) -> None:
    limits = np.iinfo(dtype)
    whole = st.integers(int(limits.min), int(limits.max))
    left, right = data.draw(whole), data.draw(whole.filter(bool))
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    rest = left - quotient * right
    wanted = {"div": quotient, "fmod": rest, "mod": left % right}
    for op, value in wanted.items():
        (found,) = folded(
            lambda a, b, op=op: binary(op, a, b), np.array(left, dtype), np.array(right, dtype)
        )
        assert int(found) == (value - limits.min) % 2**limits.bits + limits.min


@pytest.mark.parametrize("op", ["div", "mod", "fmod"])
def test_a_zero_divides_no_integers(op: str) -> None:
    """In the data, in a constant beside data, and where all is known."""
    x, z = input_value("x", (3,), "int32"), np.array([1, 0, 2], np.int32)
    with pytest.raises(InvalidValueError, match=f"{op}: an integer is divided by zero"):
        binary(op, x, constant(z))
    with pytest.raises(InvalidValueError, match="divided by zero"):
        folded(lambda a, b: binary(op, a, b), z, z)
    with pytest.raises(InvalidValueError, match="divided by zero"):
        binary(op, x, 0)
    (node,) = [binary(op, x, input_value("z", (3,), "int32")).node]
    assert node is not None and [it.operand for it in node.requirements] == [1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_computed_in_float32_and_rounded_once(dtype: str) -> None:
    found = elementwise(lambda it: (it + 2.0**-12) - 1.0, constant(np.ones(1), dtype))
    assert found.dtype == dtype and numbers(found).tolist() == [2.0**-12]


@pytest.mark.parametrize("source", [*INTEGERS, "bool", "float32"])
def test_casts_wrap_around_and_keep_nan(source: str) -> None:
    given = drawn((50,), source, special=True)
    for dtype in (*INTEGERS, "bool", "float32", "float64"):
        if source == "float32" and dtype in INTEGERS:
            continue
        (found,) = folded(lambda a, dtype=dtype: cast(a, dtype), given)
        np.testing.assert_array_equal(found, given.astype(dtype))


def test_equal_computations_are_equal_workloads() -> None:
    """Names, constants of one element and an operand given twice make no difference."""
    x, z = input_value("x", (4, 5), "float32"), input_value("z", (4, 5), "float32")
    pairs: list[tuple[Value, Value]] = [
        (binary("mul", x, 2.0), binary("mul", z, constant(np.float32(2.0)))),
        (binary("add", x, x), binary("add", z, z)),
        (select(binary("lt", x, z), x, z), select(binary("lt", z, x), z, x)),
    ]
    for one, other in pairs:
        assert one.node is not None and other.node is not None
        assert one.node.operation.digest == other.node.operation.digest  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x, n: binary("add", x, n), "float32 and int32 are combined without a cast"),
        (lambda x, n: binary("plus", x, x), "no operation 'plus'"),
        (lambda x, n: unary("wave", x), "no function 'wave'"),
        (lambda x, n: binary("add", x, constant(np.ones(3, "f"))), "do not broadcast"),
        (lambda x, n: elementwise(lambda it: it / (it + 1), n), "divided by an operand"),
    ],
)
def test_what_cannot_be_is_said(build: object, message: str) -> None:
    x, n = input_value("x", (4,), "float32"), input_value("n", (4,), "int32")
    with pytest.raises(InvalidValueError, match=message):
        build(x, n)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_compiled_division_never_stops_the_process(dtype: str) -> None:
    limits = np.iinfo(dtype)
    left, right = drawn((200,), dtype, 4), drawn((200,), dtype, 5)
    left[:9], right[:9] = limits.min, np.array(-1).astype(dtype)
    right[right == 0] = 3

    def build(a: Value, b: Value) -> list[Value]:
        return [
            binary(op, *pair)
            for op in ("div", "mod", "fmod")
            for pair in ((a, b), (a, -1 if limits.min else 7))
        ]

    check_compiled(build, (left, dtype), (right, dtype))
