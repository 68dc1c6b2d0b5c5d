"""Operands of linalg whose maps have quotients and remainders."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from mlir_programs import function

from autotune.backends import BuildRequest
from autotune.targets import Target
from autotune.testing.programs import check_program

GROUPED = function(
    """
%z = arith.constant 0.0 : f32
%e = tensor.empty() : tensor<16x5x6xf32>
%i = linalg.fill ins(%z : f32) outs(%e : tensor<16x5x6xf32>) -> tensor<16x5x6xf32>
%0 = linalg.generic {indexing_maps = [
    affine_map<(a, b, k, h, w, c) -> (h + a, w + b, (c floordiv 8) * 3 + k)>,
    affine_map<(a, b, k, h, w, c) -> (a, b, k, c)>,
    affine_map<(a, b, k, h, w, c) -> (c, h, w)>], iterator_types =
    ["reduction", "reduction", "reduction", "parallel", "parallel", "parallel"]}
    ins(%x, %w : tensor<7x7x6xf32>, tensor<3x2x3x16xf32>) outs(%i : tensor<16x5x6xf32>) {
^bb0(%p: f32, %q: f32, %o: f32):
  %m = arith.mulf %p, %q : f32
  %s = arith.addf %o, %m : f32
  linalg.yield %s : f32
} -> tensor<16x5x6xf32>
return %0 : tensor<16x5x6xf32>
""",
    "%x: tensor<7x7x6xf32>, %w: tensor<3x2x3x16xf32>",
    "tensor<16x5x6xf32>",
)


def repeated(index: str = "j floordiv 2", shape: str = "6x8") -> str:
    """Rows of 16, of which each element is read at ``index`` of a row."""
    return function(
        f"""
%e = tensor.empty() : tensor<6x16xf32>
%0 = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, {index})>,
    affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
    ins(%x : tensor<{shape}xf32>) outs(%e : tensor<6x16xf32>) {{
^bb0(%p: f32, %o: f32):
  %s = arith.addf %p, %p : f32
  linalg.yield %s : f32
}} -> tensor<6x16xf32>
return %0 : tensor<6x16xf32>
""",
        f"%x: tensor<{shape}xf32>",
        "tensor<6x16xf32>",
    )


SUMS = function(
    """
%z = arith.constant 0.0 : f32
%e = tensor.empty() : tensor<6xf32>
%i = linalg.fill ins(%z : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
%0 = linalg.generic {indexing_maps = [affine_map<(i, k) -> (i floordiv 2, k)>,
    affine_map<(i, k) -> (i)>], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<3x7xf32>) outs(%i : tensor<6xf32>) {
^bb0(%p: f32, %o: f32):
  %s = arith.addf %o, %p : f32
  linalg.yield %s : f32
} -> tensor<6xf32>
return %0 : tensor<6xf32>
""",
    "%x: tensor<3x7xf32>",
    "tensor<6xf32>",
)

PROGRAMS = {
    "an iterator of this operand alone": SUMS,
    "groups, iterators in another order": GROUPED,
    "quotient": repeated(),
    "remainder": repeated("j mod 8"),
    "rounded up": repeated("j ceildiv 2", "6x9"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_workloads_compute_what_the_program_does(
    name: str, backend: MLIRBackend, target: Target
) -> None:
    workload, program = read_text(PROGRAMS[name], "program.mlir", None)
    check_program(backend, BuildRequest(workload, program, None, target, 1))
