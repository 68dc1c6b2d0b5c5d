"""Modules for the tests of whole modules."""

from __future__ import annotations

from pathlib import Path

__all__ = ["LAYERS", "MASKED", "MIXED", "product", "written"]


def product(name: str, visibility: str = "private", m: int = 32, n: int = 48, k: int = 16) -> str:
    """A function that multiplies a matrix of m x k by one of k x n; "public" is MLIR's default."""
    left, right, result = f"tensor<{m}x{k}xf32>", f"tensor<{k}x{n}xf32>", f"tensor<{m}x{n}xf32>"
    return f"""
func.func {visibility} @{name}(%a: {left}, %b: {right}) -> {result} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {result}
  %start = linalg.fill ins(%zero : f32) outs(%empty : {result}) -> {result}
  %c = linalg.matmul ins(%a, %b : {left}, {right}) outs(%start : {result}) -> {result}
  return %c : {result}
}}
"""


SOFTMAX = """
func.func private @normalized(%a: tensor<32x48xf32>) -> tensor<32x48xf32> {
  %empty = tensor.empty() : tensor<32x48xf32>
  %c = linalg.softmax dimension(1) ins(%a : tensor<32x48xf32>)
    outs(%empty : tensor<32x48xf32>) -> tensor<32x48xf32>
  return %c : tensor<32x48xf32>
}
"""

# Into an argument: what is scheduled has a sum of its own, which this does not have.
ADDED = """
#both = affine_map<(d0, d1) -> (d0, d1)>
func.func private @added(%a: tensor<32x48xf32>, %b: tensor<48x16xf32>, %c: tensor<32x16xf32>)
    -> tensor<32x16xf32> {
  %d = linalg.matmul ins(%a, %b : tensor<32x48xf32>, tensor<48x16xf32>)
    outs(%c : tensor<32x16xf32>) -> tensor<32x16xf32>
  %empty = tensor.empty() : tensor<32x16xf32>
  %e = linalg.generic {indexing_maps = [#both, #both], iterator_types = ["parallel", "parallel"]}
    ins(%d : tensor<32x16xf32>) outs(%empty : tensor<32x16xf32>) {
  ^bb0(%x: f32, %y: f32):
    %zero = arith.constant 0.0 : f32
    %m = arith.maximumf %x, %zero : f32
    linalg.yield %m : f32
  } -> tensor<32x16xf32>
  return %e : tensor<32x16xf32>
}
"""

FLAT = """
func.func private @flat(%a: tensor<32x48xf32>) -> tensor<1536xf32> {
  %shape = arith.constant dense<1536> : tensor<1xi64>
  %0 = tensor.reshape %a(%shape) : (tensor<32x48xf32>, tensor<1xi64>) -> tensor<1536xf32>
  return %0 : tensor<1536xf32>
}
"""

OTHERS = """
func.func @dynamic(%a: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %0 = linalg.exp ins(%a : tensor<?x16xf32>) outs(%a : tensor<?x16xf32>) -> tensor<?x16xf32>
  return %0 : tensor<?x16xf32>
}
func.func @buffers(%a: memref<4xf32>) {
  return
}
func.func private @elsewhere(tensor<4xf32>) -> tensor<4xf32>
"""

MAIN = """
func.func @main(%a: tensor<32x16xf32>, %b: tensor<16x48xf32>, %w: tensor<48x16xf32>)
    -> (tensor<1536xf32>, tensor<32x16xf32>) {
  %0 = call @first(%a, %b) : (tensor<32x16xf32>, tensor<16x48xf32>) -> tensor<32x48xf32>
  %1 = call @normalized(%0) : (tensor<32x48xf32>) -> tensor<32x48xf32>
  %2 = call @added(%1, %w, %a)
    : (tensor<32x48xf32>, tensor<48x16xf32>, tensor<32x16xf32>) -> tensor<32x16xf32>
  %3 = call @first(%2, %b) : (tensor<32x16xf32>, tensor<16x48xf32>) -> tensor<32x48xf32>
  %4 = call @again(%2, %b) : (tensor<32x16xf32>, tensor<16x48xf32>) -> tensor<32x48xf32>
  %5 = arith.addf %3, %4 : tensor<32x48xf32>
  %6 = call @flat(%5) : (tensor<32x48xf32>) -> tensor<1536xf32>
  return %6, %2 : tensor<1536xf32>, tensor<32x16xf32>
}
"""

MIXED = "".join(
    [
        product("first"),
        SOFTMAX,
        ADDED,
        FLAT,
        OTHERS,
        product("again"),
        MAIN,
    ]
)
"""Two equal functions, some that can be tuned, some that cannot, and what calls them."""

LAYERS = f"""
{product("product")}{SOFTMAX}
func.func @main(%a: tensor<32x16xf32>, %b: tensor<16x48xf32>) -> tensor<32x48xf32> {{
  %0 = call @product(%a, %b) : (tensor<32x16xf32>, tensor<16x48xf32>) -> tensor<32x48xf32>
  %1 = call @normalized(%0) : (tensor<32x48xf32>) -> tensor<32x48xf32>
  return %1 : tensor<32x48xf32>
}}
"""
"""Two functions that can be tuned."""


MASKED = """
#left = affine_map<(i, j, k) -> (i, k)>
#right = affine_map<(i, j, k) -> (j, k)>
#result = affine_map<(i, j, k) -> (i, j)>
func.func private @rows(%a: tensor<32x64xf32>, %b: tensor<48x64xf32>) -> tensor<32x48xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<32x48xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<32x48xf32>) -> tensor<32x48xf32>
  %c = linalg.generic {indexing_maps = [#left, #right, #result],
    iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%a, %b : tensor<32x64xf32>, tensor<48x64xf32>) outs(%start : tensor<32x48xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %z, %p : f32
    linalg.yield %s : f32
  } -> tensor<32x48xf32>
  return %c : tensor<32x48xf32>
}
func.func private @masked(%c: tensor<32x48xf32>, %m: tensor<32x48xi1>) -> tensor<32x48xf32> {
  %low = arith.constant dense<-1.0e+30> : tensor<32x48xf32>
  %d = arith.select %m, %c, %low : tensor<32x48xi1>, tensor<32x48xf32>
  return %d : tensor<32x48xf32>
}
func.func @main(%a: tensor<32x64xf32>, %b: tensor<48x64xf32>, %m: tensor<32x48xi1>)
    -> tensor<32x48xf32> {
  %0 = call @rows(%a, %b) : (tensor<32x64xf32>, tensor<48x64xf32>) -> tensor<32x48xf32>
  %1 = call @masked(%0, %m) : (tensor<32x48xf32>, tensor<32x48xi1>) -> tensor<32x48xf32>
  return %1 : tensor<32x48xf32>
}
"""
"""A product with a matrix that is read by rows, and a mask of truth values."""


def written(folder: Path, text: str, name: str = "model.mlir") -> Path:
    """A file with a module."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
