from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Cast
from autotune.ir.workloads import (
    Workload,
    conv2d,
    dense,
    elementwise,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.ir.workloads.halves import HALF_DTYPES, stored_in_halves

halves = pytest.mark.parametrize("dtype", HALF_DTYPES)


def evaluated(workload: Workload) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """The numbers of random inputs and of the one output."""
    inputs = random_inputs(workload, np.random.default_rng(3))
    (output,) = reference_outputs(workload, inputs).values()
    elements = {tensor.name: tensor.element for tensor in workload.inputs}
    numbers = {name: elements[name].numbers(a).astype(float) for name, a in inputs.items()}
    return numbers, workload.tensors[workload.outputs[0]].element.numbers(output)


def types(workload: Workload) -> dict[str, str]:
    return {name: tensor.dtype for name, tensor in workload.tensors.items()}


@halves
def test_sums_are_float32_and_rounded_in_a_stage_of_their_own(dtype: str) -> None:
    workload = gemm(m=3, n=4, k=5, dtype=dtype)
    assert types(workload) == {"A": dtype, "B": dtype, "C": "float32", "O": dtype}
    assert workload.outputs == ("O",)
    assert workload.parameters == {"m": 3, "n": 4, "k": 5, "dtype": dtype}


@halves
def test_point_wise_outputs_are_rounded_where_they_are_computed(dtype: str) -> None:
    found = types(softmax(m=3, n=4, dtype=dtype))
    assert found == {"X": dtype, "M": "float32", "E": "float32", "S": "float32", "Y": dtype}
    workload = dense(m=3, n=4, k=5, dtype=dtype)
    assert workload.outputs == ("R",) and types(workload)["R"] == dtype
    assert isinstance(workload.stage("R").body, Cast)
    assert types(workload)["Z"] == "float32" and types(workload)["bias"] == dtype


@halves
def test_zeros_around_an_image_are_halves(dtype: str) -> None:
    workload = conv2d(h=5, w=5, ci=2, co=3, pad=1, dtype=dtype)
    assert types(workload)["P"] == dtype and types(workload)["Y"] == "float32"


@halves
@given(st.sampled_from([1, 2, 7, 13]), st.sampled_from([1, 3, 11]), st.sampled_from([1, 5, 64]))
def test_the_reference_computes_with_the_numbers_of_halves(
    dtype: str, m: int, n: int, k: int
) -> None:
    inputs, output = evaluated(gemm(m=m, n=n, k=k, dtype=dtype))
    element = element_type(dtype)
    expected = element.numbers(element.stored(inputs["A"] @ inputs["B"]))
    # Sums of the same numbers in another order, rounded to halves: mostly the same, or neighbours.
    np.testing.assert_allclose(output, expected, rtol=element.eps, atol=1e-12)
    inputs, output = evaluated(elementwise(m=m, n=n, dtype=dtype))
    wanted = np.maximum(inputs["X"] * inputs["Z"] + inputs["X"], 0) * 0.5
    np.testing.assert_array_equal(output, element.numbers(element.stored(wanted)))


def test_every_value_of_an_input_is_a_half() -> None:
    inputs = random_inputs(gemm(m=50, n=50, k=50, dtype="bfloat16"), np.random.default_rng(0))
    assert inputs["A"].dtype == np.uint16
    numbers = element_type("bfloat16").numbers(inputs["A"])
    assert -1 <= numbers.min() < -0.9 and 0.9 < numbers.max() <= 1


def test_digests_are_of_the_type() -> None:
    found = {gemm(m=3, n=4, k=5, dtype=dtype).digest for dtype in (*HALF_DTYPES, "float32")}
    assert len(found) == 3
    workload = gemm(m=3, n=4, k=5, dtype="bfloat16")
    assert Workload.from_json(workload.to_json()) == workload
    assert stored_in_halves(gemm(m=3, n=4, k=5), "bfloat16") == workload


def test_other_types_are_named() -> None:
    with pytest.raises(InvalidValueError, match="allowed: float32, float64, float16, bfloat16"):
        softmax(m=2, n=2, dtype="float8")
