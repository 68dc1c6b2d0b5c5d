from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_graphs import check_compiled, drawn, folded

from autotune.errors import InvalidValueError
from autotune.networks.graph import (
    Graph,
    HostOperator,
    Value,
    constant,
    evaluate,
    gather_nd,
    input_value,
    reshape,
    scatter_along,
    scatter_nd,
    slice_axis,
    take,
    take_along,
)


@settings(max_examples=25)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    places=st.lists(st.integers(1, 3), max_size=2),
    data=st.data(),
)
@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_elements_are_taken_as_by_numpy(
    kind: str, shape: list[int], places: list[int], data: st.DataObject
) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    low = 0 if kind == "uint8" else -shape[axis]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = drawn(shape, "float32", special=True)
    indices = rng.integers(low, shape[axis], places).astype(kind)
    (found,) = folded(lambda a, i: take(a, i, axis), x, indices)
    np.testing.assert_array_equal(found, np.take(x, indices.astype(int), axis), strict=True)
    along = rng.integers(low, shape[axis], [*shape[:axis], 2, *shape[axis + 1 :]]).astype(kind)
    (found,) = folded(lambda a, i: take_along(a, i, axis), x, along)
    wrapped = np.where(along < 0, along + shape[axis], along).astype(int)
    np.testing.assert_array_equal(found, np.take_along_axis(x, wrapped, axis))
    depth = data.draw(st.integers(1, len(shape)))
    many = np.stack([rng.integers(0, it, places) for it in shape[:depth]], -1).astype(kind)
    (found,) = folded(gather_nd, x, many)
    np.testing.assert_array_equal(found, x[tuple(np.moveaxis(many.astype(int), -1, 0))])


@pytest.mark.parametrize("index", [-4, 3])
def test_an_index_out_of_range_is_an_error_before_anything_runs(index: int) -> None:
    x, i = input_value("x", (3, 5), "float32"), input_value("i", (2,), "int64")
    graph = Graph((x, i), {"y": take(x, i, 0)})
    with pytest.raises(InvalidValueError, match=f"take: index {index} is not from -3 to 2"):
        evaluate(graph, {"x": drawn((3, 5), "float32"), "i": np.array([0, index])})
    with pytest.raises(InvalidValueError, match="index 3 is not"):
        gather_nd(x, constant(np.array([[3, 4]])))
    assert gather_nd(x, constant(np.array([[2, 4]]))).shape == (1,)


@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (3,)])
def test_updates_are_as_many_as_places(shape: tuple[int, ...]) -> None:
    x, updates = input_value("x", (4, 2), "float32"), input_value("u", shape, "float32")
    places = input_value("i", (3, 2), "int64")
    with pytest.raises(InvalidValueError, match="no updates"):
        scatter_along(x, places, updates, 0)
    with pytest.raises(InvalidValueError, match="no updates"):
        scatter_nd(x, input_value("i", (5, 1), "int64"), updates)


def test_updates_are_combined_in_known_ways_only() -> None:
    x = input_value("x", (4,), "float32")
    with pytest.raises(InvalidValueError, match="no combiner 'mean'"):
        scatter_along(x, input_value("i", (4,), "int64"), x, 0, "mean")


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("combiner", ["", "add", "max"])
def test_scatters_at_known_places_are_programs(dtype: str, combiner: str) -> None:
    """Every element is combined once; of several that are written the last one stays."""
    along = np.array([[2, -1, 0], [0, 1, 2]])
    places = np.array([[[0, -1], [2, 1]], [[-3, 0], [1, 1]]])
    again = np.array([[1], [-2], [1]])
    x, u, s = (drawn(shape, dtype, seed) for seed, shape in enumerate([(3, 3), (2, 3), (3, 3)]))

    def build(a: Value, b: Value, c: Value) -> list[Value]:
        four = reshape(slice_axis(reshape(b, (6,)), 0, 0, 4), (2, 2))
        return [
            scatter_along(a, constant(along), b, 0, combiner),
            scatter_nd(a, constant(places), four, combiner),
            scatter_nd(a, constant(again), c),
        ]

    check_compiled(build, (x, dtype), (u, dtype), (s, dtype))
    inputs = [
        input_value(name, it.shape, dtype) for name, it in zip("abc", (x, u, s), strict=True)
    ]
    graph = Graph(tuple(inputs), dict(zip("pqr", build(*inputs), strict=True)))
    hosts = {it.operation.kind for it in graph.nodes if isinstance(it.operation, HostOperator)}
    on_host = {"scatter_along", "scatter_nd"} if combiner and dtype == "bool" else set()
    assert hosts - {"reshape"} == on_host
    wanted = {name: x.copy() for name in "pqr"}
    update = {"add": np.add.at, "max": np.maximum.at, "": _write}[combiner]
    update(wanted["p"], (along, np.arange(3)[None]), u)
    update(wanted["q"], tuple(np.moveaxis(places, -1, 0)), u.reshape(-1)[:4].reshape(2, 2))
    wanted["r"][1] = s[2]
    found = evaluate(graph, {"a": x, "b": u, "c": s})
    for name, right in wanted.items():
        np.testing.assert_array_equal(found[name], right)


def _write(array: Any, places: Any, values: Any) -> None:
    array[places] = values
