"""Programs of halves: made from workloads, and imported as others write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from tvm import te, tirx, topi
from tvm_programs import check_imported, machine_code, one_of_each, samples

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import gemm
from autotune.ir.workloads.halves import HALF_DTYPES
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import (
    run_executable,
)

BACKEND = TVMBackend()
HERE = detect_cpu()
AVX512 = Target(
    kind="cpu",
    name="avx512",
    processor="skylake-avx512",
    features=("avx512bw", "avx512f"),
    vector_bytes=64,
)
halves = pytest.mark.parametrize("dtype", HALF_DTYPES)


def product(dtype: str, total: str) -> list[Any]:
    """Build a product by ``out_dtype``: factors are converted to the type of the sums."""
    a, b = te.placeholder((17, 31), dtype, "A"), te.placeholder((31, 33), dtype, "B")
    k = te.reduce_axis((0, 31), "k")

    def factor(value: Any) -> Any:
        return value if dtype == total else tirx.Cast(total, value)

    def summed(i: Any, j: Any) -> Any:
        return te.sum(factor(a[i, k]) * factor(b[k, j]), axis=k)

    return [a, b, te.compute((17, 33), summed, "C")]


def rounded_product(dtype: str) -> list[Any]:
    a, b, c = product(dtype, "float32")
    return [a, b, te.compute((17, 33), lambda i, j: tirx.Cast(dtype, c[i, j]), "O")]


def convolution(dtype: str, total: str) -> list[Any]:
    x, w = te.placeholder((1, 7, 7, 6), dtype, "X"), te.placeholder((3, 3, 6, 18), dtype, "W")
    return [x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1, out_dtype=total)]


def rows(dtype: str, made: Callable[..., Any], *weights: str) -> list[Any]:
    x = te.placeholder((7, 40), dtype, "X")
    given = [te.placeholder((40,), dtype, name) for name in weights]
    return [x, *given, made(x, *given)]


IMPORTED: dict[str, tuple[Callable[[str], list[Any]], str]] = {
    "product": (lambda dtype: product(dtype, "float32"), "float32"),
    "product in halves": (lambda dtype: product(dtype, dtype), ""),
    "rounded product": (rounded_product, ""),
    "convolution": (lambda dtype: convolution(dtype, "float32"), "float32"),
    "convolution in halves": (lambda dtype: convolution(dtype, dtype), ""),
    "softmax": (lambda dtype: rows(dtype, lambda x: topi.nn.softmax(x, axis=1)), ""),
    "root mean square": (
        lambda dtype: rows(dtype, lambda x, g: topi.nn.rms_norm(x, g, [1], 1e-5), "G"),
        "",
    ),
    "point-wise": (lambda dtype: rows(dtype, lambda x: topi.exp(topi.tanh(x)) + x * x), ""),
}


@halves
@pytest.mark.parametrize("name", IMPORTED)
def test_imported_programs_are_tuned_as_they_are_written(name: str, dtype: str) -> None:
    make, result = IMPORTED[name]
    workload = check_imported(te.create_prim_func(make(dtype)), every=name == "rounded product")
    assert [tensor.dtype for tensor in workload.inputs] == [dtype] * len(workload.inputs)
    assert workload.tensors[workload.outputs[0]].dtype == (result or dtype)


def test_an_identity_of_another_type_is_refused() -> None:
    x = te.placeholder((4, 8), "bfloat16", "X")
    k = te.reduce_axis((0, 8), "k")
    least = te.comm_reducer(
        lambda a, b: tirx.max(a, b), lambda dtype: tirx.const(-3e38, dtype), name="least"
    )
    result = te.compute((4,), lambda i: least(x[i, k], axis=k), "M")
    with pytest.raises(UnsupportedWorkload, match="not the identity of 'max'"):
        BACKEND.import_program(te.create_prim_func([x, result]))


@halves
def test_inner_loops_convert_vectors(dtype: str) -> None:
    workload = gemm(m=32, n=64, k=64, dtype=dtype)
    wanted = "vpslld" if dtype == "bfloat16" else "vcvtph2ps"
    for candidate in one_of_each(samples(workload, AVX512)):
        text = machine_code(candidate, AVX512)
        assert any(wanted in line and "%zmm" in line for line in text.splitlines())
        assert "vfmadd" in text and "autotune_bfloat16" not in text


def test_arrays_are_bits() -> None:
    workload = gemm(m=1, n=1, k=1, dtype="bfloat16")
    executable = BACKEND.build(BuildRequest(workload, None, None, HERE, 1))
    three = np.full((1, 1), 0x4040, np.uint16)
    (nine,) = run_executable(executable, workload, {"A": three, "B": three})
    assert nine.tolist() == [[0x4110]]
