"""int8 products with zero points."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from mlir_programs import function

from autotune.backends import BuildRequest
from autotune.ir.expressions import Cast, Load
from autotune.ir.workloads import Workload
from autotune.targets import Target
from autotune.testing.programs import check_program

POINTS = "%y: i32, %z: i32"


def quantized(
    name: str, left: str, right: str, result: str, *, points: str = "", options: str = ""
) -> str:
    """A program of one named operation; zero points are arguments unless they are given."""
    return function(
        f"""
{points}
%c = arith.constant 0 : i32
%e = tensor.empty() : tensor<{result}xi32>
%i = linalg.fill ins(%c : i32) outs(%e : tensor<{result}xi32>) -> tensor<{result}xi32>
%0 = linalg.{name} {options} ins(%a, %b, %y, %z : tensor<{left}xi8>, tensor<{right}xi8>, i32, i32)
    outs(%i : tensor<{result}xi32>) -> tensor<{result}xi32>
return %0 : tensor<{result}xi32>
""",
        f"%a: tensor<{left}xi8>, %b: tensor<{right}xi8>" + ("" if points else f", {POINTS}"),
        f"tensor<{result}xi32>",
    )


CONSTANTS = "%y = arith.constant -7 : i32\n%z = arith.constant 100 : i32"
PRODUCT = ("quantized_matmul", "17x24", "24x40", "17x40")
PROGRAMS = {
    "arguments": quantized(*PRODUCT),
    "constants": quantized(*PRODUCT, points=CONSTANTS),
    "batches": quantized("quantized_batch_matmul", "2x9x16", "2x16x20", "2x9x20"),
    "windows": quantized(
        "conv_2d_nhwc_hwcf_q",
        "1x9x9x8",
        "3x3x8x16",
        "1x4x4x16",
        options="{strides = dense<2> : tensor<2xi64>}",
    ),
}


def imported(text: str) -> tuple[Workload, str]:
    return read_text(text, "own.mlir", None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_products_of_bytes_and_sums(
    name: str, backend: MLIRBackend, target: Target
) -> None:
    workload, program = imported(PROGRAMS[name])
    product, left, right, result = workload.stages
    assert [stage.combiner for stage in workload.stages] == ["add"] * 3 + [None]
    assert (product.name, left.name, right.name) == tuple(
        f"{result.name}_{part}" for part in ("product", "left_sums", "right_sums")
    )
    for sums, operand in ((left, "arg0"), (right, "arg1")):
        assert isinstance(sums.body, Cast) and isinstance(sums.body.operand, Load)
        assert sums.body.operand.tensor == operand
    check_program(backend, BuildRequest(workload, program, None, target, 1))


def test_one_zero_point_needs_one_sum() -> None:
    """A zero that is a constant is none."""
    workload, _ = imported(ONE_POINT)
    product, sums, result = workload.stages
    assert sums.name == f"{result.name}_left_sums" and product.reads == ("arg0", "arg1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("arith.subi %q, %z", "arith.addi %q, %z"),
        ("arith.extsi %n : i8", "arith.extsi %m : i8"),
        ("arith.muli %p, %s", "arith.maxsi %p, %s"),
    ],
)
def test_other_sums_are_left_as_they_are(before: str, after: str) -> None:
    assert before in ONE_POINT
    workload, _ = imported(ONE_POINT.replace(before, after))
    assert len(workload.stages) == 1


ONE_POINT = function(
    """
%c = arith.constant 0 : i32
%e = tensor.empty() : tensor<8x16xi32>
%i = linalg.fill ins(%c : i32) outs(%e : tensor<8x16xi32>) -> tensor<8x16xi32>
%0 = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>,
    affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
    iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<8x4xi8>, tensor<4x16xi8>) outs(%i : tensor<8x16xi32>) {
^bb0(%m: i8, %n: i8, %o: i32):
  %p = arith.extsi %m : i8 to i32
  %q = arith.extsi %n : i8 to i32
  %s = arith.subi %q, %z : i32
  %t = arith.muli %p, %s : i32
  %u = arith.addi %o, %t : i32
  linalg.yield %u : i32
} -> tensor<8x16xi32>
return %0 : tensor<8x16xi32>
""",
    "%a: tensor<8x4xi8>, %b: tensor<4x16xi8>, %z: i32",
    "tensor<8x16xi32>",
)
