from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from network_graphs import check_compiled, drawn, folded, numbers

from autotune.errors import InvalidValueError
from autotune.ir.workloads import softmax as softmax_workload
from autotune.networks.graph import (
    Graph,
    Loop,
    Value,
    arg,
    binary,
    constant,
    evaluate,
    input_value,
    loop,
    mean,
    nonzero,
    reduce,
    reshape,
    scan,
    softmax,
    sort,
    unique,
    variance,
)
from autotune.networks.plan.cpu_network import compile_network
from autotune.targets import detect_cpu

COMBINERS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@settings(max_examples=20)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    data=st.data(),
)
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64"])
def test_reductions_are_those_of_numpy(dtype: str, shape: list[int], data: st.DataObject) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1))))
    x = drawn(shape, dtype, special=True)
    wide = x.astype(np.float64) if dtype == "float32" else x
    for combiner, function in COMBINERS.items():
        with np.errstate(all="ignore"):
            wanted = function.reduce(wide, axis=axes, keepdims=True).astype(dtype)
        kept, dropped = folded(
            lambda a, it=combiner: [reduce(it, a, axes), reduce(it, a, axes, False)], x
        )
        np.testing.assert_array_equal(kept, wanted, strict=True)
        assert dropped.shape == wanted.squeeze(axes).shape


@settings(max_examples=20)
@given(values=st.lists(st.sampled_from([np.nan, 0.0, -0.0, 1.0, np.inf, -np.inf]), min_size=1))
def test_nan_is_before_all_others_for_arg(values: list[float]) -> None:
    x = np.array([values], np.float32)
    largest, smallest, last = folded(
        lambda a: [arg("max", a, 1), arg("min", a, 1, False), arg("max", a, 1, last=True)], x
    )
    assert largest[0, 0] == x.argmax() and smallest[0] == x.argmin()
    assert last[0, 0] == len(values) - 1 - x[:, ::-1].argmax()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_halves_are_float32(dtype: str) -> None:
    """1024 and 65,504 times it are beyond what halves add up."""
    x = constant(np.full((1, 3000), 1.0), dtype)
    assert numbers(reduce("add", x, dtype="float32")).item() == 3000
    assert numbers(mean(x)).item() == 1 and numbers(variance(x)).item() == 0
    large = constant(np.full((1, 4), 60000.0), dtype)
    assert numbers(mean(large)).item() == numbers(large)[0, 0]


def test_long_sums_are_blocked() -> None:
    """Compiled, 2^25 ones are not 2^24, along one axis or two."""
    x = input_value("x", (1 << 13, 1 << 12), "float32")
    ones = {"x": np.ones(x.shape, np.float32)}
    both = {"one": reduce("add", reshape(x, (-1,))), "two": reduce("add", x)}
    found = compile_network(Graph((x,), both), {}, detect_cpu(), 1).run(ones)
    assert found["one"].item() == found["two"].item() == 33_554_432


@pytest.mark.parametrize("shape", [(3, 40007), (50000, 2), (7, 200, 130), (1, 17000)])
def test_blocks_hold_every_element_once(shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    made = reduce("add", input_value("x", shape, "float64"), keepdims=False)
    assert made.node is not None
    assert len(made.node.operation.stages) == 2  # type: ignore[union-attr]
    assert folded(lambda a: reduce("add", a), x)[0].item() == x.sum()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax_is_the_workload_of_its_builder(dtype: str) -> None:
    made = softmax(input_value("x", (12, 20), dtype), 1)
    assert made.node is not None
    built = softmax_workload(m=12, n=20, dtype=dtype)
    assert made.node.operation.digest == built.digest  # type: ignore[union-attr]


def test_combiners_are_named() -> None:
    with pytest.raises(InvalidValueError, match="no combiner 'sum'"):
        reduce("sum", input_value("x", (3,), "float32"))
    with pytest.raises(InvalidValueError, match="named twice"):
        reduce("add", input_value("x", (3,), "float32"), (0, -1))


@settings(max_examples=25)
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_running_sums(dtype: str, shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = drawn(shape, dtype)
    sums = np.cumsum(x, axis, dtype=dtype)
    behind = np.flip(np.cumsum(np.flip(x, axis), axis, dtype=dtype), axis)
    found = folded(
        lambda a: [
            scan("add", a, axis),
            scan("add", a, axis, reverse=True),
            scan("add", a, axis, exclusive=True),
            scan("max", a, axis, exclusive=True, reverse=True),
        ],
        x,
    )
    for one, right in zip(found, (sums, behind, sums - x), strict=False):
        np.testing.assert_allclose(one, right, rtol=1e-12, atol=1e-12)
    last = np.take(found[3], -1, axis)
    assert (last == (-np.inf if dtype == "float64" else -128)).all()


def _step(
    states: Sequence[Value], slices: Sequence[Value], fixed: Sequence[Value]
) -> tuple[list[Value], list[Value]]:
    after = binary("add", states[0], binary("mul", slices[0], fixed[0]))
    return [after], [after, slices[0]]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_is_one_step_that_runs_again(reverse: bool) -> None:
    start, slices, factor = drawn((4,), "float32"), drawn((6, 4), "float32", 1), np.float32(3)
    wanted, state = [], start
    for row in slices[::-1] if reverse else slices:
        state = (state + (row * factor)).astype(np.float32)
        wanted.append(state)

    def build(a: Value, b: Value, c: Value) -> list[Value]:
        last, kept = loop(_step, 6, [a], [b], [c], [reverse], [reverse, False])
        return [*last, *kept]

    last, kept, read = folded(build, start, slices, factor)
    np.testing.assert_allclose(last, state, rtol=1e-5)
    np.testing.assert_allclose(kept, wanted[::-1] if reverse else wanted, rtol=1e-5)
    np.testing.assert_array_equal(read, slices[::-1] if reverse else slices)
    given = ((start, "float32"), (slices, "float32"), (np.asarray(factor), "float32"))
    check_compiled(build, *given)


def test_a_loop_is_one_node_whose_workloads_are_counted_by_trip() -> None:
    start, slices = input_value("h", (4,), "float32"), input_value("x", (1000, 4), "float32")
    (last,), _ = loop(_step, 1000, [start], [slices], [constant(np.float32(2))])
    graph = Graph((start, slices), {"h": last})
    assert [type(node.operation) for node in graph.nodes] == [Loop]
    assert {it.name: count for it, count in graph.workloads.items()} == {"mul": 1000, "add": 1000}


def test_what_no_loop_can_be_is_said() -> None:
    x = input_value("x", (3, 4), "float32")
    with pytest.raises(InvalidValueError, match="at least once"):
        loop(_step, 0, [x], [x], [x])
    with pytest.raises(InvalidValueError, match="has no 4 slices"):
        loop(_step, 4, [x], [x], [x])
    with pytest.raises(InvalidValueError, match="after a step"):
        loop(_step, 3, [input_value("h", (), "float32")], [x], [x])
    beside = input_value("beside", (4,), "float32")
    with pytest.raises(InvalidValueError, match="'beside'.* is no input"):
        loop(lambda s, b, f: ([beside], []), 3, [beside], [x])


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
