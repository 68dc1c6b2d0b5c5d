from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_graphs import drawn, folded

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.networks.graph import (
    Value,
    broadcast,
    concat,
    constant,
    flip,
    input_value,
    pad,
    reshape,
    slice_axis,
    split,
    squeeze,
    stack,
    take,
    tile,
    transpose,
    unsqueeze,
)

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)
BOUND = st.none() | st.integers(-6, 6)


@settings(max_examples=25)
@given(shape=SHAPES, data=st.data())
def test_elements_are_moved_as_by_numpy(shape: list[int], data: st.DataObject) -> None:
    x = drawn(shape, "int32")
    order = data.draw(st.permutations(range(len(shape))))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    start, stop = data.draw(BOUND), data.draw(BOUND)
    step = data.draw(st.integers(-3, 3).filter(bool))
    places = [slice(None)] * len(shape)
    places[axis] = slice(start, stop, step)
    repeats = data.draw(st.lists(st.integers(1, 3), min_size=len(shape), max_size=len(shape)))

    def build(a: Value) -> list[Value]:
        return [
            transpose(a, order),
            slice_axis(a, axis, start, stop, step),
            concat([a, slice_axis(a, axis, start, stop, step), a], axis),
            stack([a, a], axis),
            flip(a, [axis]),
            tile(a, repeats),
            broadcast(a, [2, *shape]),
            reshape(a, [-1, shape[-1]]),
            squeeze(unsqueeze(a, [axis]), [axis]),
        ]

    part = x[tuple(places)]
    wanted = [
        x.transpose(order),
        part,
        np.concatenate([x, part, x], axis),
        np.stack([x, x], axis % len(shape)) if axis >= 0 else np.stack([x, x], axis),
        np.flip(x, axis),
        np.tile(x, repeats),
        np.broadcast_to(x, (2, *shape)),
        x.reshape(-1, shape[-1]),
        x,
    ]
    for found, right in zip(folded(build, x), wanted, strict=True):
        np.testing.assert_array_equal(found, right, strict=True)


@settings(max_examples=25)
@given(
    shape=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    mode=st.sampled_from(["constant", "edge", "reflect", "wrap"]),
    data=st.data(),
)
def test_margins_are_those_of_numpy(shape: list[int], mode: str, data: st.DataObject) -> None:
    x = drawn(shape, "float32", special=True)
    widths = [data.draw(st.tuples(st.integers(0, 6), st.integers(0, 6))) for _ in shape]
    low, high = zip(*widths, strict=True)
    (found,) = folded(lambda a: pad(a, low, high, mode), x)
    np.testing.assert_array_equal(found, np.pad(x, widths, mode), strict=True)  # type: ignore[call-overload]


def test_what_changes_no_order_is_no_program() -> None:
    """Shapes change without a copy, and what is known disappears."""
    x = input_value("x", (1, 4, 1, 5), "float32")
    for made in (transpose(x, (1, 0, 2, 3)), reshape(x, (20,)), broadcast(x, (1, 1, 4, 1, 5))):
        assert made.node is not None and made.node.label == "reshape"
    for made in (reshape(x, x.shape), slice_axis(x, 1, 0, 9), pad(x, [0] * 4, [0] * 4)):
        assert made is x
    assert take(constant(np.arange(5)), constant(2), 0).constant == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: transpose(x, (0, 0)), "no order of 2 axes"),
        (lambda x: reshape(x, (7, -1)), "has no shape"),
        (lambda x: concat([x, reshape(x, (4, 3))], 0), "are not joined"),
        (lambda x: broadcast(x, (3, 5)), "do not broadcast"),
        (lambda x: split(x, (1, 1), 1), "is not split"),
        (lambda x: slice_axis(x, 2, 0, 1), "no axis 2"),
        (lambda x: squeeze(x, [0]), "not all of extent 1"),
    ],
)
def test_what_cannot_be_is_said(build: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        build(input_value("x", (3, 4), "float32"))  # type: ignore[operator]


def test_modes_are_named() -> None:
    with pytest.raises(UnknownNameError, match="reflect"):
        pad(input_value("x", (3,), "float32"), (1,), (1,), "reflekt")


def test_a_transposed_constant_is_a_view() -> None:
    array = np.arange(6.0).reshape(2, 3)
    found = transpose(constant(array))
    assert found.constant is not None and np.shares_memory(found.constant, array)
    assert np.array_equal(found.constant, array.T)
