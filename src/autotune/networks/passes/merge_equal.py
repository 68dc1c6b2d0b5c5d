"""Nodes that compute the same are one, and constants of one number are written as that number."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from attrs import evolve

from autotune.ir.expressions import Cast, Constant, Load, ScalarExpr, transform
from autotune.ir.workloads import Workload
from autotune.networks.graph import Graph, HostOperator, Node, Value, rewritten
from autotune.networks.graph.elementwise import scalar_constant
from autotune.networks.graph.graph import results_of
from autotune.networks.graph.making import HALVES, DistinctArrays, compute
from autotune.networks.passes.workload_forms import uniform_number, with_bodies
from autotune.targets import Target

__all__ = ["constant_operands", "merge_equal"]


def merge_equal(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Leave out nodes that compute what another one does: equal operations on equal operands.

    Constants are equal that hold the same. Loops are left as they are, but for their bodies.

    Args:
        graph: A network.
        machine: Not asked.
    """
    merged, count = with_bodies(graph, _merged)
    return merged, f"{count} nodes" if count else ""


def _merged(graph: Graph) -> tuple[Graph, int]:
    first: dict[Hashable, tuple[Value, ...]] = {}
    constants = DistinctArrays()
    count = 0

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        operation = _identity(node)
        if operation is None:
            return None
        read = tuple(_held(it, constants) for it in operands)
        key = (operation, read, node.results, node.requirements)
        if key in first:
            count += 1
            return first[key]
        same = all(new is old for new, old in zip(operands, node.operands, strict=True))
        first[key] = results_of(node if same else evolve(node, operands=operands))
        return first[key]

    return rewritten(graph, change, loops=False), count


def _held(value: Value, constants: DistinctArrays) -> Hashable:
    """Equal for values that are the same: of constants for those that hold it."""
    if value.constant is None:
        return value.key
    return id(constants.first(value.constant, (value.shape, value.dtype)))


def _identity(node: Node) -> Hashable:
    """Equal for operations that compute the same of the same operands; None of loops."""
    operation = node.operation
    if isinstance(operation, Workload):
        return operation.inputs, operation.stages, operation.outputs, operation.external
    if isinstance(operation, HostOperator):
        return operation.kind, repr(sorted(operation.attributes.items()))
    return None


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
    number = uniform_number(value)
    if number is None:
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
