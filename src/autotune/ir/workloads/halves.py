"""Workloads of half precision: kept in 16 bits, computed in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from attrs import evolve

from autotune.ir.expressions import Cast, Constant, Gather, Load, ScalarExpr, Select, var
from autotune.ir.expressions.scalar import reads, transform
from autotune.ir.workloads.tensor import Tensor
from autotune.ir.workloads.workload import Stage, Workload

__all__ = ["HALF_DTYPES", "also_in_halves", "stored_in_halves"]

HALF_DTYPES = ("float16", "bfloat16")
"""Element types of 16 bits for storage; sums of them are float32."""

_COMPUTED = "float32"
_Shape = ParamSpec("_Shape")


def also_in_halves(build: Callable[_Shape, Workload]) -> Callable[_Shape, Workload]:
    """The builder for halves too: inputs and outputs are, what is between them is float32."""

    @wraps(build)
    def built(*arguments: _Shape.args, **shape: _Shape.kwargs) -> Workload:
        dtype = shape.get("dtype")
        if not isinstance(dtype, str) or dtype not in HALF_DTYPES:
            return build(*arguments, **shape)
        shape["dtype"] = "float32"
        return stored_in_halves(build(*arguments, **shape), dtype)

    return built


def stored_in_halves(workload: Workload, dtype: str) -> Workload:
    """A workload of float32 with inputs and outputs of ``dtype``.

    What is loaded from inputs is widened where it is used, so stages that only move elements
    (zeros around an image) move halves. Point-wise outputs are rounded in their own stage;
    reductions, and what other stages read, in a stage of its own. A workload has one output
    called ``O``, or none that needs a stage of its own.
    """
    halves = {tensor.name for tensor in workload.inputs if tensor.dtype == _COMPUTED}
    inputs = tuple(
        evolve(tensor, dtype=dtype) if tensor.name in halves else tensor
        for tensor in workload.inputs
    )
    stages: list[Stage] = []
    for stage in workload.stages:
        if _only_moves(stage, halves):
            halves.add(stage.name)
            output = evolve(stage.output, dtype=dtype)
            stages.append(evolve(stage, output=output, body=_constants(stage.body, dtype)))
        else:
            stages.append(evolve(stage, body=_widened(stage.body, halves)))
    outputs = []
    for name in workload.outputs:
        (position,) = (p for p, stage in enumerate(stages) if stage.name == name)
        stage = stages[position]
        if stage.output.dtype != _COMPUTED:
            outputs.append(name)
        elif stage.combiner is None and not workload.consumers(name):
            output = evolve(stage.output, dtype=dtype)
            stages[position] = evolve(stage, output=output, body=Cast(dtype, stage.body))
            outputs.append(name)
        else:
            stages.append(_rounded(stage, dtype))
            outputs.append(stages[-1].name)
    parameters = {**workload.parameters, "dtype": dtype}
    return Workload(workload.name, inputs, tuple(stages), tuple(outputs), parameters)


def _only_moves(stage: Stage, halves: set[str]) -> bool:
    """Return whether a stage computes nothing with the halves that it reads."""

    def moves(body: ScalarExpr) -> bool:
        if isinstance(body, Select):
            return not reads(body.condition) and moves(body.on_true) and moves(body.on_false)
        return isinstance(body, Constant) or (isinstance(body, Load) and body.tensor in halves)

    return stage.combiner is None and bool(reads(stage.body)) and moves(stage.body)


def _constants(body: ScalarExpr, dtype: str) -> ScalarExpr:
    def replaced(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, Constant) and node.dtype == _COMPUTED:
            return Constant(node.value, dtype)
        return None

    return transform(body, replaced)


def _widened(body: ScalarExpr, halves: set[str]) -> ScalarExpr:
    def replaced(node: ScalarExpr) -> ScalarExpr | None:
        if isinstance(node, (Load, Gather)) and node.tensor in halves:
            return Cast(_COMPUTED, node)
        return None

    return transform(body, replaced)


def _rounded(stage: Stage, dtype: str) -> Stage:
    axes = tuple(evolve(axis, kind="spatial") for axis in stage.spatial_axes)
    value = Load(stage.name, tuple(var(axis.name) for axis in axes))
    return Stage(Tensor("O", stage.output.shape, dtype), axes, Cast(dtype, value))
