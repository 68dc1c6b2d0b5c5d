"""Constants that hold one number everywhere, written as that number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import evolve

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Cast, Constant, Load, ScalarExpr, transform
from autotune.ir.workloads import Workload
from autotune.networks.graph import Graph, Node, Value, rewritten
from autotune.networks.graph.making import HALVES, compute
from autotune.networks.graph.scalars import scalar_constant
from autotune.targets import Target

__all__ = ["constant_operands"]


def constant_operands(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Write constants that hold one number everywhere into the bodies that read them.

    Only into bodies of operations that add nothing up: weights of products stay weights, whatever
    they hold.

    Args:
        graph: A network.
        machine: What it is for; all alike.
    """
    count = 0

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        if not isinstance(node.operation, Workload):
            return None
        numbers = _numbers(node.operation, operands)
        if not numbers:
            return None
        count += len(numbers)
        return _with_numbers(node, node.operation, operands, numbers)

    changed = rewritten(graph, change)
    return changed, f"{count} fills" if count else ""


def _numbers(workload: Workload, operands: Sequence[Value]) -> dict[str, Constant]:
    """The number that an input holds everywhere, by its name; of those that may be left out."""
    summed = {name for it in workload.stages if it.combiner for name in it.reads}
    kept = summed | {it.tensor for stage in workload.stages for it in stage.gathers}
    found = {}
    for tensor, value in zip(workload.inputs, operands, strict=True):
        number = None if tensor.name in kept else _number(value)
        if number is not None:
            found[tensor.name] = number
    return found if len(found) < len(operands) else {}


def _number(value: Value) -> Constant | None:
    array = value.constant
    if array is None or not array.size:
        return None
    first = array[(0,) * array.ndim]
    # The ends first: most constants differ there, and are not looked at whole.
    if array[(-1,) * array.ndim] != first or not np.all(array == first):
        return None
    number = element_type(value.dtype).numbers(np.asarray(first)).item()
    if number != number:
        return None
    literal = scalar_constant(number, value.dtype).body
    assert isinstance(literal, Constant)
    return literal


def _with_numbers(
    node: Node, workload: Workload, operands: Sequence[Value], numbers: dict[str, Constant]
) -> tuple[Value, ...]:
    def replace(body: ScalarExpr) -> ScalarExpr | None:
        if isinstance(body, Cast) and isinstance(body.operand, Load):
            number = numbers.get(body.operand.tensor)
            # Halves are computed in float32, which has all of their numbers.
            if number is not None and number.dtype in HALVES and body.dtype == "float32":
                return Constant(number.value, body.dtype)
        return numbers.get(body.tensor) if isinstance(body, Load) else None

    kept = [at for at, it in enumerate(workload.inputs) if it.name not in numbers]
    changed = evolve(
        workload,
        inputs=tuple(workload.inputs[at] for at in kept),
        stages=tuple(evolve(it, body=transform(it.body, replace)) for it in workload.stages),
    )
    requirements = [
        evolve(it, operand=kept.index(it.operand))
        for it in node.requirements
        if it.operand in kept
    ]
    return compute(changed, [operands[at] for at in kept], node.results, requirements, node.name)
