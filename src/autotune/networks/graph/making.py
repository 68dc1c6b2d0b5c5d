"""Nodes made, or evaluated at once where all that they read is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Cast, IntLike, Load, ScalarExpr, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.networks.graph.evaluator import evaluate_node
from autotune.networks.graph.graph import (
    HostOperator,
    Node,
    Operation,
    Requirement,
    Value,
    constant,
    results_of,
)
from autotune.networks.graph.index_ranges import index_requirements
from autotune.networks.graph.naming import current_name
from autotune.networks.graph.scalars import divisors

__all__ = [
    "HALVES",
    "axis_names",
    "compute",
    "host",
    "load",
    "normal_axes",
    "normal_axis",
    "program",
    "rounded",
    "spatial",
    "widened",
    "workload",
]

HALVES = ("float16", "bfloat16")
"""Types that are kept in 16 bits and computed in float32."""


def compute(
    operation: Operation,
    operands: Sequence[Value],
    results: Sequence[tuple[tuple[int, ...], str]],
    requirements: Sequence[Requirement] = (),
    name: str = "",
) -> tuple[Value, ...]:
    """The results of an operation: constants where all its operands are, or nothing is in them.

    Args:
        operation: The operation.
        operands: What it reads.
        results: Shape and type of each result.
        requirements: What operands must hold.
        name: What it is called in messages; that of the node that is read by default.

    Raises:
        InvalidValueError: a constant holds what it must not.
    """
    called = name or current_name()
    node = Node(operation, tuple(operands), tuple(results), tuple(requirements), called)
    if all(0 in shape for shape, _ in results):
        empty = (np.empty(shape, element_type(dtype).dtype) for shape, dtype in results)
        return tuple(
            constant(array, dtype) for array, (_, dtype) in zip(empty, results, strict=True)
        )
    arrays = [value.constant for value in operands if value.constant is not None]
    for requirement in requirements:
        known = operands[requirement.operand].constant
        if known is not None:
            requirement.check(known, node.label)
    if len(arrays) < len(operands) or isinstance(operation, HostOperator) and not operands:
        return results_of(node)
    found = evaluate_node(node, arrays)
    return tuple(constant(it, dtype) for it, (_, dtype) in zip(found, results, strict=True))


def host(
    kind: str,
    operands: Sequence[Value],
    results: Sequence[tuple[tuple[int, ...], str]],
    requirements: Sequence[Requirement] = (),
    **attributes: object,
) -> tuple[Value, ...]:
    """The results of an operator of the host; as :func:`compute`."""
    return compute(HostOperator(kind, attributes), operands, results, requirements)


def program(
    name: str,
    operands: Sequence[Value],
    build: Callable[[Sequence[Tensor]], Sequence[Stage]],
    requirements: Sequence[Requirement] = (),
) -> Value:
    """The result of a workload: what its last stage computes.

    Args:
        name: Name of the workload.
        operands: What it reads; one that is given twice is one input.
        build: Its stages, from a tensor for each operand.
        requirements: What operands must hold.
    """
    unique = {value.key: value for value in operands}
    known = all(value.constant is not None for value in operands)
    tensors = {
        key: Tensor(
            f"x{number}", value.shape, value.dtype, value.constant is not None and not known
        )
        for number, (key, value) in enumerate(unique.items())
    }
    stages = build([tensors[value.key] for value in operands])
    output = stages[-1].output
    if 0 in output.shape:
        return constant(np.empty(output.shape, element_type(output.dtype).dtype), output.dtype)
    workload = Workload(name, tuple(tensors.values()), tuple(stages), (output.name,))
    order = [tensor.name for tensor in tensors.values()]
    whole = {tensor.name for tensor in tensors.values() if not tensor.element.is_float}
    divide = dict.fromkeys(it for stage in stages for it in divisors(stage.body) if it in whole)
    checks = [
        evolve(it, operand=order.index(tensors[operands[it.operand].key].name))
        for it in requirements
    ]
    checks += [Requirement(order.index(it), nonzero=True) for it in divide]
    return compute(workload, [*unique.values()], [(output.shape, output.dtype)], checks)[0]


def workload(given: Workload, operands: Sequence[Value]) -> tuple[Value, ...]:
    """The results of a workload that somebody else wrote, which are checked as those of others.

    Args:
        given: The workload.
        operands: Its inputs, in order.

    Raises:
        InvalidValueError: an operand has another shape or type than its input.
    """
    expected = [(it.shape, it.dtype) for it in given.inputs]
    if [(it.shape, it.dtype) for it in operands] != expected:
        raise InvalidValueError(f"{given.name} reads {expected}, and not {list(operands)}")
    constant_inputs = tuple(
        evolve(tensor, constant=value.constant is not None)
        for tensor, value in zip(given.inputs, operands, strict=True)
    )
    order = [tensor.name for tensor in given.inputs]
    divide = dict.fromkeys(it for stage in given.stages for it in divisors(stage.body))
    whole = {it.name for it in given.inputs if not it.element.is_float}
    checks = [Requirement(order.index(it), nonzero=True) for it in divide if it in whole]
    checks += index_requirements(given)
    outputs = [given.tensors[name] for name in given.outputs]
    results = [(it.shape, it.dtype) for it in outputs]
    return compute(evolve(given, inputs=constant_inputs), operands, results, checks)


def axis_names(rank: int, prefix: str = "i") -> list[str]:
    """Names for axes of a stage."""
    return [f"{prefix}{number}" for number in range(rank)]


def spatial(shape: Sequence[int], prefix: str = "i") -> tuple[Axis, ...]:
    """Axes that index an output of this shape."""
    names = axis_names(len(shape), prefix)
    return tuple(Axis(name, extent) for name, extent in zip(names, shape, strict=True))


def load(tensor: Tensor, indices: Sequence[IntLike]) -> Load:
    """An element of a tensor."""
    return Load(tensor.name, tuple(const(it) if isinstance(it, int) else it for it in indices))


def widened(body: ScalarExpr, dtype: str) -> ScalarExpr:
    """An element in the type that is computed in: float32 for halves."""
    return Cast("float32", body) if dtype in HALVES else body


def rounded(stages: Sequence[Stage], dtype: str) -> list[Stage]:
    """Stages whose last one is of ``dtype``: another one converts what it computes."""
    last = stages[-1]
    if last.output.dtype == dtype:
        return list(stages)
    axes = spatial(last.output.shape)
    body = Cast(dtype, Load(last.name, tuple(var(axis.name) for axis in axes)))
    return [*stages, Stage(Tensor("o", last.output.shape, dtype), axes, body)]


def normal_axis(axis: int, rank: int) -> int:
    """An axis counted from the first one.

    Raises:
        InvalidValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise InvalidValueError(f"there is no axis {axis} of {rank}")
    return axis % rank


def normal_axes(axes: Sequence[int] | None, rank: int) -> list[int]:
    """Axes counted from the first one, in order; all of them for None.

    Raises:
        InvalidValueError: there is no such axis, or one is named twice.
    """
    found = sorted(normal_axis(axis, rank) for axis in (range(rank) if axes is None else axes))
    if len(set(found)) < len(found):
        raise InvalidValueError(f"an axis is named twice: {list(axes or ())}")
    return found
