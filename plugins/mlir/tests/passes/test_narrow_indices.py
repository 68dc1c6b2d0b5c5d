"""Vectors of indices are computed in the integers that they become."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir import bindings, compiler
from autotune_mlir.code_generation import generate
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.narrow_indices import CASTS, narrow_indices
from autotune_mlir.traversal import operations_in

from autotune.backends import NativeCall, aligned_empty, time_native_call


def program(dtype: str, operation: str = "arith.addi %row, %rows") -> str:
    """Numbers of 16 lanes, twice those of four rows, from 1000 on."""
    return f"""
func.func @kernel(%out: memref<4x16x{dtype}>) {{
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %four = arith.constant 4 : index
  %many = arith.constant 1000 : index
  %two = arith.constant dense<2> : vector<1x16xindex>
  scf.for %i = %z to %four step %one {{
    %start = arith.addi %i, %many : index
    %lanes = vector.step : vector<16xindex>
    %row = vector.shape_cast %lanes : vector<16xindex> to vector<1x16xindex>
    %rows = vector.broadcast %start : index to vector<1x16xindex>
    %sum = {operation} : vector<1x16xindex>
    %twice = arith.muli %sum, %two : vector<1x16xindex>
    %cast = arith.index_cast %twice : vector<1x16xindex> to vector<1x16x{dtype}>
    vector.transfer_write %cast, %out[%i, %z] {{in_bounds = [true, true]}}
      : vector<1x16x{dtype}>, memref<4x16x{dtype}>
  }}
  return
}}
"""


def wide_operations(text: str) -> list[str]:
    """Operations on vectors of indices that the rewriting leaves."""
    module, ir = parse_payload(text), bindings.load().ir
    with module.context, ir.Location.unknown():
        found = [it for it in operations_in(module.operation) if it.name in CASTS]
        narrow_indices(ir, found)
        passes = bindings.load().passmanager.PassManager
        passes.parse("builtin.module(canonicalize)").run(module.operation)
        assert module.operation.verify()
        return [
            it.name
            for it in operations_in(module.operation)
            if any("xindex" in str(result.type) for result in it.results)
        ]


@pytest.mark.parametrize("dtype", ["i8", "i32"])
def test_no_vector_of_indices_is_left(dtype: str) -> None:
    assert not wide_operations(program(dtype))


@pytest.mark.parametrize(
    "text", [program("i64"), program("i32", "arith.minsi %row, %rows")], ids=["wide", "minimum"]
)
def test_what_needs_all_bits_is_left_alone(text: str) -> None:
    assert wide_operations(text)


@pytest.mark.parametrize("dtype", ["i8", "i32", "i64"])
def test_low_bits_are_those_of_indices(dtype: str) -> None:
    generated = generate(compiler.lower(program(dtype), None, threads=1))
    out = aligned_empty((4, 16), np.dtype(dtype.replace("i", "int")))
    pointers = np.array([out.ctypes.data], np.uint64)
    time_native_call(NativeCall(generated.address, (pointers.ctypes.data,), (out,)), 1)
    wanted = 2 * (1000 + np.arange(4)[:, None] + np.arange(16))
    np.testing.assert_array_equal(out, wanted.astype(out.dtype))
