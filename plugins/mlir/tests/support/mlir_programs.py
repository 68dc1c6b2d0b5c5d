"""Programs of linalg on tensors, as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["PROGRAMS", "Program", "function"]

Array = NDArray[Any]


@frozen
class Program:
    """A program with one function, called ``f``.

    Attributes:
        text: The text.
        stages: Names of the stages that it becomes.
        expected: The result, from the arguments, where numpy has a word for it.
    """

    text: str
    stages: list[str]
    expected: Callable[..., Array] | None = None


def function(
    body: str, arguments: str = "%a: tensor<4x6xf32>", result: str = "tensor<4x6xf32>"
) -> str:
    """A function called ``f``; its body begins in the third line."""
    return f"func.func @f({arguments})\n  -> ({result}) {{\n{body}\n}}\n"


_FILLED = """
%zero = arith.constant 0.0 : f32
%empty = tensor.empty() : {0}
%init = linalg.fill ins(%zero : f32) outs(%empty : {0}) -> {0}
"""
_PAIR = "ins(%a, %b : tensor<4x8xf32>, tensor<8x6xf32>)"
_OPERANDS = "%a: tensor<4x8xf32>, %b: tensor<8x6xf32>"
_OUT = "outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>"


def _maps(*maps: str) -> str:
    return "indexing_maps = [" + ", ".join(f"affine_map<{item}>" for item in maps) + "]"


def _iterators(kinds: str) -> str:
    names = {"p": '"parallel"', "r": '"reduction"'}
    return "iterator_types = [" + ", ".join(names[kind] for kind in kinds) + "]"


def _reduction(maps: str, kinds: str, body: str, operands: str, init: str, kind: str) -> str:
    """A generic over operands of f32; its body computes %r from %x, %y and %o."""
    count = operands.count("%")
    names = ", ".join(f"{name}: f32" for name in ("%x", "%y")[:count])
    return (
        f"linalg.generic {{{maps}, {_iterators(kinds)}}} ins({operands}) "
        f"outs({init} : {kind}) {{\n^bb0({names}, %o: f32):\n{body}\nlinalg.yield %r : f32\n"
        f"}} -> {kind}\n"
    )


_CHAIN = f"""
%e = tensor.empty() : tensor<4x6xf32>
%two = arith.constant dense<2.0> : tensor<4x6xf32>
%0 = linalg.mul ins(%a, %two : tensor<4x6xf32>, tensor<4x6xf32>) {_OUT}
%1 = linalg.add ins(%0, %a : tensor<4x6xf32>, tensor<4x6xf32>) {_OUT}
%2 = linalg.div ins(%1, %two : tensor<4x6xf32>, tensor<4x6xf32>) {_OUT}
%3 = linalg.max ins(%2, %a : tensor<4x6xf32>, tensor<4x6xf32>) {_OUT}
%4 = linalg.exp ins(%3 : tensor<4x6xf32>) {_OUT}
%5 = arith.subf %4, %b : tensor<4x6xf32>
return %5 : tensor<4x6xf32>
"""

_CONVOLUTION = """
%zero = arith.constant 0.0 : f32
%p = tensor.pad %x low[0, 1, 2, 0] high[0, 1, 0, 0] {
^bb0(%i: index, %j: index, %k: index, %l: index):
  tensor.yield %zero : f32
} : tensor<1x8x9x4xf32> to tensor<1x10x11x4xf32>
%e = tensor.empty() : tensor<1x4x5x8xf32>
%init = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x5x8xf32>) -> tensor<1x4x5x8xf32>
%0 = linalg.conv_2d_nhwc_hwcf {strides = dense<2> : tensor<2xi64>}
  ins(%p, %w : tensor<1x10x11x4xf32>, tensor<3x3x4x8xf32>)
  outs(%init : tensor<1x4x5x8xf32>) -> tensor<1x4x5x8xf32>
return %0 : tensor<1x4x5x8xf32>
"""


def _convolution(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (1, 1), (2, 0), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("nhwcyx,yxcf->nhwf", windows[:, ::2, ::2], w)


def _window(name: str, operands: str, types: list[str], before: str = "") -> str:
    """A named operation on a window, with its init filled by zero."""
    *inputs, output = types
    return (
        before
        + _FILLED.format(output)
        + f"%0 = linalg.{name} ins({operands} : {', '.join(inputs)}) "
        f"outs(%init : {output}) -> {output}\nreturn %0 : {output}"
    )


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _matmul(init: str, more: str = "", name: str = "matmul") -> str:
    return (
        f"%0 = linalg.{name} {_PAIR} outs({init} : tensor<4x6xf32>) -> tensor<4x6xf32>\n"
        f"{more}return %0 : tensor<4x6xf32>"
    )


PROGRAMS = {
    "matmul": Program(
        function(_FILLED.format("tensor<4x6xf32>") + _matmul("%init"), _OPERANDS),
        ["matmul"],
        np.matmul,
    ),
    "accumulate": Program(
        function(_matmul("%c"), _OPERANDS + ", %c: tensor<4x6xf32>"),
        ["matmul", "matmul_accumulated"],
        lambda a, b, c: c + a @ b,
    ),
    "accumulate-constant": Program(
        function("%c = arith.constant dense<3.0> : tensor<4x6xf32>\n" + _matmul("%c"), _OPERANDS),
        ["matmul", "matmul_accumulated"],
        lambda a, b: 3 + a @ b,
    ),
    "matmul-int8": Program(
        function(
            "%c = arith.constant dense<0> : tensor<4x6xi32>\n"
            "%0 = linalg.matmul ins(%a, %b : tensor<4x8xi8>, tensor<8x6xi8>) "
            "outs(%c : tensor<4x6xi32>) -> tensor<4x6xi32>\nreturn %0 : tensor<4x6xi32>",
            "%a: tensor<4x8xi8>, %b: tensor<8x6xi8>",
            "tensor<4x6xi32>",
        ),
        ["matmul"],
        lambda a, b: a.astype(np.int32) @ b.astype(np.int32),
    ),
    "conv-padded": Program(
        function(
            _CONVOLUTION,
            "%x: tensor<1x8x9x4xf32>, %w: tensor<3x3x4x8xf32>",
            "tensor<1x4x5x8xf32>",
        ),
        ["pad", "conv_2d_nhwc_hwcf"],
        _convolution,
    ),
    "pooling-sum": Program(
        function(
            _window(
                "pooling_nhwc_sum",
                "%x, %win",
                ["tensor<1x6x6x4xf32>", "tensor<3x2xf32>", "tensor<1x4x5x4xf32>"],
                "%win = tensor.empty() : tensor<3x2xf32>",
            ),
            "%x: tensor<1x6x6x4xf32>",
            "tensor<1x4x5x4xf32>",
        ),
        ["pooling_nhwc_sum"],
        lambda x: np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(1, 2)).sum((-1, -2)),
    ),
    "pooling-max": Program(
        # Its init is not the identity of max: a stage of its own compares with it.
        function(
            _window(
                "pooling_nhwc_max",
                "%x, %win",
                ["tensor<1x6x6x4xf32>", "tensor<3x3xf32>", "tensor<1x4x4x4xf32>"],
                "%win = arith.constant dense<1.0> : tensor<3x3xf32>",
            ),
            "%x: tensor<1x6x6x4xf32>",
            "tensor<1x4x4x4xf32>",
        ),
        ["pooling_nhwc_max", "pooling_nhwc_max_accumulated"],
        lambda x: (
            np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2)).max((-1, -2)).clip(0)
        ),
    ),
    "chain": Program(
        function(_CHAIN, "%a: tensor<4x6xf32>, %b: tensor<4x6xf32>"),
        ["mul", "add", "div", "max", "exp", "sub"],
        lambda a, b: np.exp(np.maximum((a * 2 + a) / 2, a)) - b,
    ),
    "softmax": Program(
        function(
            "%e = tensor.empty() : tensor<4x6xf32>\n"
            f"%0 = linalg.softmax dimension(1) ins(%a : tensor<4x6xf32>) {_OUT}\n"
            "return %0 : tensor<4x6xf32>"
        ),
        ["max", "exp", "sum", "div"],
        _softmax,
    ),
    "rows": Program(
        function(
            _FILLED.format("tensor<6xf32>")
            + "%t = tensor.empty() : tensor<6x4xf32>\n%e = tensor.empty() : tensor<4x6xf32>\n"
            "%0 = linalg.transpose ins(%a : tensor<4x6xf32>) outs(%t : tensor<6x4xf32>) "
            "permutation = [1, 0]\n"
            "%1 = linalg.reduce { arith.addf } ins(%0 : tensor<6x4xf32>) "
            "outs(%init : tensor<6xf32>) dimensions = [1]\n"
            "%2 = linalg.broadcast ins(%1 : tensor<6xf32>) outs(%e : tensor<4x6xf32>) "
            "dimensions = [0]\n"
            "%3 = linalg.map { arith.mulf } ins(%a, %2 : tensor<4x6xf32>, tensor<4x6xf32>) "
            "outs(%e : tensor<4x6xf32>)\nreturn %3 : tensor<4x6xf32>"
        ),
        ["transpose", "reduce", "broadcast", "map"],
        lambda a: a * a.sum(axis=0),
    ),
    "iterators-in-another-order": Program(
        function(
            _FILLED.format("tensor<6x4xf32>")
            + "%0 = "
            + _reduction(
                _maps("(k, i, j) -> (i, k)", "(k, i, j) -> (k, j)", "(k, i, j) -> (j, i)"),
                "rpp",
                "%r = math.fma %x, %y, %o : f32",
                "%a, %b : tensor<4x8xf32>, tensor<8x6xf32>",
                "%init",
                "tensor<6x4xf32>",
            )
            + "return %0 : tensor<6x4xf32>",
            _OPERANDS,
            "tensor<6x4xf32>",
        ),
        ["sum"],
        lambda a, b: (a @ b).T,
    ),
    "whole": Program(
        function(
            _FILLED.format("tensor<f32>")
            + "%0 = "
            + _reduction(
                _maps("(i, j) -> (i, j)", "(i, j) -> ()"),
                "rr",
                "%s = arith.mulf %x, %x : f32\n%r = arith.addf %s, %o : f32",
                "%a : tensor<4x6xf32>",
                "%init",
                "tensor<f32>",
            )
            + "return %0 : tensor<f32>",
            result="tensor<f32>",
        ),
        ["sum"],
        lambda a: (a * a).sum(),
    ),
    "positions": Program(
        # The upper triangle, shifted by one column; a read outside is never made.
        function(
            "%zero = arith.constant 0.0 : f32\n%e = tensor.empty() : tensor<4x5xf32>\n"
            f"%0 = linalg.generic {{{_maps('(i, j) -> (i, j)')}, {_iterators('pp')}}} "
            "outs(%e : tensor<4x5xf32>) {\n^bb0(%o: f32):\n%one = arith.constant 1 : index\n"
            "%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n"
            "%next = arith.addi %j, %one : index\n"
            "%v = tensor.extract %a[%i, %next] : tensor<4x6xf32>\n"
            "%upper = arith.cmpi sle, %i, %j : index\n"
            "%r = arith.select %upper, %v, %zero : f32\nlinalg.yield %r : f32\n"
            "} -> tensor<4x5xf32>\nreturn %0 : tensor<4x5xf32>",
            result="tensor<4x5xf32>",
        ),
        ["select"],
        lambda a: np.triu(a[:, 1:]),
    ),
    "part": Program(
        function(
            "%s = tensor.extract_slice %a[1, 0] [3, 3] [1, 2] : tensor<4x6xf32> to "
            "tensor<3x3xf32>\n%0 = arith.negf %s : tensor<3x3xf32>\n"
            "return %0 : tensor<3x3xf32>",
            result="tensor<3x3xf32>",
        ),
        ["neg"],
        lambda a: -a[1:, ::2],
    ),
    "merged-dimensions": Program(
        function(
            "%e = tensor.empty() : tensor<4x2x8xf32>\n"
            "%t = linalg.transpose ins(%a : tensor<2x4x8xf32>) outs(%e : tensor<4x2x8xf32>) "
            "permutation = [1, 0, 2]\n"
            "%0 = tensor.collapse_shape %t [[0], [1, 2]] : tensor<4x2x8xf32> into "
            "tensor<4x16xf32>\nreturn %0 : tensor<4x16xf32>",
            "%a: tensor<2x4x8xf32>",
            "tensor<4x16xf32>",
        ),
        ["transpose", "reshape"],
        lambda a: a.transpose(1, 0, 2).reshape(4, 16),
    ),
    "split-dimensions": Program(
        function(
            "%s = tensor.expand_shape %a [[0, 1], [2, 3]] output_shape [1, 4, 3, 2] : "
            "tensor<4x6xf32> into tensor<1x4x3x2xf32>\n"
            "%0 = arith.negf %s : tensor<1x4x3x2xf32>\nreturn %0 : tensor<1x4x3x2xf32>",
            result="tensor<1x4x3x2xf32>",
        ),
        ["reshape", "neg"],
        lambda a: -a.reshape(1, 4, 3, 2),
    ),
    "one-number": Program(
        function(
            "%c = tensor.collapse_shape %a [] : tensor<1x1xf32> into tensor<f32>\n"
            "%0 = math.exp %c : tensor<f32>\nreturn %0 : tensor<f32>",
            "%a: tensor<1x1xf32>",
            "tensor<f32>",
        ),
        ["exp"],
        lambda a: np.exp(a[0, 0]),
    ),
    "constant-result": Program(
        function(
            "%e = tensor.empty() : tensor<4x6xf32>\n%two = arith.constant 2.0 : f32\n"
            "%0 = linalg.fill ins(%two : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>\n"
            "return %0 : tensor<4x6xf32>"
        ),
        ["constant"],
        lambda a: np.full_like(a, 2),
    ),
    "two-results": Program(
        function(
            "%0 = arith.addf %a, %a : tensor<4x6xf32>\n%1 = math.exp %0 : tensor<4x6xf32>\n"
            "return %1, %0 : tensor<4x6xf32>, tensor<4x6xf32>",
            result="tensor<4x6xf32>, tensor<4x6xf32>",
        ),
        ["add", "exp"],
    ),
    "called": Program(
        "func.func private @helper(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {\n"
        "%0 = math.tanh %x : tensor<4x6xf32>\nreturn %0 : tensor<4x6xf32>\n}\n"
        + function(
            "%0 = call @helper(%a) : (tensor<4x6xf32>) -> tensor<4x6xf32>\n"
            "%1 = call @helper(%0) : (tensor<4x6xf32>) -> tensor<4x6xf32>\n"
            "return %1 : tensor<4x6xf32>"
        ),
        ["tanh", "tanh_1"],
        lambda a: np.tanh(np.tanh(a)),
    ),
    "types": Program(
        function(
            "%e = tensor.empty() : tensor<4x6xi32>\n%0 = linalg.generic {"
            + _maps("(i, j) -> (i, j)", "(i, j) -> (j)", "(i, j) -> (i, j)")
            + f", {_iterators('pp')}}} ins(%a, %b : tensor<4x6xf32>, tensor<6xi8>) "
            "outs(%e : tensor<4x6xi32>) {\n^bb0(%x: f32, %y: i8, %o: i32):\n"
            "%zero = arith.constant 0.0 : f32\n%scale = arith.constant 16.0 : f32\n"
            "%s = arith.mulf %x, %scale : f32\n%n = arith.fptosi %s : f32 to i32\n"
            "%w = arith.extsi %y : i8 to i32\n%c = arith.cmpf ogt, %x, %zero : f32\n"
            "%t = arith.extui %c : i1 to i32\n%p = arith.muli %n, %w : i32\n"
            "%r = arith.addi %p, %t : i32\nlinalg.yield %r : i32\n"
            "} -> tensor<4x6xi32>\nreturn %0 : tensor<4x6xi32>",
            "%a: tensor<4x6xf32>, %b: tensor<6xi8>",
            "tensor<4x6xi32>",
        ),
        ["add"],
        lambda a, b: (a * 16).astype(np.int32) * b.astype(np.int32) + (a > 0),
    ),
}
"""Programs by name."""
