"""Dot-product instructions of x86 processors, as declarations of tensor instructions name them."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from autotune_mlir.passes.vector_maker import constant_of
from autotune_mlir.traversal import operations_in

__all__ = [
    "DotProduct",
    "bfloat16_256",
    "bfloat16_512",
    "give_types",
    "vnni_256",
    "vnni_512",
    "vnni_512_signed",
]

# The highest bits of four bytes. Exclusive or with them adds 128 to signed bytes, which makes
# unsigned ones of them.
_SIGN_BITS = -0x7F7F7F80
_CALL = "llvm.call_intrinsic"


@frozen
class DotProduct:
    """An instruction that adds to each lane the sum of the products of a group of 32 bits.

    Attributes:
        intrinsic: LLVM's name for it. It takes sums, left factors and right factors.
        is_shifted: Whether it takes left factors that are not signed in place of signed ones:
            128 is added to them, and 128 times the right factors is then too much.
    """

    intrinsic: str
    is_shifted: bool = False

    def add(self, ir: Any, sums: Any, groups: Any, factors: Any) -> Any:
        """The sums and the products of a vector.

        Args:
            ir: The ``ir`` module of the bindings; there is an insertion point.
            sums: One for each lane.
            groups: Left factors: one integer of 32 bits for each lane.
            factors: Right factors: a group for each lane.
        """
        if self.is_shifted:
            # Zero products more: of signs that it knows LLVM makes a scalar operation and a move
            # between registers for each group, of others an operand of the vector operation.
            nothing = [_constant(ir, kind, 0) for kind in (groups.type, factors.type)]
            signs = self._call(ir, _constant(ir, groups.type, _SIGN_BITS), *nothing)
            shifted = ir.Operation.create("arith.xori", [groups.type], [groups, signs])
            groups = shifted.results[0]
        return self._call(ir, sums, groups, factors)

    def add_excess(self, ir: Any, sums: Any, factors: Any) -> Any:
        """The sums and what :meth:`add` has added too much for right factors."""
        lanes = list(sums.type.shape)
        kind = ir.VectorType.get(lanes, ir.IntegerType.get_signless(32))
        return self._call(ir, sums, _constant(ir, kind, _SIGN_BITS), factors)

    def _call(self, ir: Any, sums: Any, groups: Any, factors: Any) -> Any:
        create = ir.Operation.create
        left = create("vector.bitcast", [factors.type], [groups]).results[0]
        attributes = {
            "intrin": ir.StringAttr.get(self.intrinsic),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([3, 0]),
        }
        return create(_CALL, [sums.type], [sums, left, factors], attributes).results[0]


vnni_512 = DotProduct("llvm.x86.avx512.vpdpbusd.512")
"""``vpdpbusd`` on 512 bits: unsigned by signed bytes."""

vnni_512_signed = DotProduct("llvm.x86.avx512.vpdpbusd.512", is_shifted=True)
"""``vpdpbusd`` on 512 bits for signed by signed bytes."""

vnni_256 = DotProduct("llvm.x86.avx512.vpdpbusd.256")
"""``vpdpbusd`` on 256 bits: unsigned by signed bytes. LLVM's name is the same with AVX-VNNI."""

bfloat16_512 = DotProduct("llvm.x86.avx512bf16.dpbf16ps.512")
"""``vdpbf16ps`` on 512 bits."""

bfloat16_256 = DotProduct("llvm.x86.avx512bf16.dpbf16ps.256")
"""``vdpbf16ps`` on 256 bits."""


def give_types(ir: Any, kernel: Any) -> None:
    """Have dot products of bfloat16 take vectors of that type, of which integers had been made.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: A function in LLVM's dialect.
    """
    named = {bfloat16_256.intrinsic, bfloat16_512.intrinsic}
    calls = [
        operation
        for operation in operations_in(kernel)
        if operation.name == _CALL and operation.attributes["intrin"].value in named
    ]
    for call in calls:
        with ir.InsertionPoint(call), call.location:
            for number in (1, 2):
                bits = call.operands[number]
                kind = ir.VectorType.get(list(bits.type.shape), ir.BF16Type.get())
                made = ir.Operation.create("llvm.bitcast", [kind], [bits])
                call.operands[number] = made.results[0]


def _constant(ir: Any, kind: Any, value: int) -> Any:
    """A vector of one integer."""
    return constant_of(ir, kind, ir.IntegerAttr.get(kind.element_type, value))
