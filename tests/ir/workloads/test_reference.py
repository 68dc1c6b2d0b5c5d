from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.workloads import (
    Workload,
    attention,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    random_inputs,
    reference_outputs,
    softmax,
)
from autotune.ir.workloads import reference as reference_module

Array = NDArray[Any]


def run(workload: Workload, seed: int = 0) -> tuple[dict[str, Array], Array]:
    """Random inputs of a workload with one output, and that output."""
    inputs = random_inputs(workload, np.random.default_rng(seed))
    outputs = reference_outputs(workload, inputs)
    assert list(outputs) == list(workload.outputs)
    (output,) = outputs.values()
    tensor = workload.tensors[workload.outputs[0]]
    assert output.shape == tensor.shape and str(output.dtype) == tensor.dtype
    return inputs, output


def widened(array: Array) -> Array:
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 11), (16, 3, 8)], ids=str)
def test_gemm(shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    inputs, output = run(gemm(m=m, n=n, k=k, dtype=dtype))
    expected = widened(inputs["A"]) @ widened(inputs["B"])
    np.testing.assert_allclose(output, expected, rtol=1e-6)


def test_int8_accumulates_beyond_int8() -> None:
    workload = gemm(m=1, n=1, k=1000, dtype="int8")
    inputs = {"A": np.full((1, 1000), -128, np.int8), "B": np.full((1000, 1), 127, np.int8)}
    output = reference_outputs(workload, inputs)["C"]
    assert output.dtype == np.int32 and output[0, 0] == -128 * 127 * 1000


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_batch_matmul(dtype: str) -> None:
    inputs, output = run(batch_matmul(b=3, m=4, n=5, k=7, dtype=dtype))
    expected = [a @ b for a, b in zip(widened(inputs["A"]), widened(inputs["B"]), strict=True)]
    np.testing.assert_allclose(output, expected, rtol=1e-6)


@pytest.mark.parametrize("relu", [0, 1])
@pytest.mark.parametrize("bias", [0, 1])
def test_dense(bias: int, relu: int) -> None:
    inputs, output = run(dense(m=5, n=7, k=11, bias=bias, relu=relu))
    expected = widened(inputs["X"]) @ widened(inputs["W"]).T
    if bias:
        expected = expected + inputs["bias"]
    if relu:
        expected = np.maximum(expected, 0)
        assert (output == 0).any()
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-7)


def windows(x: Array, kh: int, kw: int, stride: int, pad: int, dilation: int) -> Array:
    """``[n, ho, wo, kh, kw, c]`` of a padded NHWC array, point by point."""
    n, h, w, c = x.shape
    ho = (h + 2 * pad - (kh - 1) * dilation - 1) // stride + 1
    wo = (w + 2 * pad - (kw - 1) * dilation - 1) // stride + 1
    result = np.zeros((n, ho, wo, kh, kw, c))
    for i, j, a, b in np.ndindex(ho, wo, kh, kw):
        row, column = i * stride + a * dilation - pad, j * stride + b * dilation - pad
        if 0 <= row < h and 0 <= column < w:
            result[:, i, j, a, b] = x[:, row, column]
    return result


@pytest.mark.parametrize(
    ("kh", "kw", "stride", "pad", "dilation"),
    [
        (3, 3, 1, 0, 1),
        (3, 3, 1, 1, 1),
        (3, 3, 2, 1, 1),
        (5, 1, 2, 2, 1),
        (3, 2, 1, 0, 2),
        (3, 3, 3, 3, 2),
        (1, 1, 2, 0, 1),
    ],
)
def test_convolutions(kh: int, kw: int, stride: int, pad: int, dilation: int) -> None:
    window = {"kh": kh, "kw": kw, "stride": stride, "pad": pad, "dilation": dilation}
    inputs, output = run(conv2d(n=2, h=9, w=8, ci=3, co=5, **window))
    patches = windows(inputs["X"], kh, kw, stride, pad, dilation)
    expected = np.einsum("nijabc,abcd->nijd", patches, inputs["W"])
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)

    inputs, output = run(depthwise_conv2d(n=2, h=9, w=8, c=4, **window))
    patches = windows(inputs["X"], kh, kw, stride, pad, dilation)
    expected = np.einsum("nijabc,abc->nijc", patches, inputs["W"])
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("bias", "relu"), [(1, 0), (0, 1), (1, 1)])
def test_convolution_with_an_epilogue(bias: int, relu: int) -> None:
    inputs, output = run(conv2d(h=6, w=5, ci=3, co=4, pad=1, bias=bias, relu=relu))
    patches = windows(inputs["X"], 3, 3, 1, 1, 1)
    expected = np.einsum("nijabc,abcd->nijd", patches, inputs["W"])
    if bias:
        expected = expected + inputs["bias"]
    if relu:
        expected = np.maximum(expected, 0)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (16, 64)], ids=str)
def test_softmax(shape: tuple[int, int]) -> None:
    inputs, output = run(softmax(m=shape[0], n=shape[1]))
    x = widened(inputs["X"])
    expected = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(output, expected, rtol=1e-6)
    np.testing.assert_allclose(output.sum(axis=1), 1, rtol=1e-5)


def test_softmax_of_large_numbers_is_finite() -> None:
    x = np.array([[1e4, 1e4, -1e4]], dtype=np.float32)
    np.testing.assert_allclose(
        reference_outputs(softmax(m=1, n=3), {"X": x})["Y"], [[0.5, 0.5, 0.0]]
    )


@pytest.mark.parametrize("causal", [0, 1])
def test_attention(causal: int) -> None:
    inputs, output = run(attention(h=2, n=5, d=3, causal=causal))
    q, k, v = (widened(inputs[name]) for name in "QKV")
    scores = np.einsum("bik,bjk->bij", q, k) / np.sqrt(3)
    weights = np.exp(scores) * (np.tri(5) if causal else 1)
    expected = np.einsum("bij,bjd->bid", weights / weights.sum(axis=2, keepdims=True), v)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


def test_products_of_products() -> None:
    """The inner one is computed as a matrix that lies transposed in memory."""
    inner, outer = "A[b, i, k] * W[j, k]", "T[b, i, j] * V[j]"
    stages = f"T[b:3, i:2, j:4; k:5] += {inner}", f"Y[b:3, i:2; j:4] += {outer}"
    check = written("A[3, 2, 5], W[4, 5], V[4]", *stages)
    arrays = random_inputs(check, np.random.default_rng(0))
    (found,) = reference_outputs(check, arrays).values()
    wanted = (arrays["A"] @ arrays["W"].T) @ arrays["V"]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_attention_to_other_keys() -> None:
    workload = attention(h=2, n=5, m=7, d=3)
    inputs, output = run(workload)
    assert inputs["V"].shape == (2, 7, 3) and output.shape == (2, 5, 3)
    with pytest.raises(InvalidValueError, match="as many keys as queries, not m=7"):
        attention(h=2, n=5, m=7, d=3, causal=1)


def test_elementwise() -> None:
    inputs, output = run(elementwise(m=5, n=7))
    x, z = widened(inputs["X"]), widened(inputs["Z"])
    np.testing.assert_allclose(output, np.maximum(x * z + x, 0) * 0.5, rtol=1e-6)


def reduction(combiner: str, dtype: str = "float32") -> Workload:
    """``Y[i] = combine over k of X[k, i]`` for 3 rows and 5 columns."""
    return written(f"X[3, 5]: {dtype}", f"Y[i:5; k:3]: {dtype} {combiner}= X[k, i]")


COMBINERS: dict[str, Any] = {"+": np.sum, "*": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("combiner", COMBINERS)
def test_combiners(combiner: str, dtype: str) -> None:
    inputs, output = run(reduction(combiner, dtype))
    np.testing.assert_allclose(output, COMBINERS[combiner](inputs["X"], axis=0), rtol=1e-5)


@pytest.mark.parametrize("combiner", ["+", "max"])
def test_a_reduce_axis_may_come_first(combiner: str) -> None:
    plain = reduction(combiner)
    (stage,) = plain.stages
    _, output = run(evolve(plain, stages=(evolve(stage, axes=stage.axes[::-1]),)))
    np.testing.assert_array_equal(output, run(plain)[1])


@pytest.mark.parametrize("chunk", [1, 7, 40])
def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    cases = [softmax(m=5, n=7), conv2d(h=5, w=6, ci=2, co=3, pad=1), reduction("max")]
    expected = [run(workload)[1] for workload in cases]
    monkeypatch.setattr(reference_module, "_CHUNK_POINTS", chunk)
    for workload, output in zip(cases, expected, strict=True):
        np.testing.assert_array_equal(run(workload)[1], output)


def pointwise(body: str, dtype: str = "float64") -> Workload:
    """A workload of one stage over ``i`` in range(8) that may read ``X``."""
    return written(f"X[8]: {dtype}", f"Y[i:8]: {dtype} = {body}")


UNARY_FUNCTIONS: dict[str, Any] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: x**-0.5,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: [math.erf(value) for value in x],
    "floor": np.floor,
    "ceil": np.ceil,
}


@pytest.mark.parametrize("op", UNARY_FUNCTIONS)
def test_functions(op: str) -> None:
    x = np.linspace(0.3, 2.7, 8)
    output = reference_outputs(pointwise(f"{op}(X[i])"), {"X": x})["Y"]
    np.testing.assert_allclose(output, UNARY_FUNCTIONS[op](x), rtol=1e-12)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("add", lambda x: x + 1.5),
        ("sub", lambda x: x - 1.5),
        ("mul", lambda x: x * 1.5),
        ("div", lambda x: x / 1.5),
        ("max", lambda x: np.maximum(x, 1.5)),
        ("min", lambda x: np.minimum(x, 1.5)),
        ("pow", lambda x: x**1.5),
        ("lt", lambda x: x < 1.5),
        ("le", lambda x: x <= 1.5),
        ("gt", lambda x: x > 1.5),
        ("ge", lambda x: x >= 1.5),
        ("eq", lambda x: x == 1.5),
        ("ne", lambda x: x != 1.5),
    ],
)
def test_operators(op: str, expected: Any) -> None:
    x = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 1.5, 0.0])
    output = reference_outputs(pointwise(f"{op}(X[i], 1.5)"), {"X": x})["Y"]
    np.testing.assert_allclose(output, expected(x).astype(np.float64))


def test_integers_divide_towards_zero() -> None:
    x = np.arange(-4, 4, dtype=np.int32)
    output = reference_outputs(pointwise("X[i] / 3", "int32"), {"X": x})["Y"]
    np.testing.assert_array_equal(output, [-1, -1, 0, 0, 0, 0, 0, 1])


def test_predicates_guard_what_is_out_of_bounds() -> None:
    shifted = "X[i - 2] if i >= 2 and not i > 9 else -1.0"
    x = np.arange(8.0)
    output = reference_outputs(pointwise(shifted), {"X": x})["Y"]
    np.testing.assert_array_equal(output, [-1, -1, 0, 1, 2, 3, 4, 5])


def test_an_index_is_a_number() -> None:
    output = reference_outputs(pointwise("float64(i * 3 + 1)"), {"X": np.zeros(8)})["Y"]
    np.testing.assert_array_equal(output, np.arange(8) * 3 + 1)


def test_a_cast_inside_a_contraction_rounds() -> None:
    inputs = "X[1, 3]: float64, Z[3]: float64"
    workload = written(inputs, "Y[i:1; k:3]: float64 += int32(X[i, k]) * Z[k]")
    arrays = {"X": np.array([[1.9, 2.5, -1.5]]), "Z": np.array([1.0, 10.0, 100.0])}
    assert reference_outputs(workload, arrays)["Y"].tolist() == [1 + 20 - 100]


def test_several_outputs_come_in_order() -> None:
    texts = "D[i:8] = X[i] + X[i]", "S[i:8] = X[i] * X[i]"
    workload = written("X[8]", *texts, outputs="S D")
    x = np.arange(8, dtype=np.float32)
    outputs = reference_outputs(workload, {"X": x})
    assert list(outputs) == ["S", "D"]
    np.testing.assert_array_equal(outputs["S"], x * x)
    np.testing.assert_array_equal(outputs["D"], x + x)


def test_inputs_are_checked() -> None:
    workload = gemm(m=2, n=3, k=4)
    arrays = random_inputs(workload, np.random.default_rng(0))
    with pytest.raises(InvalidValueError, match="no array for input 'B'"):
        reference_outputs(workload, {"A": arrays["A"]})
    with pytest.raises(InvalidValueError, match=r"'B' has shape \(3, 4\), expected \(4, 3\)"):
        reference_outputs(workload, {"A": arrays["A"], "B": arrays["B"].T})


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_inputs_may_be_views(dtype: str) -> None:
    workload = gemm(m=2, n=3, k=4, dtype=dtype)
    arrays = random_inputs(workload, np.random.default_rng(0))
    expected = reference_outputs(workload, arrays)["C"]
    transposed = {name: np.asfortranarray(array) for name, array in arrays.items()}
    np.testing.assert_array_equal(reference_outputs(workload, transposed)["C"], expected)
    sliced = {name: np.repeat(array, 2, axis=1)[:, ::2] for name, array in arrays.items()}
    np.testing.assert_array_equal(reference_outputs(workload, sliced)["C"], expected)


@pytest.mark.parametrize("dtype", ["float32", "u8s8s32"])
def test_convolutions_of_other_ranks_are_those_of_flat_images(dtype: str) -> None:
    window = {"stride": 2, "dilation": 1}
    flat = conv2d(n=2, h=1, w=11, ci=3, co=4, kh=1, kw=3, dtype=dtype, **window)
    line = conv1d(n=2, w=11, ci=3, co=4, kw=3, dtype=dtype, **window)
    slab = conv3d(n=2, d=1, h=1, w=11, ci=3, co=4, kd=1, kh=1, kw=3, dtype=dtype, **window)
    arrays = random_inputs(flat, np.random.default_rng(0))
    expected = reference_outputs(flat, arrays)["Y"]
    for other in (line, slab):
        shaped = {t.name: arrays[t.name].reshape(t.shape) for t in other.inputs}
        found = reference_outputs(other, shaped)["Y"]
        np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_padding_of_three_dimensions() -> None:
    padded = conv3d(d=3, h=4, w=5, ci=2, co=3, pad=1)
    arrays = random_inputs(padded, np.random.default_rng(0))
    inside = conv3d(d=5, h=6, w=7, ci=2, co=3)
    grown = np.pad(arrays["X"], ((0, 0), (1, 1), (1, 1), (1, 1), (0, 0)))
    np.testing.assert_allclose(
        reference_outputs(padded, arrays)["Y"],
        reference_outputs(inside, {**arrays, "X": grown})["Y"],
        rtol=1e-6,
        atol=1e-6,
    )


def test_requantised_sums() -> None:
    plain = gemm(m=9, n=8, k=70, dtype="u8s8s32")
    bytes_again = gemm(m=9, n=8, k=70, dtype="u8s8s32", requantize=9)
    arrays = random_inputs(plain, np.random.default_rng(0))
    sums = reference_outputs(plain, arrays)["C"]
    found = reference_outputs(bytes_again, arrays)["Q"]
    assert found.dtype == np.uint8 and sums.min() < 0 and sums.max() >> 9 > 255
    np.testing.assert_array_equal(found, np.clip(sums >> 9, 0, 255))


def test_quotients_remainders_and_data_as_indices() -> None:
    texts = "rows[i:5, j:12] = T[I[i], j // 3]", "merged[i:5, j:12] = X[j // 3, i, j % 3]"
    workload = written("T[9, 4], I[5]: int64, X[4, 5, 3]", *texts, outputs="rows merged")
    arrays = random_inputs(workload, np.random.default_rng(0))
    found = reference_outputs(workload, arrays)
    taken = np.repeat(arrays["T"][arrays["I"]], 3, axis=1)
    np.testing.assert_array_equal(found["rows"], taken)
    heads = arrays["X"].transpose(1, 0, 2).reshape(5, 12)
    np.testing.assert_array_equal(found["merged"], heads)
    beyond = reference_outputs(workload, {**arrays, "I": np.full(5, 99)})["rows"]
    np.testing.assert_array_equal(beyond, np.repeat(arrays["T"][[8] * 5], 3, axis=1))


@pytest.mark.parametrize(("op", "wanted"), [("div", -128 / 3), ("mul", -384.0), ("sub", -131.0)])
def test_integers_that_are_cast_to_floats_are_floats(op: str, wanted: float) -> None:
    """Bytes would overflow, and divisions of integers drop what is behind the point."""
    stage = f"Y[i:1] = {op}(float32(X[i]), float32(Z[i]))"
    workload = written("X[1]: int8, Z[1]: int8", stage)
    arrays = {"X": np.asarray([-128], np.int8), "Z": np.asarray([3], np.int8)}
    np.testing.assert_allclose(reference_outputs(workload, arrays)["Y"], [wanted], rtol=1e-6)


_FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(
    op=st.sampled_from(["add", "sub", "mul", "div"]),
    pairs=st.lists(st.tuples(_FLOATS, _FLOATS), min_size=1, max_size=8),
)
def test_one_operation_is_rounded_as_in_double_precision(
    op: str, pairs: list[tuple[float, float]]
) -> None:
    n = len(pairs)
    workload = written(f"x[{n}], y[{n}]", f"z[i:{n}] = {op}(x[i], y[i])")
    left, right = np.array(pairs, np.float32).T.copy()
    ufuncs = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    with np.errstate(all="ignore"):
        (found,) = reference_outputs(workload, {"x": left, "y": right}).values()
        wanted = ufuncs[op](left.astype(float), right.astype(float)).astype(np.float32)
    np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool"])
def test_what_is_moved_keeps_its_bits(dtype: str) -> None:
    """NaN with other bits and zeros of both signs, too; parts of a tensor and its transpose."""
    moved = written(f"x[4, 6]: {dtype}", f"y[i:3, k:2]: {dtype} = x[k + 1, i * 2]")
    stored = moved.tensors["x"].element.dtype
    bits = np.random.default_rng(0).integers(0, 256, 24 * stored.itemsize).astype(np.uint8)
    array = (bits % 2).astype(bool) if dtype == "bool" else bits.view(stored)
    array = array.reshape(4, 6)
    (found,) = reference_outputs(moved, {"x": array}).values()
    assert found.tobytes() == np.ascontiguousarray(array.T[::2, 1:3]).tobytes()


def test_parts_of_a_long_axis_are_evaluated_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads along the axis that is cut, and reads of all of it."""
    workload = written("x[8, 3], y[3]", "z[i:7, k:3] = x[i + 1, k] * y[k] + x[0, k]")
    arrays, whole = run(workload)
    monkeypatch.setattr(reference_module, "_CHUNK_POINTS", 6)
    _, cut = run(workload)
    np.testing.assert_array_equal(cut, whole)
    x, y = (widened(arrays[name]) for name in "xy")
    np.testing.assert_allclose(whole, x[1:] * y + x[:1], rtol=1e-6)
