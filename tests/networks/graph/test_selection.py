from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.networks.graph import (
    Graph,
    constant,
    determinant,
    evaluate,
    input_value,
    non_max_suppression,
    nonzero,
    sort,
    top_k,
    unique,
)
from tests.support.network_graphs import drawn, folded

NUMBERS = st.lists(st.sampled_from([np.nan, -1.0, 0.0, 2.0, np.inf]), min_size=1, max_size=8)


@settings(max_examples=40)
@given(values=NUMBERS)
def test_sorting_is_stable_and_nan_is_largest(values: list[float]) -> None:
    x = np.array([values], np.float32)
    rising, places, falling, back = folded(lambda a: [*sort(a, 1), *sort(a, 1, True)], x)
    keys = [(np.isnan(it), 0.0 if np.isnan(it) else it) for it in values]
    wanted = sorted(range(len(values)), key=lambda at: keys[at])
    assert places[0].tolist() == wanted
    np.testing.assert_array_equal(rising[0], x[0, wanted])
    assert back[0].tolist() == [
        it for key in sorted(set(keys), reverse=True) for it, own in enumerate(keys) if own == key
    ]
    np.testing.assert_array_equal(falling[0], x[0, back[0]])


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64"])
def test_the_largest_and_the_smallest(dtype: str) -> None:
    x = drawn((5, 3), dtype)
    largest, _, smallest, _ = folded(lambda a: [*top_k(a, 2, 0), *top_k(a, 2, 0, False)], x)
    np.testing.assert_array_equal(largest, np.sort(x, 0)[::-1][:2])
    np.testing.assert_array_equal(smallest, np.sort(x, 0)[:2])
    with pytest.raises(InvalidValueError, match="has no 6 elements"):
        top_k(input_value("x", (5, 3), dtype), 6, 0)


def test_places_are_known_of_constants_and_bounded_else() -> None:
    x = np.array([[0, 3], [2, 0]], np.int32)
    assert folded(nonzero, x)[0].tolist() == [[0, 1], [1, 0]]
    value = input_value("x", (2, 2), "int32")
    places, count = nonzero(value)
    found = evaluate(Graph((value,), {"places": places, "count": count}), {"x": x})
    assert found["count"] == 2 and found["places"].tolist() == [[0, 1], [1, 0], [-1, -1], [-1, -1]]


@settings(max_examples=25)
@given(values=st.lists(st.integers(-2, 2), min_size=1, max_size=9), is_sorted=st.booleans())
def test_different_elements(values: list[int], is_sorted: bool) -> None:
    x = np.array(values, np.int8)
    found, first, inverse, counts, number = folded(lambda a: unique(a, None, is_sorted), x)
    order = sorted(set(values)) if is_sorted else list(dict.fromkeys(values))
    assert found.tolist() == order and number == len(order)
    assert first.tolist() == [values.index(it) for it in order]
    assert found[inverse].tolist() == values
    assert counts.tolist() == [values.count(it) for it in order]


def test_boxes_that_overlap_a_better_one_are_left_out() -> None:
    boxes = np.array([[[0, 0, 2, 2], [2, 2, 0, 0.1], [3, 3, 4, 4]]], np.float32)
    scores = np.array([[[0.5, 0.9, 0.1], [0.2, 0.1, 0.3]]], np.float32)

    def kept(most: int, score: float) -> list[list[int]]:
        found = non_max_suppression(constant(boxes), constant(scores), most, 0.5, score)
        assert found[0].constant is not None
        return [*map(list, found[0].constant.tolist())]

    assert kept(3, 0.0) == [[0, 0, 1], [0, 0, 2], [0, 1, 2], [0, 1, 0]]
    assert kept(1, 0.0) == [[0, 0, 1], [0, 1, 2]] and kept(3, 0.4) == [[0, 0, 1]]
    centred = np.array([[[1, 1, 2, 2], [1, 1, 2, 1.9], [3.5, 3.5, 1, 1]]], np.float32)
    found = non_max_suppression(constant(centred), constant(scores), 3, 0.5, 0.0, True)
    assert found[1].constant == 4
    assert non_max_suppression(constant(boxes), constant(scores), 0, 0.5)[0].shape == (0, 3)


def test_determinants() -> None:
    x = drawn((2, 3, 3), "float32")
    np.testing.assert_allclose(folded(determinant, x)[0], np.linalg.det(x), rtol=1e-4)
