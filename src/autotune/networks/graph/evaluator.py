"""A graph evaluated in numpy: what a network computes, whatever runs it.

Floats are computed in double precision inside of a node and rounded to the type of its results;
integers are computed in their own type, and wrap around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import reference_outputs
from autotune.networks.graph.graph import Graph, HostOperator, Loop, Node, Value
from autotune.networks.graph.host import run_on_host

__all__ = ["evaluate", "evaluate_node"]

Array = NDArray[Any]


def evaluate_node(node: Node, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a node.

    Args:
        node: The node.
        arrays: Its operands, as programs have them.

    Raises:
        InvalidValueError: an operand holds what it must not.
    """
    node.check(arrays)
    operation = node.operation
    if isinstance(operation, HostOperator):
        return run_on_host(node, arrays)
    if isinstance(operation, Loop):
        return _evaluated_loop(operation, arrays)
    names = (tensor.name for tensor in operation.inputs)
    with np.errstate(all="ignore"):
        results = reference_outputs(operation, dict(zip(names, arrays, strict=True)))
    return tuple(results[name] for name in operation.outputs)


def evaluate(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of a graph by name.

    Args:
        graph: The network.
        inputs: An array for each of its inputs, as programs have it (bfloat16 as ``uint16``).

    Raises:
        InvalidValueError: an input is missing, has another shape or type, or holds what leads to
            a division by zero or an index out of range.
    """
    _check(graph, inputs)
    nodes = graph.nodes
    uses: dict[object, int] = {}
    for value in (*(it for node in nodes for it in node.operands), *graph.outputs.values()):
        uses[value.key] = uses.get(value.key, 0) + 1
    arrays: dict[object, Array] = {it.key: np.asarray(inputs[it.name]) for it in graph.inputs}

    def taken(value: Value) -> Array:
        """An array for one of its uses; it is let go at the last."""
        if value.constant is not None:
            return value.constant
        uses[value.key] -= 1
        return arrays[value.key] if uses[value.key] else arrays.pop(value.key)

    for node in nodes:
        results = evaluate_node(node, [taken(value) for value in node.operands])
        for position, result in enumerate(results):
            if (id(node), position) in uses:
                arrays[id(node), position] = result
    return {name: taken(value) for name, value in graph.outputs.items()}


def _evaluated_loop(loop: Loop, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a loop; as its node has them."""
    states = list(arrays[: loop.states])
    slices, fixed = (
        arrays[loop.states : loop.states + loop.slices],
        arrays[loop.states + loop.slices :],
    )
    names = [value.name for value in loop.body.inputs]
    kept: list[list[Array]] = []
    for step in range(loop.trips):
        places = [loop.trips - 1 - step if backwards else step for backwards in loop.reverse]
        read = [array[place] for array, place in zip(slices, places, strict=True)]
        given = dict(zip(names, (*states, *read, *fixed), strict=True))
        results = [*evaluate(loop.body, given).values()]
        states = results[: loop.states]
        kept.append(results[loop.states :])
    stacked = (
        np.stack(parts[::-1] if backwards else parts)
        for parts, backwards in zip(zip(*kept, strict=True), loop.kept_reverse, strict=True)
    )
    return (*states, *stacked)


def _check(graph: Graph, inputs: Mapping[str, Array]) -> None:
    names = [value.name for value in graph.inputs]
    if set(inputs) != set(names):
        raise InvalidValueError(f"inputs are {names}, and {list(inputs)} are given")
    for value in graph.inputs:
        array, dtype = np.asarray(inputs[value.name]), element_type(value.dtype).dtype
        if array.shape != value.shape or array.dtype != dtype:
            raise InvalidValueError(
                f"input {value.name!r} is {value.dtype}{list(value.shape)}, and "
                f"{array.dtype}{list(array.shape)} is given"
            )
