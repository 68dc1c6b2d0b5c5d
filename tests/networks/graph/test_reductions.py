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
    determinant,
    evaluate,
    input_value,
    log_softmax,
    log_sum_exp,
    loop,
    mean,
    non_max_suppression,
    nonzero,
    normalized,
    reduce,
    reshape,
    scan,
    softmax,
    sort,
    top_k,
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


def test_nothing_is_reduced_to_the_identity() -> None:
    x = np.empty((2, 0), np.float32)
    found = folded(lambda a: [reduce(it, a, (1,), False) for it in COMBINERS], x)
    assert [it.tolist() for it in found] == [[0] * 2, [1] * 2, [-np.inf] * 2, [np.inf] * 2]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_are_normalised(axis: int) -> None:
    x = drawn((3, 4, 5), "float32")
    wide = x.astype(np.float64)
    grown = np.exp(wide - wide.max(axis, keepdims=True))
    total = grown.sum(axis, keepdims=True)
    wanted = [grown / total, np.log(grown / total), np.log(np.exp(wide).sum(axis))]
    apart = wide - wide.mean(axis, keepdims=True)
    wanted += [apart / np.sqrt(wide.var(axis, keepdims=True) + 0.1), wide.var(axis, ddof=1)]
    found = folded(
        lambda a: [
            softmax(a, axis),
            log_softmax(a, axis),
            log_sum_exp(a, (axis,), False),
            normalized(a, (axis,), 0.1),
            variance(a, (axis,), False, 1),
        ],
        x,
    )
    for one, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-5, atol=1e-6)


def test_the_logarithm_of_sums_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 1]], np.float32)
    (found,) = folded(lambda a: log_sum_exp(a, (1,), False), x)
    np.testing.assert_array_equal(found, np.array([-np.inf, np.inf, np.nan], np.float32))


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


@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "float32", "int16"])
def test_compiled_reductions_are_right(dtype: str) -> None:
    x = drawn((3, 18), dtype, special=True)

    def build(a: Value) -> list[Value]:
        found = [reduce("max", a, (1,)), reduce("min", a, (0,)), arg("max", a, 1)]
        if dtype != "bool":
            found += [reduce("add", binary("min", a, 3)), arg("min", a, 0, last=True)]
        return found

    check_compiled(build, (x, dtype))


def test_compiled_rows_are_right() -> None:
    x = drawn((3, 18), "float32", special=True)
    x[0] = np.linspace(-3, 3, 18)
    check_compiled(
        lambda a: [
            softmax(a, 1),
            log_softmax(a, 0),
            log_sum_exp(a, (1,)),
            normalized(a, (1,), 1.0),
        ],
        (x, "float32"),
    )


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_compiled_scans_are_right(dtype: str) -> None:
    x = drawn((3, 18), dtype)
    check_compiled(
        lambda a: [scan("add", a, 1), scan("max", a, 0, True), scan("add", a, 1, True, True)],
        (x, dtype),
    )


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
