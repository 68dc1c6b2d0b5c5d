"""Rewrites between bufferization and loops for which MLIR has no pass."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from autotune.backends import ALIGNMENT
from autotune_mlir.passes.fast_math import expand_functions
from autotune_mlir.traversal import operations_in

__all__ = ["rewrite"]

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

    - Single-precision functions become polynomials (see :mod:`autotune_mlir.passes.fast_math`).
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
