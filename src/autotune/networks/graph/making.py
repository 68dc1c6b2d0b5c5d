"""Nodes made, or evaluated at once where all that they read is known; graphs evaluated.

Which indices a workload may be given that reads where data says, the operation that makes its node
knows; of a workload that somebody else wrote it is found by trying all indices around the range
that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    Binary,
    Cast,
    Gather,
    IndexValue,
    IntLike,
    Load,
    ScalarExpr,
    Select,
    const,
    var,
)
from autotune.ir.expressions.scalar import children, loads, transform, walk
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, reference_outputs
from autotune.ir.workloads.composing import computed_where_read
from autotune.ir.workloads.reference import evaluate_body
from autotune.networks.graph.graph import (
    Graph,
    HostOperator,
    Loop,
    Node,
    Operation,
    Requirement,
    Value,
    constant,
    current_name,
    results_of,
)
from autotune.networks.graph.host import run_on_host

__all__ = [
    "HALVES",
    "axis_names",
    "compute",
    "evaluate",
    "evaluate_node",
    "host",
    "index_requirements",
    "load",
    "normal_axes",
    "normal_axis",
    "program",
    "rounded",
    "spatial",
    "widened",
    "workload",
]

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
    divide = dict.fromkeys(it for stage in stages for it in _divisors(stage.body) if it in whole)
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
    divide = dict.fromkeys(it for stage in given.stages for it in _divisors(stage.body))
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


def computed_type(dtype: str) -> str:
    """The type that numbers of a type are computed in: float32 for halves."""
    return "float32" if dtype in HALVES else dtype


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


_LEAST, _MOST = (int(it) for it in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
_TRIED = "tried"
_FARTHEST = 1 << 22


def index_requirements(given: Workload) -> list[Requirement]:
    """Conditions on the inputs of a workload whose elements are places that it reads.

    Those are found that are computed of one element of an input each, outside of choices, which
    may leave out what must not be read.

    Args:
        given: The workload.
    """
    gathered = {it.tensor for stage in given.stages for it in stage.gathers}
    if not gathered:
        return []
    kept = {*gathered, *given.outputs}
    moved = [it.name for it in given.stages if it.combiner is None and it.name not in kept]
    inputs = {it.name: (number, it) for number, it in enumerate(given.inputs)}
    found = []
    for stage in computed_where_read(given, moved).stages:
        for gather in _always_read(stage.body):
            shape = given.tensors[gather.tensor].shape
            for index, extent in zip(gather.indices, shape, strict=True):
                read = {*loads(index)}
                if len(read) == 1 and (load := read.pop()).tensor in inputs:
                    number, tensor = inputs[load.tensor]
                    bounds = _bounds(index, load, tensor, extent)
                    if bounds is not None:
                        found.append(_requirement(number, tensor, load, *bounds))
    return [*dict.fromkeys(found)]


def _always_read(body: ScalarExpr) -> Iterator[Gather]:
    """Gathers of a body but those on one side of a choice."""
    if isinstance(body, Gather):
        yield body
    parts = (body.condition,) if isinstance(body, Select) else children(body)
    for part in parts:
        yield from _always_read(part)


def _bounds(index: ScalarExpr, load: Load, tensor: Tensor, extent: int) -> tuple[int, int] | None:
    """The smallest and the largest element by which a place within an extent is read.

    Returns:
        None where any element is allowed, or they are no range.
    """
    kind = tensor.element.dtype
    if kind.kind not in "iu" or any(isinstance(it, IndexValue | Gather) for it in walk(index)):
        return None
    limits, reach = np.iinfo(kind), extent + 1
    alone = Load(_TRIED, (var(_TRIED),))
    body = transform(Cast("int64", index), lambda it: alone if it == load else None)
    while True:
        around = range(max(limits.min, -reach), min(limits.max, reach) + 1)
        tried = np.array([limits.min, *around, limits.max], kind)
        allowed = _reads_within(body, tried, extent)
        ends_beyond = [allowed[near] and not allowed[far] for near, far in ((1, 0), (-2, -1))]
        if (allowed.any() and not any(ends_beyond)) or reach > _FARTHEST:
            break
        reach *= 4
    numbers = np.flatnonzero(allowed)
    if not numbers.size or numbers.size == tried.size or np.any(np.diff(numbers) != 1):
        return None
    low = _LEAST if allowed[0] and limits.min else int(tried[numbers[0]])
    return low, _MOST if allowed[-1] else int(tried[numbers[-1]])


def _reads_within(body: ScalarExpr, tried: NDArray[Any], extent: int) -> NDArray[Any]:
    """Tell of each element that is tried if the place is within the extent."""
    found = evaluate_body(body, {_TRIED: np.arange(tried.size)}, {_TRIED: tried})
    places: NDArray[Any] = np.broadcast_to(found, tried.shape)
    return (places >= 0) & (places < extent)


def _requirement(number: int, tensor: Tensor, load: Load, low: int, high: int) -> Requirement:
    """A condition on all elements, or on those at one place along the last axis."""
    place = load.indices[-1].value if load.indices and tensor.shape[-1] > 1 else None
    if place is None:
        least, most = (None if it in (_LEAST, _MOST) else it for it in (low, high))
        return Requirement(number, least, most)
    lows, highs = ([it] * tensor.shape[-1] for it in (_LEAST, _MOST))
    lows[place], highs[place] = low, high
    return Requirement(number, tuple(lows), tuple(highs))


def _divisors(body: ScalarExpr) -> Iterator[str]:
    """The tensors of which elements divide integers, by how :class:`Scalar` writes that."""
    for node in walk(body):
        if isinstance(node, Binary) and node.op in ("div", "mod"):
            right = node.right
            while isinstance(right, Select | Cast):
                if isinstance(right, Cast) and element_type(right.dtype).is_float:
                    break
                right = right.operand if isinstance(right, Cast) else right.on_false
            if isinstance(right, Load):
                yield right.tensor
