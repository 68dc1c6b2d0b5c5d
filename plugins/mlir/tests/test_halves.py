"""Programs of halves: made from workloads, and imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.rewrite import as_bits
from autotune_mlir.scalar_emit import literal
from written import written

from autotune.backends import BuildRequest, ProgramFile
from autotune.errors import UnsupportedWorkload
from autotune.ir.element_types import bfloat16_bits
from autotune.ir.workloads import (
    conv2d,
    dense,
    elementwise,
    gemm,
    softmax,
)
from autotune.ir.workloads.halves import HALF_DTYPES
from autotune.targets import detect_cpu
from autotune.testing.programs import (
    check_program,
    run_executable,
)

BACKEND = MLIRBackend()
HERE = detect_cpu()
halves = pytest.mark.parametrize("dtype", HALF_DTYPES)


@halves
@pytest.mark.parametrize(
    "build",
    [
        lambda dtype: gemm(m=13, n=31, k=7, dtype=dtype),
        lambda dtype: gemm(m=1, n=1, k=1, dtype=dtype),
        lambda dtype: dense(m=4, n=32, k=31, dtype=dtype),
        lambda dtype: conv2d(h=7, w=7, ci=6, co=18, pad=1, bias=1, relu=1, dtype=dtype),
        lambda dtype: softmax(m=7, n=37, dtype=dtype),
        lambda dtype: elementwise(m=5, n=13, dtype=dtype),
    ],
    ids=["product", "one", "dense", "convolution", "softmax", "point-wise"],
)
def test_programs_without_a_schedule_are_right(build: Any, dtype: str) -> None:
    check_program(BACKEND, BuildRequest(build(dtype), None, None, HERE, 1))


def converted(given: str, result: str, array: Any) -> Any:
    stage = f"Y[i]: {result} = {result}(X[i])"
    workload = written(f"X[i]: {given}", stage, i=array.size)
    executable = BACKEND.build(BuildRequest(workload, None, None, HERE, 1))
    (made,) = run_executable(executable, workload, {"X": array})
    return made


def test_conversions_of_bfloat16_are_exact() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    wide = converted("bfloat16", "float32", every)
    np.testing.assert_array_equal(wide.view(np.uint32), every.astype(np.uint32) << 16)
    for offset in (0, 1, 0x7FFF, 0x8000, 0x8001):
        numbers = ((every.astype(np.uint32) << 16) | np.uint32(offset)).view(np.float32)
        got = converted("float32", "bfloat16", numbers)
        kept = ~np.isnan(numbers)
        np.testing.assert_array_equal(got[kept], bfloat16_bits(numbers)[kept])
        assert (got[~kept] & 0x7FFF > 0x7F80).all()


def test_bfloat16_is_converted_to_double_precision_and_back() -> None:
    every = np.arange(0x7F80, dtype=np.uint16)
    wide = converted("bfloat16", "float64", every)
    np.testing.assert_array_equal(wide, (every.astype(np.uint32) << 16).view(np.float32))
    np.testing.assert_array_equal(converted("float64", "bfloat16", wide), every)


def test_between_halves_the_way_is_float32() -> None:
    numbers = np.asarray([1.0, 1.0009766, 65504.0, 3e-5], np.float16)
    got = converted("float16", "bfloat16", numbers)
    np.testing.assert_array_equal(got, bfloat16_bits(numbers.astype(np.float32)))


def test_constants_are_rounded_as_they_are_stored() -> None:
    assert literal(1.0, "bfloat16") == "0x3F80" and literal(-1 / 3, "bfloat16") == "0xBEAB"
    assert literal(float("inf"), "bfloat16") == "0x7F80"
    with pytest.raises(UnsupportedWorkload, match=r"3\.4e\+38 does not fit bfloat16"):
        literal(3.4e38, "bfloat16")


def test_a_lowered_program_has_bits() -> None:
    text = """
    %0 = llvm.mlir.constant(dense<[1.000000e+00, -2.500000e-01]> : vector<2xbf16>) : vector<2xbf16>
    %1 = llvm.mlir.constant(0xFF80 : bf16) : bf16
    %2 = llvm.mlir.constant(1.000000e+00 : f32) : f32
    %5 = llvm.mlir.constant(dense<1.000000e+00> : vector<10xbf16>) : vector<10xbf16>
    %3 = llvm.alloca %4 x bf16 {alignment = 64 : i64} : (i64) -> !llvm.ptr
"""
    assert (
        as_bits(text)
        == """
    %0 = llvm.mlir.constant(dense<[16256, -16768]> : vector<2xi16>) : vector<2xi16>
    %1 = llvm.mlir.constant(-128 : i16) : i16
    %2 = llvm.mlir.constant(1.000000e+00 : f32) : f32
    %5 = llvm.mlir.constant(dense<16256> : vector<10xi16>) : vector<10xi16>
    %3 = llvm.alloca %4 x i16 {alignment = 64 : i64} : (i64) -> !llvm.ptr
"""
    )


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_an_imported_product_sums_as_it_is_written(
    kind: str, read_in_process: None, tmp_path: Path
) -> None:
    text = f"""
func.func @f(%a: tensor<7x5x{kind}>, %b: tensor<5x9x{kind}>) -> tensor<7x9x{kind}> {{
  %zero = arith.constant 0.0 : {kind}
  %e = tensor.empty() : tensor<7x9x{kind}>
  %o = linalg.fill ins(%zero : {kind}) outs(%e : tensor<7x9x{kind}>) -> tensor<7x9x{kind}>
  %r = linalg.matmul ins(%a, %b : tensor<7x5x{kind}>, tensor<5x9x{kind}>)
    outs(%o : tensor<7x9x{kind}>) -> tensor<7x9x{kind}>
  return %r : tensor<7x9x{kind}>
}}
"""
    path = tmp_path / "product.mlir"
    path.write_text(text)
    imported = BACKEND.import_program(ProgramFile(path, "mlir"))
    workload = imported.workload
    assert {workload.tensors[name].dtype for name in workload.tensors} == {
        {"bf16": "bfloat16", "f16": "float16"}[kind]
    }
    check_program(BACKEND, BuildRequest(workload, imported.program, None, HERE, 1))
