"""What TVM makes of a schedule: loop extents and allocations of the lowered program.

Used to hold the symbolic loop nest against the truth. Lowering stops before unit, unrolled and
vectorised loops disappear.
"""

from __future__ import annotations

from typing import Any

import tvm
from attrs import frozen
from tvm import s_tir, tirx
from tvm.ir import IRModule


@frozen
class LoweredNest:
    """Extents of the loops around every store, and the shape of every allocation.

    Loops and dimensions of extent 1 are left out.
    """

    stores: tuple[tuple[int, ...], ...]
    allocations: tuple[tuple[int, ...], ...]


def lower_for_comparison(module: IRModule) -> IRModule:
    """``module`` after the passes that fix loop extents and allocations, and no further."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    return tvm.ir.transform.Sequential(passes)(module)


def lowered_nest(module: IRModule) -> LoweredNest:
    """Stores and allocations of the scheduled ``module``, in program order."""
    function = lower_for_comparison(module)["main"]
    stores: list[tuple[int, ...]] = []
    allocations: list[tuple[int, ...]] = []

    def visit(node: Any, loops: tuple[int, ...]) -> None:
        if isinstance(node, tirx.For):
            extent = int(node.extent)
            visit(node.body, (*loops, extent) if extent != 1 else loops)
        elif isinstance(node, tirx.SeqStmt):
            for item in node.seq:
                visit(item, loops)
        elif isinstance(node, tirx.BufferStore):
            stores.append(loops)
        elif isinstance(node, tirx.IfThenElse):
            visit(node.then_case, loops)
            if node.else_case is not None:
                visit(node.else_case, loops)
        else:
            if isinstance(node, tirx.AllocBuffer):
                shape = tuple(int(extent) for extent in node.buffer.shape)
                allocations.append(tuple(extent for extent in shape if extent != 1))
            body = getattr(node, "body", None)
            if body is not None:
                visit(body, loops)

    visit(function.body, ())
    return LoweredNest(tuple(stores), tuple(allocations))
