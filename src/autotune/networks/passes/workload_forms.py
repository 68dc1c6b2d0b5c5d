"""Questions about what the workloads of a graph compute, whatever they are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Binary, Cast, Constant, Load, ScalarExpr, Unary
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Axis, Stage, Workload
from autotune.networks.graph import Graph, HostOperator, Loop, Node, Value, rewritten
from autotune.networks.graph.graph import results_of

__all__ = [
    "Contraction",
    "ScaledRead",
    "contraction",
    "has_exponentials",
    "is_elementwise",
    "is_reshape",
    "scaled_read",
    "uniform_number",
    "with_bodies",
]


@frozen
class Contraction:
    """The sum of products of two tensors over one axis, which may be rounded then.

    Attributes:
        stage: The sum.
        left: The element of the first factor, as it is loaded.
        right: That of the second one.
        total: Type of the sum.
    """

    stage: Stage
    left: Load
    right: Load
    total: str

    @property
    def axis(self) -> Axis:
        """The axis that is summed over."""
        return self.stage.reduce_axes[0]


@frozen
class ScaledRead:
    """A tensor whose elements are those of another one, elsewhere and times a number.

    Attributes:
        value: The other one.
        load: The element that is read at a place of the axes of ``stage``.
        factor: The number.
        stage: The stage.
    """

    value: Value
    load: Load
    factor: float
    stage: Stage


def is_reshape(node: Node) -> bool:
    """Return whether a node changes the shape alone."""
    operation = node.operation
    return isinstance(operation, HostOperator) and operation.kind == "reshape"


def contraction(node: Node) -> Contraction | None:
    """The sum of products of floats that a node is, rounded to its type or not."""
    workload = node.operation
    if not isinstance(workload, Workload) or len(workload.stages) > 2 or node.requirements:
        return None
    stage, *rest = workload.stages
    if any(not _only_casts(it, stage) for it in rest) or stage.combiner != "add":
        return None
    body = stage.body
    if not (isinstance(body, Binary) and body.op == "mul" and len(stage.reduce_axes) == 1):
        return None
    left, right = _behind_cast(body.left), _behind_cast(body.right)
    if left is None or right is None or not stage.output.element.is_float:
        return None
    return Contraction(stage, left, right, stage.output.dtype)


def _behind_cast(body: ScalarExpr) -> Load | None:
    body = body.operand if isinstance(body, Cast) else body
    return body if isinstance(body, Load) else None


def _only_casts(stage: Stage, before: Stage) -> bool:
    """Return whether a stage is another one at the same place, in another type."""
    body = _behind_cast(stage.body)
    if body is None or body.tensor != before.name or stage.combiner is not None:
        return False
    return [repr(index) for index in body.indices] == [axis.name for axis in stage.axes]


def is_elementwise(workload: Workload) -> bool:
    """Return whether it has one stage, and computes each element of it on its own."""
    return len(workload.stages) == 1 and workload.stages[0].combiner is None


def scaled_read(node: Node) -> ScaledRead | None:
    """Read of a node that only moves elements, and may multiply them by a number."""
    workload = node.operation
    if not isinstance(workload, Workload) or not is_elementwise(workload):
        return None
    stage = workload.stages[0]
    operands = dict(zip((it.name for it in workload.inputs), node.operands, strict=True))

    def scaled(load: ScalarExpr, number: ScalarExpr, divides: bool) -> ScaledRead | None:
        factor = _number(number, operands)
        if not isinstance(load, Load) or not factor:
            return None
        return ScaledRead(operands[load.tensor], load, 1 / factor if divides else factor, stage)

    body = stage.body
    if isinstance(body, Load):
        return ScaledRead(operands[body.tensor], body, 1.0, stage)
    if not isinstance(body, Binary) or body.op not in ("mul", "div"):
        return None
    found = scaled(body.left, body.right, body.op == "div")
    return found if found or body.op == "div" else scaled(body.right, body.left, False)


def _number(body: ScalarExpr, operands: Mapping[str, Value]) -> float | None:
    """The one number that a body is everywhere."""
    if isinstance(body, Constant):
        return float(body.value)
    return uniform_number(operands[body.tensor]) if isinstance(body, Load) else None


def uniform_number(value: Value) -> float | int | bool | None:
    """The one number that a constant holds everywhere; None for all else, and for NaN."""
    if value.constant is None or not value.constant.size:
        return None
    first = value.constant.reshape(-1)[:1]
    if not np.all(value.constant == first):
        return None
    number: float | int | bool = element_type(value.dtype).numbers(first)[0].item()
    return number if number == number else None


def has_exponentials(node: Node) -> bool:
    """Return whether a node computes exponentials."""
    workload = node.operation
    if not isinstance(workload, Workload):
        return False
    nodes = (it for stage in workload.stages for it in walk(stage.body))
    return any(isinstance(it, Unary) and it.op == "exp" for it in nodes)


def with_bodies(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """The changed graph, with changed bodies of its loops.

    Args:
        graph: A network.
        change: From a graph to one of the same inputs and outputs; the same object to keep it.
    """

    def changed(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        if not isinstance(node.operation, Loop):
            return None
        body = with_bodies(node.operation.body, change)
        if body is node.operation.body:
            return None
        operation = evolve(node.operation, body=body)
        return results_of(evolve(node, operation=operation, operands=operands))

    has_loops = any(isinstance(node.operation, Loop) for node in graph.nodes)
    return change(rewritten(graph, changed, loops=False) if has_loops else graph)
