"""Programs with truth values, numbers as arguments, and tensors that are put together."""

from __future__ import annotations

from typing import Any

import numpy as np
from mlir_programs import Program, function
from numpy.typing import NDArray

__all__ = ["ASSEMBLED"]

Array = NDArray[Any]

_A, _B = "%a: tensor<4x6xf32>", "%b: tensor<4x6xf32>"
_M = "%m: tensor<4x6xi1>"
_EMPTY = "%e = tensor.empty() : tensor<4x6xf32>\n"
_POINTWISE = (
    "{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], "
    'iterator_types = ["parallel", "parallel"]}'
)


def _reduced(operation: str, start: str) -> str:
    """A function that combines each row of truth values."""
    return function(
        f"%f = arith.constant {start}\n%e = tensor.empty() : tensor<4xi1>\n"
        "%i = linalg.fill ins(%f : i1) outs(%e : tensor<4xi1>) -> tensor<4xi1>\n"
        "%0 = linalg.reduce ins(%m : tensor<4x6xi1>) outs(%i : tensor<4xi1>) dimensions = [1]\n"
        f"(%x: i1, %o: i1) {{\n%r = {operation} %x, %o : i1\nlinalg.yield %r : i1\n}}\n"
        "return %0 : tensor<4xi1>",
        _M,
        "tensor<4xi1>",
    )


# Row i of a causal attention sees what is before position i + n.
_CAUSAL = function(
    _EMPTY + "%low = arith.constant -1.0e+30 : f32\n%one = arith.constant 1.0 : f32\n"
    "%inverse = arith.divf %one, %x : f32\n"
    f"%0 = linalg.generic {_POINTWISE} ins(%a : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {{\n"
    "^bb0(%v: f32, %o: f32):\n%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n"
    "%k = arith.addi %i, %n : index\n%c = arith.cmpi sle, %j, %k : index\n"
    "%w = arith.mulf %v, %inverse : f32\n%r = arith.select %c, %w, %low : f32\n"
    "linalg.yield %r : f32\n} -> tensor<4x6xf32>\nreturn %0 : tensor<4x6xf32>",
    f"{_A}, %x: f32, %n: index",
)


def _filled(name: str, kind: str) -> str:
    return (
        f"%{name}e = tensor.empty() : {kind}\n"
        f"%{name} = linalg.fill ins(%zero : f32) outs(%{name}e : {kind}) -> {kind}\n"
    )


_SCORES, _RESULT = "tensor<5x7xf32>", "tensor<5x4xf32>"
# Of queries 5x4, keys 4x7, values 7x4, and a mask.
_ATTENTION = function(
    "%zero = arith.constant 0.0 : f32\n%low = arith.constant dense<-1.0e+30> : tensor<5x7xf32>\n"
    + _filled("s", _SCORES)
    + f"%0 = linalg.matmul ins(%q, %k : tensor<5x4xf32>, tensor<4x7xf32>) outs(%s : {_SCORES}) "
    f"-> {_SCORES}\n%1 = arith.select %m, %0, %low : tensor<5x7xi1>, {_SCORES}\n"
    f"%pe = tensor.empty() : {_SCORES}\n%2 = linalg.softmax dimension(1) ins(%1 : {_SCORES}) "
    f"outs(%pe : {_SCORES}) -> {_SCORES}\n"
    + _filled("r", _RESULT)
    + f"%3 = linalg.matmul ins(%2, %v : {_SCORES}, tensor<7x4xf32>) outs(%r : {_RESULT}) "
    f"-> {_RESULT}\nreturn %3 : {_RESULT}",
    "%q: tensor<5x4xf32>, %k: tensor<4x7xf32>, %v: tensor<7x4xf32>, %m: tensor<5x7xi1>",
    _RESULT,
)


def _attention(q: Array, k: Array, v: Array, m: Array) -> Array:
    scores = np.where(m, q @ k, np.float32(-1e30))
    powers = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True) @ v)


def _inserted_at(a: Array, c: Array, n: Array) -> Array:
    result = a.copy()
    if 0 <= n < len(a):
        result[n, 2:5] = c
    return result


ASSEMBLED = {
    "masked": Program(
        function(
            "%0 = arith.select %m, %a, %b : tensor<4x6xi1>, tensor<4x6xf32>\n"
            "return %0 : tensor<4x6xf32>",
            f"{_M}, {_A}, {_B}",
        ),
        ["select"],
        lambda m, a, b: np.where(m, a, b),
    ),
    "masked-attention": Program(
        _ATTENTION,
        ["matmul", "select", "max", "exp", "sum", "div", "matmul_1"],
        _attention,
    ),
    "truth-result": Program(
        function(
            "%0 = arith.cmpf ogt, %a, %b : tensor<4x6xf32>\n"
            "%1 = arith.andi %0, %m : tensor<4x6xi1>\nreturn %1 : tensor<4x6xi1>",
            f"{_M}, {_A}, {_B}",
            "tensor<4x6xi1>",
        ),
        ["cmpf", "andi"],
        lambda m, a, b: (a > b) & m,
    ),
    "truth-padded": Program(
        function(
            "%t = arith.constant true\n%0 = tensor.pad %m low[0, 1] high[0, 0] {\n"
            "^bb0(%i: index, %j: index):\ntensor.yield %t : i1\n"
            "} : tensor<4x6xi1> to tensor<4x7xi1>\nreturn %0 : tensor<4x7xi1>",
            _M,
            "tensor<4x7xi1>",
        ),
        ["pad"],
        lambda m: np.pad(m, ((0, 0), (1, 0)), constant_values=True),
    ),
    "any": Program(_reduced("arith.ori", "false"), ["reduce"], lambda m: m.any(axis=1)),
    "all": Program(_reduced("arith.andi", "true"), ["reduce"], lambda m: m.all(axis=1)),
    "number": Program(
        function(
            "%s = tensor.splat %x : tensor<4x6xf32>\n%0 = arith.mulf %a, %s : tensor<4x6xf32>\n"
            "return %0 : tensor<4x6xf32>",
            f"{_A}, %x: f32",
        ),
        ["splat", "mul"],
        lambda a, x: a * x,
    ),
    "number-as-init": Program(
        function(
            "%e = tensor.empty() : tensor<4xf32>\n"
            "%i = linalg.fill ins(%x : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>\n"
            "%0 = linalg.reduce { arith.addf } ins(%a : tensor<4x6xf32>) outs(%i : tensor<4xf32>) "
            "dimensions = [1]\nreturn %0 : tensor<4xf32>",
            f"{_A}, %x: f32",
            "tensor<4xf32>",
        ),
        ["fill", "reduce", "reduce_accumulated"],
        lambda a, x: a.sum(axis=1) + x,
    ),
    "causal": Program(
        _CAUSAL,
        ["select"],
        lambda a, x, n: np.where(
            np.arange(6) <= np.arange(4)[:, None] + n, a / x, np.float32(-1e30)
        ),
    ),
    "stacked": Program(
        function(
            "%e = tensor.empty() : tensor<2x4x6xf32>\n"
            "%0 = tensor.insert_slice %a into %e[1, 0, 0] [1, 4, 6] [1, 1, 1] "
            ": tensor<4x6xf32> into tensor<2x4x6xf32>\n"
            "%1 = tensor.insert_slice %b into %0[0, 0, 0] [1, 4, 6] [1, 1, 1] "
            ": tensor<4x6xf32> into tensor<2x4x6xf32>\nreturn %1 : tensor<2x4x6xf32>",
            f"{_A}, {_B}",
            "tensor<2x4x6xf32>",
        ),
        ["concat"],
        lambda a, b: np.stack([b, a]),
    ),
    "inserted": Program(
        function(
            "%0 = tensor.insert_slice %c into %a[1, 2] [1, 3] [1, 1] "
            ": tensor<3xf32> into tensor<4x6xf32>\nreturn %0 : tensor<4x6xf32>",
            f"{_A}, %c: tensor<3xf32>",
        ),
        ["insert"],
        lambda a, c: np.vstack([a[:1], np.concatenate([a[1, :2], c, a[1, 5:]]), a[2:]]),
    ),
    "inserted-at-a-number": Program(
        function(
            "%0 = tensor.insert_slice %c into %a[%n, 2] [1, 3] [1, 1] "
            ": tensor<3xf32> into tensor<4x6xf32>\nreturn %0 : tensor<4x6xf32>",
            f"{_A}, %c: tensor<3xf32>, %n: index",
        ),
        ["insert"],
        _inserted_at,
    ),
    "part-at-a-number": Program(
        function(
            "%0 = tensor.extract_slice %a[%n, 1] [1, 3] [1, 2] "
            ": tensor<4x6xf32> to tensor<3xf32>\nreturn %0 : tensor<3xf32>",
            f"{_A}, %n: index",
            "tensor<3xf32>",
        ),
        ["slice"],
        lambda a, n: a[n, 1::2],
    ),
    "returned-as-they-are": Program(
        function(
            "%0 = tensor.extract_slice %a[1, 0] [1, 6] [1, 1] : tensor<4x6xf32> to tensor<6xf32>\n"
            "%1 = arith.negf %0 : tensor<6xf32>\nreturn %1, %0, %1, %a "
            ": tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<4x6xf32>",
            _A,
            "tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<4x6xf32>",
        ),
        ["neg", "copy", "copy_1", "copy_2"],
    ),
}
"""Programs by name."""
