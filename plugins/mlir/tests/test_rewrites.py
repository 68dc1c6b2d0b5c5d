"""What is rewritten between buffers and loops."""

from __future__ import annotations

import re
from typing import Any

import pytest
from autotune_mlir import bindings, compiler
from autotune_mlir.rewrites import rewrite

from autotune.backends import ALIGNMENT

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
    module: Any = compiler.parse_payload(program)
    ir = bindings.load().ir
    with module.context, ir.Location.unknown():
        rewrite(ir, module)
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
