"""Rewrites of a program for which MLIR has no pass: functions, copies, flags, bits of bfloat16."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from autotune.backends import ALIGNMENT
from autotune.ir.element_types import bfloat16_bits
from autotune_mlir.parsing import clone_before, operations_in
from autotune_mlir.printer import unary_text

__all__ = ["FUNCTIONS", "as_bits", "rewrite"]

_FLAGS = MappingProxyType(
    {
        **dict.fromkeys(("arith.addf", "arith.subf", "arith.mulf"), "contract"),
        **dict.fromkeys(("arith.maximumf", "arith.minimumf"), "nsz"),
    }
)
_ALLOCATIONS = frozenset({"memref.alloc", "memref.alloca"})
_ALIGNED = "alignment"


def rewrite(ir: Any, module: Any) -> None:
    """Write out, in a module on buffers, what would become calls, and let sums take products in.

    - Single-precision functions become polynomials.
    - ``memref.copy`` between buffers with strides becomes a structured operation, hence loops:
      the function that MLIR would call for it is not in the bindings.
    - Sums and products of floats may be fused into one operation of the processor, which rounds
      once, as C compilers do.
    - Of two zeros a maximum or minimum may be either, which saves half of its instructions; where
      one operand is NaN, so is the result.
    - Buffers are aligned alike.

    Args:
        ir: The ``ir`` module of the bindings.
        module: The ``ir.Module``, of which the context is the current one.
    """
    functions: list[Any] = []
    copies: list[Any] = []
    floats: list[Any] = []
    alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
    for operation in operations_in(module.operation):
        name = operation.name
        if name.startswith("math."):
            functions.append(operation)
        elif name == "memref.copy":
            copies.append(operation)
        elif name in _FLAGS:
            floats.append(operation)
        elif name in _ALLOCATIONS and _ALIGNED not in operation.attributes:
            operation.attributes[_ALIGNED] = alignment
    exact = ir.Attribute.parse("#arith.fastmath<none>")
    for operation in floats:
        if operation.attributes["fastmath"] == exact:
            flag = _FLAGS[operation.name]
            operation.attributes["fastmath"] = ir.Attribute.parse(f"#arith.fastmath<{flag}>")
    expand_functions(ir, functions)
    for copy in copies:
        source, target = copy.operands
        if not (_is_dense(ir, source.type) and _is_dense(ir, target.type)):
            _write_copy(ir, copy, source, target)


def _is_dense(ir: Any, kind: Any) -> bool:
    """Tell if a buffer is row-major without gaps; copies of such buffers need no function."""
    rank = len(kind.shape)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    return bool(kind.layout == identity)


def _write_copy(ir: Any, copy: Any, source: Any, target: Any) -> None:
    kind = source.type
    rank = len(kind.shape)
    identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
    parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
    with ir.InsertionPoint(copy), copy.location:
        loops = ir.Operation.create(
            "linalg.generic",
            operands=[source, target],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([identity, identity]),
                "iterator_types": ir.ArrayAttr.get([parallel] * rank),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1]),
            },
            regions=1,
        )
        element = kind.element_type
        block = ir.Block.create_at_start(loops.regions[0], [element, element])
        with ir.InsertionPoint(block):
            ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    copy.erase()


FUNCTIONS: Mapping[str, str] = {f"math.{name}": name for name in ("exp", "log", "tanh", "erf")}
"""The function that an operation computes, of those that become arithmetic."""


def expand_functions(ir: Any, operations: Sequence[Any]) -> None:
    """Replace single-precision functions by arithmetic (:mod:`autotune.lower.elementary`).

    MLIR would call the C library for each element, even of a vector. Half precision is computed in
    single by who writes the program; double precision stays a call.

    Args:
        ir: The ``ir`` module of the bindings.
        operations: Any operations; those that are no such function are left alone.
    """
    for operation in operations:
        function = FUNCTIONS.get(operation.name)
        kind = operation.results[0].type if function is not None else None
        if function is None or not isinstance(_element(ir, kind), ir.F32Type):
            continue
        lanes = prod(kind.shape) if isinstance(kind, ir.VectorType) else 1
        made = ir.Module.parse(unary_text(function, str(kind), lanes))
        block = made.body.operations[0].regions[0].blocks[0]
        *body, returned = (view.operation for view in block.operations)
        known = {block.arguments[0]: operation.operands[0]}
        for inner in body:
            clone_before(ir.InsertionPoint(operation), inner, known)
        operation.results[0].replace_all_uses_with(known[returned.operands[0]])
        operation.erase()


def _element(ir: Any, kind: Any) -> Any:
    return kind.element_type if isinstance(kind, ir.VectorType) else kind


# Its value; a type such as vector<10xbf16> has what looks like digits.
_CONSTANT = re.compile(r"(?<=llvm\.mlir\.constant\()[^\n]*?(?= : (?:vector<[0-9x]+x)?bf16>?\))")
# A number; one in hexadecimal digits is the bits.
_NUMBER = re.compile(r"(0x[0-9A-F]{4})|[-+]?[0-9]+\.[0-9]+(?:e[-+]?[0-9]+)?", re.IGNORECASE)


def as_bits(text: str) -> str:
    """A module of LLVM's dialect, as text, with ``i16`` for ``bf16``.

    LLVM ends the process where vectors of them are masked or taken apart and the processor has no
    arithmetic of that type. MLIR's passes leave nothing but moves and casts to bits of them, which
    integers of 16 bits do as well.
    """
    whole = _CONSTANT.sub(lambda found: _NUMBER.sub(_integer, found.group()), text)
    return re.sub(r"\b([0-9x]*)bf16\b", r"\1i16", whole)


def _integer(number: re.Match[str]) -> str:
    if number.group(1):
        bits = int(number.group(), 16)
    else:
        bits = int(bfloat16_bits(np.asarray(float(number.group()))))
    return str(bits - (1 << 16) if bits >> 15 else bits)
