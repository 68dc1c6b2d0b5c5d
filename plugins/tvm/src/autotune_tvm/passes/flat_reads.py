"""Copies into shared memory that read at the digits of one number: they read at the number.

The weights of a convolution as a matrix are read at ``W[row, k // 9, k % 9 // 3, k % 3]``, the
``k``-th element of the row. Where a block fetches a part of ``k`` that has a divisor in common
with the nine, such as 96, TVM divides by that first and does not find the number again: vectors
become single elements, and eight of them at 32-bit places no CUDA at all. Read at
``W[row, 0, 0, k]``, the same place in a row-major buffer, there is nothing to find.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx
from tvm.ir import IRModule, TensorLoad
from tvm.s_tir import SBlock
from tvm.sym import Analyzer
from tvm_ffi import structural_map

from autotune_tvm.passes.statements import replaced, with_bodies, with_fields

__all__ = ["flat_reads"]


def flat_reads(module: IRModule) -> IRModule:
    """The module with such reads changed; runs after the schedule, regions stay as they are."""
    return with_bodies(module, lambda body: replaced(body, _changed))


def _changed(node: Any) -> Any:
    if not isinstance(node, SBlock) or not isinstance(node.body, tirx.BufferStore):
        return None
    if not str(node.body.buffer.scope()).startswith("shared"):
        return None
    analyzer = Analyzer()
    for variable in node.iter_vars:
        analyzer.bind(variable.var, variable.dom)
    body = structural_map(node.body, (TensorLoad, lambda it: _flat(it, analyzer)))
    return None if body.same_as(node.body) else with_fields(node, body=body)


def _flat(load: Any, analyzer: Any) -> Any:
    extents = [int(extent) for extent in load.source.shape]
    last = load.indices[-1]
    if len(load.source.strides) or not isinstance(last, tirx.FloorMod):
        return load
    number = last.a
    for first in range(len(extents) - 1):
        inner = [math.prod(extents[dim + 1 :]) for dim in range(first, len(extents))]
        digits = [
            tirx.floormod(tirx.floordiv(number, weight), extent)
            for weight, extent in zip(inner, extents[first:], strict=True)
        ]
        found = zip(load.indices[first:], digits, strict=True)
        if all(analyzer.can_prove_equal(place, digit) for place, digit in found):
            zeros = [tirx.IntImm(str(number.ty.dtype), 0)] * (len(extents) - 1 - first)
            # Higher digits of the number may be indices of outer dimensions.
            lower = analyzer.simplify(tirx.floormod(number, math.prod(extents[first:])))
            return tirx.BufferLoad(load.source, [*load.indices[:first], *zeros, lower])
    return load
