"""Reductions over more elements than there are, so that lanes divide their number.

What is beyond an axis's extent contributes the value that the reduction starts with, which changes
nothing: programs then split and factor the axis without a condition on the block, which TVM drops
when it moves the block. The condition is around the element instead, and
:mod:`autotune_tvm.passes.peel_tails` takes it out of all rounds but the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad
from tvm.s_tir import SBlockRealize

from autotune.ir.workloads import Workload
from autotune.sketches import Candidate, SplitReduction, is_uneven
from autotune_tvm.blocks import Block
from autotune_tvm.passes.statements import rebuilt, replaced, with_bodies, with_fields

__all__ = ["with_padded_reductions"]


def with_padded_reductions(
    module: IRModule, candidate: Candidate, workload: Workload, blocks: Mapping[str, Block]
) -> IRModule:
    """The same program, ready for the splits of a candidate whose lanes do not divide their axis.

    Args:
        module: One function ``main``.
        candidate: Sketch and configuration.
        workload: What the function computes.
        blocks: The block that computes each stage, where it is not called as the stage is.

    Returns:
        ``module`` itself where lanes divide every axis.
    """
    named = {stage.name for stage in workload.stages}
    for step in candidate.sketch.core_steps:
        # Partial results are split only where that is even.
        if isinstance(step, SplitReduction) and step.stage in named and is_uneven(workload, step):
            stage = workload.stage(step.stage)
            block = Block.of(stage, blocks)
            position = block.variable_axes.index(step.axis)
            rounds = -(-stage.axis(step.axis).extent // step.lanes)
            module = _padded(module, block.name, position, rounds * step.lanes)
    return module


def _padded(module: IRModule, name: str, position: int, extent: int) -> IRModule:
    """The module in which one block reduces over a longer axis, the one at ``position``."""

    def changed(node: Any) -> Any:
        if isinstance(node, SBlockRealize) and str(node.block.name_hint) == name:
            return _longer(node, position, extent)
        if isinstance(node, tirx.For) and _is_bound(node, name, position):
            return _lengthened(rebuilt(node, [replaced(node.body, changed)]), extent)
        return None

    return with_bodies(module, lambda body: replaced(body, changed))


def _is_bound(loop: Any, name: str, position: int) -> bool:
    """Whether a loop runs over the axis at ``position`` of the block that it leads to."""
    inner = loop.body
    while isinstance(inner, tirx.For):
        inner = inner.body
    return (
        isinstance(inner, SBlockRealize)
        and str(inner.block.name_hint) == name
        and loop.loop_var.same_as(inner.iter_values[position])
    )


def _lengthened(loop: Any, extent: int) -> Any:
    return tirx.For(
        loop.loop_var,
        loop.min,
        tirx.const(extent, loop.loop_var.ty.dtype),
        loop.kind,
        loop.body,
        loop.thread_binding,
        loop.annotations,
    )


def _longer(realize: Any, position: int, extent: int) -> Any:
    """The block over a longer axis; what is beyond its own extent is what it starts with."""
    block = realize.block
    axes = list(block.iter_vars)
    axis, store = axes[position], block.body
    value, neutral = store.value, block.init.value
    condition = tirx.LT(axis.var, axis.dom.extent)
    known = isinstance(value.a, TensorLoad) and value.a.source.same_as(store.buffer)
    result, element = (value.a, value.b) if known else (value.b, value.a)
    guarded = tirx.if_then_else(condition, element, neutral)
    longer = tirx.const(extent, axis.var.ty.dtype)
    axes[position] = tirx.IterVar(
        Range.from_min_extent(axis.dom.min, longer), axis.var, axis.iter_type
    )
    body = tirx.BufferStore(store.buffer, type(value)(result, guarded), store.indices)
    made = with_fields(block, iter_vars=axes, body=body)
    return SBlockRealize(realize.iter_values, realize.predicate, made)
