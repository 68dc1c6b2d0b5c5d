"""What is rewritten between buffers and loops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings, code_generation, compiler, parsing
from autotune_mlir.passes.rewrite import rewrite
from autotune_mlir.passes.vector_instructions import BASIC

from autotune.backends import (
    ALIGNMENT,
    NativeCall,
    aligned_copy,
    aligned_empty,
    time_native_call,
)

STRIDED = "memref<2x3xf32, strided<[8, 1], offset: 4>>"
PROGRAM = f"""
func.func @kernel(%in: memref<2x3xf32>, %out: memref<6x8xf32>, %dense: memref<2x3xf32>) {{
  %part = memref.reinterpret_cast %out to offset: [4], sizes: [2, 3], strides: [8, 1]
    : memref<6x8xf32> to {STRIDED}
  memref.copy %in, %part : memref<2x3xf32> to {STRIDED}
  memref.copy %in, %dense : memref<2x3xf32> to memref<2x3xf32>
  %buffer = memref.alloc() : memref<2xf32>
  memref.dealloc %buffer : memref<2xf32>
  %own = memref.alloc() {{alignment = 8}} : memref<2xf32>
  memref.dealloc %own : memref<2xf32>
  %i = arith.constant 0 : index
  %x = memref.load %in[%i, %i] : memref<2x3xf32>
  %product = arith.mulf %x, %x : f32
  %sum = arith.addf %product, %x fastmath<reassoc> : f32
  %most = arith.maximumf %sum, %x : f32
  %least = arith.minimumf %most, %x fastmath<nnan> : f32
  %root = math.sqrt %least : f32
  memref.store %root, %dense[%i, %i] : memref<2x3xf32>
  return
}}
"""


def rewritten(program: str) -> str:
    """A program after rewriting."""
    module: Any = parsing.parse_payload(program)
    ir = bindings.load().ir
    with module.context, ir.Location.unknown():
        rewrite(ir, module, BASIC)
        assert module.operation.verify()
        return str(module)


@pytest.fixture(scope="module")
def text() -> str:
    """The program above after rewriting."""
    return rewritten(PROGRAM)


def test_copies_between_buffers_with_strides_are_loops(text: str) -> None:
    assert text.count("memref.copy") == 1 and text.count("linalg.generic") == 1
    assert re.search(r"memref.copy %arg0, %arg2", text)


def test_sums_and_products_may_be_fused_and_what_was_allowed_stays_so(text: str) -> None:
    assert re.search(r"arith.mulf .* fastmath<contract>", text)
    assert re.search(r"arith.addf .* fastmath<reassoc>", text)


def test_either_zero_may_be_the_larger_and_what_was_allowed_stays_so(text: str) -> None:
    assert re.search(r"arith.maximumf .* fastmath<nsz>", text)
    assert re.search(r"arith.minimumf .* fastmath<nnan>", text)


def test_functions_that_processors_have_stay(text: str) -> None:
    assert "math.sqrt" in text


def test_buffers_begin_where_lines_of_the_cache_do(text: str) -> None:
    aligned = re.findall(r"memref.alloc\(\) {alignment = (\d+)", text)
    assert sorted(map(int, aligned)) == [8, ALIGNMENT]


@pytest.mark.parametrize(
    ("kind", "by_element"), [("bf16", True), ("i8", True), ("f16", False)], ids=str
)
def test_elements_of_narrow_numbers_are_widened_where_only_they_are_used(
    kind: str, by_element: bool
) -> None:
    """What is used as a whole, too, stays a vector."""
    cast, wide = ("arith.extsi", "i32") if kind == "i8" else ("arith.extf", "f32")
    program = f"""
func.func @kernel(%in: memref<2x{kind}>, %out: memref<2x{wide}>) {{
  %i = arith.constant 0 : index
  %x = vector.load %in[%i] : memref<2x{kind}>, vector<2x{kind}>
  %part = {cast} %x : vector<2x{kind}> to vector<2x{wide}>
  %y = vector.extract %part[1] : {wide} from vector<2x{wide}>
  memref.store %y, %out[%i] : memref<2x{wide}>
  %whole = {cast} %x : vector<2x{kind}> to vector<2x{wide}>
  %z = vector.extract %whole[1] : {wide} from vector<2x{wide}>
  memref.store %z, %out[%i] : memref<2x{wide}>
  vector.store %whole, %out[%i] : memref<2x{wide}>, vector<2x{wide}>
  return
}}
"""
    text = rewritten(program)
    assert text.count(f"{cast} %") == 2
    assert text.count(f": {kind} to {wide}") == by_element
    assert text.count(f"vector<2x{kind}> to vector<2x{wide}>") == 2 - by_element


@pytest.mark.parametrize("kind", ["bf16", "f16", "i8"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["spread", "stored"])
def test_vectors_that_are_made_of_a_half_are_converted_in_its_place(
    kind: str, is_stored: bool
) -> None:
    cast, wide = ("arith.extsi", "i32") if kind == "i8" else ("arith.extf", "f32")
    store = f"memref.store %y, %single[%i] : memref<2x{wide}>" if is_stored else ""
    program = f"""
func.func @kernel(%in: memref<2x{kind}>, %single: memref<2x{wide}>, %out: memref<1x8x{wide}>) {{
  %i = arith.constant 0 : index
  %x = vector.load %in[%i] : memref<2x{kind}>, vector<2x{kind}>
  %part = {cast} %x : vector<2x{kind}> to vector<2x{wide}>
  %y = vector.extract %part[1] : {wide} from vector<2x{wide}>
  %many = vector.broadcast %y : {wide} to vector<1x8x{wide}>
  vector.store %many, %out[%i, %i] : memref<1x8x{wide}>, vector<1x8x{wide}>
  {store}
  return
}}
"""
    text = rewritten(program)
    of_vectors = text.count(f"vector<1x8x{kind}> to vector<1x8x{wide}>")
    of_words = text.count("vector<1x16xi16> to vector<1x8xi32>")
    of_elements = text.count(f"{cast} %") - of_vectors
    assert (of_vectors, of_words) == {
        "bf16": (0, 1),
        "f16": (int(not is_stored), 0),
        "i8": (0, 0),
    }[kind]
    assert of_elements == (kind == "i8" or is_stored)


def test_a_bfloat16_is_the_upper_half_of_each_lane() -> None:
    """All of them, not-a-number and infinities included."""
    program = """
func.func @kernel(%in: memref<65536xbf16>, %out: memref<65536x8xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %end = arith.constant 65536 : index
  scf.for %i = %zero to %end step %two {
    %x = vector.load %in[%i] : memref<65536xbf16>, vector<2xbf16>
    %wide = arith.extf %x : vector<2xbf16> to vector<2xf32>
    %next = arith.addi %i, %one : index
    %a = vector.extract %wide[0] : f32 from vector<2xf32>
    %b = vector.extract %wide[1] : f32 from vector<2xf32>
    %as = vector.broadcast %a : f32 to vector<8xf32>
    %bs = vector.broadcast %b : f32 to vector<8xf32>
    vector.store %as, %out[%i, %zero] : memref<65536x8xf32>, vector<8xf32>
    vector.store %bs, %out[%next, %zero] : memref<65536x8xf32>, vector<8xf32>
  }
  return
}
"""
    generated = code_generation.generate(compiler.lower(program, None, threads=1))
    every = aligned_copy(np.arange(1 << 16, dtype=np.uint16))
    out = aligned_empty((1 << 16, 8), np.uint32)
    pointers = np.array([it.ctypes.data for it in (every, out)], np.uint64)
    time_native_call(NativeCall(generated.address, (pointers.ctypes.data,), (every, out)), 1)
    wanted = every.astype(np.uint32) << 16
    np.testing.assert_array_equal(out, np.broadcast_to(wanted[:, None], out.shape))
