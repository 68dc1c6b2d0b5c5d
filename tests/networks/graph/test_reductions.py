from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.workloads import softmax as softmax_workload
from autotune.networks.graph import (
    Graph,
    Value,
    arg,
    binary,
    constant,
    input_value,
    log_softmax,
    log_sum_exp,
    mean,
    normalized,
    reduce,
    reshape,
    softmax,
    variance,
)
from autotune.networks.plan.cpu_network import compile_network
from autotune.targets import detect_cpu
from tests.support.network_graphs import check_compiled, drawn, folded, numbers

COMBINERS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@settings(max_examples=20)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    data=st.data(),
)
@pytest.mark.parametrize("combiner", COMBINERS)
@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64"])
def test_reductions_are_those_of_numpy(
    dtype: str, combiner: str, shape: list[int], data: st.DataObject
) -> None:
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1))))
    x = drawn(shape, dtype, special=True)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) if dtype == "float32" else x
        wanted = COMBINERS[combiner].reduce(wide, axis=axes, keepdims=True).astype(dtype)
    kept, dropped = folded(
        lambda a: [reduce(combiner, a, axes), reduce(combiner, a, axes, False)], x
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
