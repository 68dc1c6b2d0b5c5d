"""Groups of rows that are interleaved where they have been packed."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings
from autotune_mlir.code_generation import generate
from autotune_mlir.compiler import lower
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.interleave import Groups, copy_behind, interleave

from autotune.backends import InvalidSchedule, aligned_empty

ROWS, ROW = 8, 32
# Rows of %a into the buffer, and the buffer into the result, in one order or the other.
PROGRAM = f"""
func.func @kernel(%a: memref<{ROWS}x{ROW}xi8>, %c: memref<{ROWS}x{ROW}xi8>) {{{{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rows = arith.constant {ROWS} : index
  %pad = arith.constant 0 : i8
  %buffer = memref.alloc() : memref<{ROWS}x1x{ROW}xi8>
  %view = memref.collapse_shape %buffer [[0, 1], [2]]
    : memref<{ROWS}x1x{ROW}xi8> into memref<{ROWS}x{ROW}xi8>
{{body}}
  return
}}}}
"""
WRITE = f"""
  scf.for %i = %zero to %rows step %one {{
    %x = vector.transfer_read %a[%i, %zero], %pad : memref<{ROWS}x{ROW}xi8>, vector<{ROW}xi8>
    vector.transfer_write %x, %view[%i, %zero] : vector<{ROW}xi8>, memref<{ROWS}x{ROW}xi8>
  }}
"""
READ = f"""
  scf.for %i = %zero to %rows step %one {{
    %x = vector.transfer_read %view[%i, %zero], %pad : memref<{ROWS}x{ROW}xi8>, vector<{ROW}xi8>
    vector.transfer_write %x, %c[%i, %zero] : vector<{ROW}xi8>, memref<{ROWS}x{ROW}xi8>
  }}
"""


def interleaved(body: str, groups: Groups, *, all_reads: bool = True) -> Any:
    """A program whose reads of the buffer find its rows interleaved."""
    module = parse_payload(PROGRAM.format(body=body))
    reads: list[Any] = []
    ir = bindings.load().ir

    def visit(operation: Any) -> Any:
        if operation.name == "vector.transfer_read":
            reads.append(operation.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    views = [it for it in reads if copy_behind(it.operands[0]) != it.operands[0]]
    with module.context, ir.Location.unknown():
        buffer = copy_behind(views[0].operands[0])
        interleave(ir, buffer, groups, views if all_reads else [], parallel=False)
    assert module.operation.verify()
    return module


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_elements_of_a_group_of_rows_follow_each_other(size: int, lanes: int) -> None:
    module = interleaved(WRITE + READ, Groups(size, ROW, lanes))
    made = generate(lower(str(module), None, threads=1))
    given, found = (aligned_empty((ROWS, ROW), np.int8) for _ in range(2))
    given[...] = np.arange(ROWS * ROW).reshape(ROWS, ROW) - 128
    pointers = (ctypes.c_void_p * 2)(given.ctypes.data, found.ctypes.data)
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(made.address)(pointers) == 0
    expected = given.reshape(ROWS // size, size, ROW).swapaxes(1, 2)
    np.testing.assert_array_equal(found.ravel(), expected.ravel())


def test_what_is_no_copy_of_whole_groups_is_refused() -> None:
    with pytest.raises(InvalidSchedule, match="has no groups of 3 rows"):
        interleaved(WRITE + READ, Groups(3, ROW, 16))
    with pytest.raises(InvalidSchedule, match="is read before all of it is packed"):
        interleaved(READ + WRITE, Groups(4, ROW, 16))
    with pytest.raises(InvalidSchedule, match="is not packed and read one after the other"):
        interleaved(READ, Groups(4, ROW, 16))
    with pytest.raises(InvalidSchedule, match="vector.transfer_read reads memref"):
        interleaved(WRITE + READ, Groups(4, ROW, 16), all_reads=False)
