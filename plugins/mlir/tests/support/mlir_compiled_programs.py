"""Programs of linalg on tensors, as compilers of other languages write them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from mlir_programs import Program, function
from numpy.typing import NDArray

__all__ = ["COMPILED_PROGRAMS", "TORCH_SCAN"]

Array = NDArray[Any]


def _rows(kind: str, init: str, body: str) -> str:
    """A reduction of rows that keeps its dimension; its body computes %r from %x and %o."""
    return (
        "%e = tensor.empty() : tensor<4x1xf32>\n"
        f"%i = linalg.fill ins(%{init} : f32) outs(%e : tensor<4x1xf32>) -> tensor<4x1xf32>\n"
        "%0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, "
        'affine_map<(i, j) -> (i, 0)>], iterator_types = ["parallel", "reduction"]} '
        "ins(%a : tensor<4x6xf32>) outs(%i : tensor<4x1xf32>) {\n^bb0(%x: f32, %o: f32):\n"
        f"%r = {kind} {body} : f32\nlinalg.yield %r : f32\n}} -> tensor<4x1xf32>\n"
    )


def _elementwise(body: str, result: str = "f32", of: str = "f32") -> str:
    """An elementwise operation on %x of %a; its body computes %r."""
    maps = ", ".join(["affine_map<(i, j) -> (i, j)>"] * 2)
    kind = f"tensor<4x6x{result}>"
    return (
        f"%e = tensor.empty() : {kind}\n%0 = linalg.generic {{indexing_maps = [{maps}], "
        'iterator_types = ["parallel", "parallel"]} '
        f"ins(%a : tensor<4x6x{of}>) outs(%e : {kind}) {{\n"
        f"^bb0(%x: {of}, %o: {result}):\n{body}\nlinalg.yield %r : {result}\n"
        f"}} -> {kind}\nreturn %0 : {kind}"
    )


_ATTENTION = """
%zero = arith.constant 0.0 : f32
%c = tensor.collapse_shape %a [[0, 1], [2], [3]] : tensor<1x3x4x5xf32> into tensor<3x4x5xf32>
%d = tensor.collapse_shape %b [[0, 1], [2], [3]] : tensor<1x3x5x6xf32> into tensor<3x5x6xf32>
%e = tensor.empty() : tensor<3x4x6xf32>
%i = linalg.fill ins(%zero : f32) outs(%e : tensor<3x4x6xf32>) -> tensor<3x4x6xf32>
%0 = linalg.batch_matmul ins(%c, %d : tensor<3x4x5xf32>, tensor<3x5x6xf32>)
  outs(%i : tensor<3x4x6xf32>) -> tensor<3x4x6xf32>
%1 = tensor.expand_shape %0 [[0, 1], [2], [3]] output_shape [1, 3, 4, 6]
  : tensor<3x4x6xf32> into tensor<1x3x4x6xf32>
%2 = math.exp %1 : tensor<1x3x4x6xf32>
return %2 : tensor<1x3x4x6xf32>
"""

_WINDOW = """
%zero = arith.constant 0.0 : f32
%w = tensor.expand_shape %b [[0, 1]] output_shape [4, 1] : tensor<4xf32> into tensor<4x1xf32>
%e = tensor.empty() : tensor<4x6xf32>
%i = linalg.fill ins(%zero : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
%0 = linalg.generic {indexing_maps = [affine_map<(c, i, k) -> (c, i + k)>,
  affine_map<(c, i, k) -> (c, k)>, affine_map<(c, i, k) -> (c, i)>],
  iterator_types = ["parallel", "parallel", "reduction"]}
  ins(%a, %w : tensor<4x6xf32>, tensor<4x1xf32>) outs(%i : tensor<4x6xf32>) {
^bb0(%x: f32, %y: f32, %o: f32):
  %p = arith.mulf %x, %y : f32
  %r = arith.addf %o, %p : f32
  linalg.yield %r : f32
} -> tensor<4x6xf32>
return %0 : tensor<4x6xf32>
"""

_GATHER = """
%e = tensor.empty() : tensor<5x16xf32>
%four = arith.constant 4 : i64
%0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
  iterator_types = ["parallel", "parallel"]} ins(%b : tensor<5xi64>) outs(%e : tensor<5x16xf32>) {
^bb0(%n: i64, %o: f32):
  %t = arith.cmpi slt, %n, %four : i64
  cf.assert %t, "beyond the table"
  %p = arith.index_cast %n : i64 to index
  %j = linalg.index 1 : index
  %r = tensor.extract %a[%p, %j] : tensor<4x16xf32>
  linalg.yield %r : f32
} -> tensor<5x16xf32>
return %0 : tensor<5x16xf32>
"""

_DILATED = """
%zero = arith.constant 0.0 : f32
%e = tensor.empty() : tensor<8x18xf32>
%i = linalg.fill ins(%zero : f32) outs(%e : tensor<8x18xf32>) -> tensor<8x18xf32>
%0 = tensor.insert_slice %a into %i[1, 2] [4, 6] [2, 3] : tensor<4x6xf32> into tensor<8x18xf32>
%1 = arith.negf %0 : tensor<8x18xf32>
return %1 : tensor<8x18xf32>
"""

_BYTES = """
%zero = arith.constant 0 : i32
%none = arith.constant 0 : i8
%padded = tensor.pad %a low[0, 0] high[0, 2] {
^bb0(%m: index, %n: index):
  tensor.yield %none : i8
} : tensor<4x6xi8> to tensor<4x8xi8>
%e = tensor.empty() : tensor<4x5xi32>
%i = linalg.fill ins(%zero : i32) outs(%e : tensor<4x5xi32>) -> tensor<4x5xi32>
%0 = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>,
  affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
  iterator_types = ["parallel", "parallel", "reduction"]}
  ins(%padded, %b : tensor<4x8xi8>, tensor<8x5xi8>) outs(%i : tensor<4x5xi32>) {
^bb0(%x: i8, %y: i8, %o: i32):
  %u = arith.extui %x : i8 to i32
  %s = arith.extsi %y : i8 to i32
  %p = arith.muli %u, %s : i32
  %r = arith.addi %o, %p : i32
  linalg.yield %r : i32
} -> tensor<4x5xi32>
return %0 : tensor<4x5xi32>
"""


_SCAN = """
%zero = arith.constant 0.0 : f32
%e = tensor.empty() : tensor<6xf32>
%i = linalg.fill ins(%zero : f32) outs(%e : tensor<6xf32>) -> tensor<6xf32>
%all = tensor.empty() : tensor<4x6xf32>
%0:2 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
  affine_map<(i, j) -> (i, j)>], iterator_types = ["reduction", "parallel"]}
  ins(%a : tensor<4x6xf32>) outs(%i, %all : tensor<6xf32>, tensor<4x6xf32>) {
^bb0(%x: f32, %o: f32, %w: f32):
  %y = arith.mulf %x, %x : f32
  %r = arith.addf %o, %y : f32
  linalg.yield %r, %r : f32, f32
} -> (tensor<6xf32>, tensor<4x6xf32>)
%1 = arith.negf %0#1 : tensor<4x6xf32>
return %1 : tensor<4x6xf32>
"""

TORCH_SCAN = """
%one = arith.constant 1.0 : f32
%e = tensor.empty() : tensor<4x6xf32>
%s = tensor.empty() : tensor<4xf32>
%i = linalg.fill ins(%one : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
%j = linalg.fill ins(%one : f32) outs(%s : tensor<4xf32>) -> tensor<4xf32>
%0:2 = tm_tensor.scan dimension(1) inclusive(true) ins(%a : tensor<4x6xf32>)
  outs(%i, %j : tensor<4x6xf32>, tensor<4xf32>) {
^bb0(%x: f32, %o: f32):
  %r = arith.mulf %x, %o : f32
  tm_tensor.yield %r : f32
} -> tensor<4x6xf32>, tensor<4xf32>
return %0#0 : tensor<4x6xf32>
"""
"""The body of a function with an operation of torch-mlir, which other bindings do not know."""


def _rounded_erf(a: Array) -> Array:
    """In single precision, of halves, rounded to halves."""
    return np.vectorize(math.erf)(a).astype(np.float16).astype(np.float32)


def _dilated(a: Array) -> Array:
    result = np.zeros((8, 18), np.float32)
    result[1:8:2, 2:18:3] = -a
    return result


COMPILED_PROGRAMS = {
    "kept-dimension": Program(
        function(
            "%lowest = arith.constant 0xFF800000 : f32\n"
            + _rows("arith.maximumf", "lowest", "%x, %o")
            + "%e1 = tensor.empty() : tensor<4x6xf32>\n"
            "%1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, "
            "affine_map<(i, j) -> (i, 0)>, affine_map<(i, j) -> (i, j)>], "
            'iterator_types = ["parallel", "parallel"]} '
            "ins(%a, %0 : tensor<4x6xf32>, tensor<4x1xf32>) outs(%e1 : tensor<4x6xf32>) {\n"
            "^bb0(%x: f32, %m: f32, %o: f32):\n%r = arith.subf %x, %m : f32\n"
            "linalg.yield %r : f32\n} -> tensor<4x6xf32>\nreturn %1 : tensor<4x6xf32>"
        ),
        ["max", "sub"],
        lambda a: a - a.max(axis=1, keepdims=True),
    ),
    "units": Program(
        function(
            _ATTENTION,
            "%a: tensor<1x3x4x5xf32>, %b: tensor<1x3x5x6xf32>",
            "tensor<1x3x4x6xf32>",
        ),
        ["batch_matmul", "exp"],
        lambda a, b: np.exp(a @ b),
    ),
    "window-of-one": Program(
        function(_WINDOW, "%a: tensor<4x6xf32>, %b: tensor<4xf32>"),
        ["sum"],
        lambda a, b: a * b[:, None],
    ),
    "asserted": Program(
        function(_GATHER, "%a: tensor<4x16xf32>, %b: tensor<5xi64>", "tensor<5x16xf32>"),
        ["extract"],
        lambda a, b: a[b],
    ),
    "inserted-with-strides": Program(
        function(_DILATED, result="tensor<8x18xf32>"), ["insert", "neg"], _dilated
    ),
    "power": Program(
        function(
            _elementwise(
                "%n = arith.constant 3 : i32\n%m = arith.constant -2 : i64\n"
                "%c = math.fpowi %x, %n : f32, i32\n%d = math.fpowi %x, %m : f32, i64\n"
                "%r = arith.addf %c, %d : f32"
            )
        ),
        ["add"],
        lambda a: a**3 + a**-2.0,
    ),
    "log1p": Program(
        function(
            _elementwise(
                "%s = arith.mulf %x, %x : f32\n%n = arith.constant 1.0e-9 : f32\n"
                "%t = arith.mulf %s, %n : f32\n%l = math.log1p %t : f32\n"
                "%m = arith.constant 1.0e9 : f32\n%r = arith.mulf %l, %m : f32"
            )
        ),
        ["mul"],
        lambda a: np.log1p(a.astype(np.float64) ** 2 * 1e-9).astype(np.float32) * np.float32(1e9),
    ),
    "halves": Program(
        function(
            _elementwise("%f = math.erf %x : f16\n%r = math.log1p %f : f16", "f16", of="f16"),
            "%a: tensor<4x6xf16>",
            "tensor<4x6xf16>",
        ),
        ["log1p"],
        lambda a: np.log1p(_rounded_erf(a.astype(np.float32))).astype(np.float16),
    ),
    "remainder": Program(
        function(
            _elementwise(
                "%n = arith.constant 5 : i32\n%r = arith.remsi %x, %n : i32", "i32", of="i32"
            ),
            "%a: tensor<4x6xi32>",
            "tensor<4x6xi32>",
        ),
        ["remsi"],
        lambda a: np.fmod(a, 5),
    ),
    "bytes-with-and-without-sign": Program(
        function(
            _elementwise(
                "%s = arith.extsi %x : i8 to i32\n%u = arith.extui %x : i8 to i32\n"
                "%c = arith.addi %s, %u : i32\n%t = arith.trunci %c : i32 to i8\n"
                "%r = arith.uitofp %t : i8 to f32",
                of="i8",
            ),
            "%a: tensor<4x6xi8>",
        ),
        ["uitofp"],
        lambda a: ((2 * a.astype(np.int32) + 256 * (a < 0)) % 256).astype(np.float32),
    ),
    "scan": Program(function(_SCAN), ["scan", "neg"], lambda a: -np.cumsum(a * a, axis=0)),
    "unsigned-bytes": Program(
        function(_BYTES, "%a: tensor<4x6xi8>, %b: tensor<8x5xi8>", "tensor<4x5xi32>"),
        ["pad", "sum"],
        lambda a, b: a.astype(np.int32) @ b[:6].astype(np.int32),
    ),
}
"""Programs by name."""
