"""Operands of imported programs, which come in any order."""

from __future__ import annotations

import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import operand_names, payload
from autotune_mlir.operands import operands_of
from autotune_mlir.parsing import parse_payload
from mlir_schedules import candidates

from autotune.backends import ImportedProgram
from autotune.ir.workloads import Workload, conv2d, softmax
from autotune.sketches import Pack
from autotune.targets import Target
from autotune.testing.programs import check_candidate

# The operation reads %A first, its body multiplies what it reads of %B.
TEXT = """
func.func @product(%A: tensor<16x12xf32>, %B: tensor<{shape}xf32>) -> tensor<16x32xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<16x32xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<16x32xf32>) -> tensor<16x32xf32>
  %result = linalg.generic {{
    indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> ({index})>,
                     affine_map<(i, j, k) -> (i, j)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  }} ins(%A, %B : tensor<16x12xf32>, tensor<{shape}xf32>) outs(%start : tensor<16x32xf32>) {{
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %product = arith.mulf %b, %a : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  }} -> tensor<16x32xf32>
  return %result : tensor<16x32xf32>
}}
"""


@pytest.fixture(params=[("12x32", "k, j"), ("32x12", "j, k")], ids=["columns", "rows"])
def imported(request: pytest.FixtureRequest, backend: MLIRBackend) -> ImportedProgram:
    shape, index = request.param
    return backend.import_program(parse_payload(TEXT.format(shape=shape, index=index)))


def test_operands_are_those_of_the_program(imported: ImportedProgram) -> None:
    (stage,) = imported.workload.stages
    left, right = (tensor.name for tensor in imported.workload.inputs)
    assert [load.tensor for load in stage.loads] == [right, left]
    assert operands_of(imported.workload, imported.program) == {stage.name: (left, right)}


@pytest.mark.parametrize(
    "workload", [softmax(m=4, n=8), conv2d(h=6, w=6, ci=2, co=4, pad=1, bias=1, relu=1)]
)
def test_emitted_programs_are_known_without_reading_them(workload: Workload) -> None:
    assert operands_of(workload, payload(workload)) == operand_names(workload)


def test_the_right_operand_is_packed(
    imported: ImportedProgram, backend: MLIRBackend, target: Target
) -> None:
    packing = 0
    for candidate in candidates(imported.workload, target, 1):
        check_candidate(backend, candidate, target, program=imported.program)
        packing += any(isinstance(step, Pack) for step in candidate.sketch.steps)
    assert packing
