"""Matrices are transposed in registers."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir import bindings, compiler
from autotune_mlir.code_generation import generate
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.transposed_vectors import TRANSPOSE, transpose_in_registers
from autotune_mlir.traversal import operations_in

from autotune.backends import NativeCall, aligned_copy, aligned_empty, time_native_call


def program(rows: int, columns: int) -> str:
    kinds = (f"vector<{rows}x{columns}xf32>", f"vector<{columns}x{rows}xf32>")
    buffers = (f"memref<{rows}x{columns}xf32>", f"memref<{columns}x{rows}xf32>")
    return f"""
func.func @kernel(%in: {buffers[0]}, %out: {buffers[1]}) {{
  %z = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %x = vector.transfer_read %in[%z, %z], %zero {{in_bounds = [true, true]}}
    : {buffers[0]}, {kinds[0]}
  %y = vector.transpose %x, [1, 0] : {kinds[0]} to {kinds[1]}
  vector.transfer_write %y, %out[%z, %z] {{in_bounds = [true, true]}} : {kinds[1]}, {buffers[1]}
  return
}}
"""


def rewritten(text: str) -> list[str]:
    """Names of the operations of a program after the rewriting."""
    module, ir = parse_payload(text), bindings.load().ir
    with module.context, ir.Location.unknown():
        found = [it for it in operations_in(module.operation) if it.name == TRANSPOSE]
        transpose_in_registers(ir, found)
        assert module.operation.verify()
        return [it.name for it in operations_in(module.operation)]


@pytest.mark.parametrize(
    ("rows", "columns", "shuffles"),
    # Squares of 16, 8 and 4 rows, with 4, 3 and 2 rounds.
    [(16, 16, 64), (32, 16, 128), (16, 8, 48), (8, 8, 24), (4, 12, 24), (12, 4, 24)],
)
def test_squares_exchange_elements_in_few_rounds(rows: int, columns: int, shuffles: int) -> None:
    names = rewritten(program(rows, columns))
    assert names.count("vector.shuffle") == shuffles
    assert TRANSPOSE not in names


@pytest.mark.parametrize(
    "text",
    [
        program(6, 16),
        program(1, 16),
        program(2, 2),
        """
func.func @kernel(%in: vector<4x8x4xf32>, %out: memref<4xf32>) -> vector<4x4x8xf32> {
  %y = vector.transpose %in, [2, 0, 1] : vector<4x8x4xf32> to vector<4x4x8xf32>
  return %y : vector<4x4x8xf32>
}
""",
    ],
    ids=["6 rows", "one row", "2 rows", "three dimensions"],
)
def test_what_no_squares_divide_is_left_alone(text: str) -> None:
    names = rewritten(text)
    assert names.count(TRANSPOSE) == 1 and "vector.shuffle" not in names


@pytest.mark.parametrize("shape", [(16, 16), (4, 20), (24, 8), (32, 16), (16, 48), (3, 16)])
def test_results_are_those_of_numpy(shape: tuple[int, int]) -> None:
    generated = generate(compiler.lower(program(*shape), None, threads=1))
    values = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    given, out = aligned_copy(values), aligned_empty(shape[::-1], np.float32)
    pointers = np.array([it.ctypes.data for it in (given, out)], np.uint64)
    time_native_call(NativeCall(generated.address, (pointers.ctypes.data,), (given, out)), 1)
    np.testing.assert_array_equal(out, values.T)
