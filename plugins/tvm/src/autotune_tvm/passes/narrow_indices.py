"""32-bit loops and indices in imported programs that have 64-bit ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.ir import IRModule, Range, TensorRegion
from tvm.s_tir import MatchBufferRegion, SBlock

from autotune_tvm.blocks import nests_of, read_function
from autotune_tvm.emit import ENTRY
from autotune_tvm.passes.statements import replaced, with_bodies, with_fields

__all__ = ["narrow_indices", "narrow_mixed_indices"]

_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod)


def narrow_indices(scheduled: IRModule, original: IRModule) -> IRModule:
    """A scheduled program with 32-bit loops and indices, where everything in it fits.

    Relax makes 64-bit ones. They are narrowed when everything is scheduled, so that schedules
    are made of the imported program itself.

    Args:
        scheduled: What a schedule made of ``original``.
        original: The imported program.
    """
    if _widths(original) <= {"int32"} or not _fits(original):
        return scheduled
    narrowed = tirx.transform.ForceNarrowIndexToInt32()(scheduled)
    return with_bodies(narrowed, lambda body: replaced(body, _narrowed_call))


def narrow_mixed_indices(original: IRModule) -> IRModule:
    """An imported program with loops of 32 bits and of 64 with the first only, where all fits.

    TVM's schedules do not put indices of both into one expression.
    """
    if len(_widths(original)) < 2 or not _fits(original):
        return original
    return tirx.transform.ForceNarrowIndexToInt32()(original)


def _widths(module: IRModule) -> set[str]:
    """Types of the loops of an imported program."""
    nests = nests_of(module[ENTRY])
    return {str(loop.loop_var.ty.dtype) for nest in nests for loop in nest.loops}


def _fits(module: IRModule) -> bool:
    """Whether 32 bits are enough for indices of all tensors, and none holds wider integers."""
    reading = read_function(module[ENTRY])
    tensors = (*reading.parameters, *(block.stage.output for block in reading.blocks))
    return not any(it.dtype == "int64" or it.elements >= 1 << 31 for it in tensors)


def _narrowed_call(node: Any) -> Any:
    """A block that only calls a function, with 32-bit places of the buffers that it is given.

    TVM leaves these, and the variables that only they use, as they are.
    """
    calls = isinstance(node, SBlock) and isinstance(node.body, tirx.Evaluate)
    if not calls or not node.match_buffers:
        return None
    own = {axis.var.name: tirx.Var(axis.var.name, "int32") for axis in node.iter_vars}
    axes = [
        tirx.IterVar(
            Range.from_min_extent(_narrowed(axis.dom.min, own), _narrowed(axis.dom.extent, own)),
            own[axis.var.name],
            axis.iter_type,
        )
        for axis in node.iter_vars
    ]
    return with_fields(
        node,
        iter_vars=axes,
        reads=[_narrowed_region(region, own) for region in node.reads],
        writes=[_narrowed_region(region, own) for region in node.writes],
        match_buffers=[
            MatchBufferRegion(match.buffer, _narrowed_region(match.source, own))
            for match in node.match_buffers
        ],
    )


def _narrowed_region(region: Any, own: Mapping[str, Any]) -> Any:
    ranges = [
        Range.from_min_extent(_narrowed(it.min, own), _narrowed(it.extent, own))
        for it in region.region
    ]
    return TensorRegion(region.source, ranges, region.ty)


def _narrowed(expression: Any, own: Mapping[str, Any]) -> Any:
    """An index of the block's own variables, from one of those that it had before."""
    if isinstance(expression, tirx.IntImm):
        return tirx.IntImm("int32", expression.value)
    if isinstance(expression, _BINARY):
        return type(expression)(_narrowed(expression.a, own), _narrowed(expression.b, own))
    if isinstance(expression, tirx.Cast):
        return _narrowed(expression.value, own)
    return own.get(str(getattr(expression, "name", "")), expression)
