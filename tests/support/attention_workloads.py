"""Attentions with operands that lie differently, and with stages before, inside and behind."""

from __future__ import annotations

from attrs import evolve

from autotune.ir.expressions import Binary, Load, ScalarExpr, Unary, var
from autotune.ir.expressions.scalar import transform
from autotune.ir.workloads import Axis, Stage, Tensor, Workload

__all__ = ["divided", "grouped", "transposed", "with_bias", "with_computed_keys", "with_epilogue"]


def load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(var(axis) for axis in axes))


def transposed(workload: Workload, *names: str) -> Workload:
    """The workload with the last two dimensions of these inputs exchanged."""

    def swap(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor not in names:
            return None
        *outer, rows, columns = node.indices
        return Load(node.tensor, (*outer, columns, rows))

    inputs = tuple(
        evolve(tensor, shape=(*tensor.shape[:-2], *reversed(tensor.shape[-2:])))
        if tensor.name in names
        else tensor
        for tensor in workload.inputs
    )
    stages = tuple(evolve(stage, body=transform(stage.body, swap)) for stage in workload.stages)
    return evolve(workload, inputs=inputs, stages=stages, parameters={})


def divided(workload: Workload, copies: int) -> Workload:
    """The workload with so many neighbouring heads of queries for each head of keys and values."""

    def read(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor not in ("K", "V"):
            return None
        head, *others = node.indices
        return Load(node.tensor, (head // copies, *others))

    stages = tuple(evolve(stage, body=transform(stage.body, read)) for stage in workload.stages)
    inputs = tuple(
        evolve(it, shape=(it.shape[0] // copies, *it.shape[1:])) if it.name in ("K", "V") else it
        for it in workload.inputs
    )
    return evolve(workload, inputs=inputs, stages=stages, parameters={})


def grouped(workload: Workload, copies: int) -> Workload:
    """The workload with so many heads of queries for each head of keys and values."""
    axis = Axis("e", copies, "spatial")

    def of_heads(tensor: Tensor) -> Tensor:
        groups, *others = tensor.shape
        return evolve(tensor, shape=(groups, copies, *others))

    def read(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor in ("K", "V"):
            return None
        group, *others = node.indices
        return Load(node.tensor, (group, var("e"), *others))

    stages = tuple(
        evolve(
            stage,
            output=of_heads(stage.output),
            axes=(stage.axes[0], axis, *stage.axes[1:]),
            body=transform(stage.body, read),
        )
        for stage in workload.stages
    )
    inputs = tuple(it if it.name in ("K", "V") else of_heads(it) for it in workload.inputs)
    return evolve(workload, inputs=inputs, stages=stages, parameters={})


def with_epilogue(workload: Workload) -> Workload:
    """The workload with a stage that reads its result point by point."""
    last = workload.stages[-1]
    axes = last.spatial_axes
    body = Unary("tanh", load(last.name, *(axis.name for axis in axes)))
    stage = Stage(Tensor("T", last.output.shape, last.output.dtype), axes, body)
    stages = (*workload.stages, stage)
    return evolve(workload, stages=stages, outputs=("T",), parameters={})


def with_bias(workload: Workload) -> Workload:
    """The workload with an input that is added to the scores."""
    (scaled,) = (stage for stage in workload.stages if stage.name == "X")
    body = Binary("add", scaled.body, load("B", *(axis.name for axis in scaled.axes)))
    stages = tuple(
        evolve(stage, body=body) if stage is scaled else stage for stage in workload.stages
    )
    inputs = (*workload.inputs, evolve(scaled.output, name="B"))
    return evolve(workload, inputs=inputs, stages=stages, parameters={})


def with_computed_keys(workload: Workload) -> Workload:
    """The workload with keys that a stage computes point by point from an input."""
    (keys,) = (tensor for tensor in workload.inputs if tensor.name == "K")
    axes = tuple(Axis(name, extent) for name, extent in zip("xyz", keys.shape, strict=True))
    stage = Stage(keys, axes, Unary("tanh", load("L", "x", "y", "z")))
    inputs = tuple(evolve(it, name="L") if it is keys else it for it in workload.inputs)
    return evolve(workload, inputs=inputs, stages=(stage, *workload.stages), parameters={})
