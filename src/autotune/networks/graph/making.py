"""Nodes made, or evaluated at once where all that they read is known; graphs evaluated.

Which indices a workload may be given that reads where data says, the operation that makes its node
knows; of a workload that somebody else wrote it is found by trying all indices around the range
that it reads.

Operators without a schedule run on the host, in numpy: floating-point numbers arrive in a type
that it computes with, and what is returned is rounded to the type of the node's results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import define, evolve, field
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
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

__all__ = [
    "DistinctArrays",
    "BITWISE",
    "FUNCTIONS",
    "HALVES",
    "HOST_OPERATORS",
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
    "run_on_host",
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


_LOOKED_AT = 1024
"""Elements by which arrays that may be equal are told apart, before all of them is compared."""


@define(eq=False)
class DistinctArrays:
    """Arrays, of which those that hold the same bytes are one.

    Each is kept, so that no other one is given its place in memory.
    """

    _firsts: dict[int, tuple[Array, Array]] = field(factory=dict)
    _alike: dict[Hashable, list[Array]] = field(factory=dict)

    def first(self, array: Array, kind: Hashable) -> Array:
        """The first array of a kind and these bytes that was asked for."""
        if id(array) not in self._firsts:
            look = kind, array.flat[:_LOOKED_AT].tobytes()
            alike = self._alike.setdefault(look, [])
            found = next((it for it in alike if _hold_the_same(array, it)), None)
            if found is None:
                alike.append(array)
            self._firsts[id(array)] = array, array if found is None else found
        return self._firsts[id(array)][1]


def _hold_the_same(one: Array, other: Array) -> bool:
    left, right = (np.ascontiguousarray(it).reshape(-1).view(np.uint8) for it in (one, other))
    return bool(np.array_equal(left, right))


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


Attributes = Mapping[str, Any]


def _gamma_log(number: float) -> float:
    """The logarithm of the size of the gamma function; infinite at its poles, as C has it."""
    try:
        return math.lgamma(number)
    except (OverflowError, ValueError):
        return math.inf


FUNCTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "tan": np.tan,
        "asin": np.arcsin,
        "acos": np.arccos,
        "atan": np.arctan,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "asinh": np.arcsinh,
        "acosh": np.arccosh,
        "atanh": np.arctanh,
        "expm1": np.expm1,
        "log1p": np.log1p,
        "exp2": np.exp2,
        "log2": np.log2,
        "log10": np.log10,
        "gamma_log": np.vectorize(_gamma_log, otypes=[np.float64]),
        "atan2": np.arctan2,
        "hypot": np.hypot,
        "next_after": np.nextafter,
    }
)
"""Functions of the C library that expressions do not have, of one or two floats."""

BITWISE: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "bit_and": np.bitwise_and,
        "bit_or": np.bitwise_or,
        "bit_xor": np.bitwise_xor,
        "bit_not": np.bitwise_not,
        "shift_left": np.left_shift,
        "shift_right": np.right_shift,
    }
)
"""Functions of the bits of integers. Shifts by the width or more leave nothing but the sign."""

_UPDATES: Mapping[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def run_on_host(node: Node, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The results of an operator of the host.

    Args:
        node: Its node.
        arrays: Its operands, as programs have them.

    Raises:
        UnknownNameError: there is no such operator.
    """
    operator = node.operation
    assert isinstance(operator, HostOperator)
    if operator.kind not in HOST_OPERATORS:
        raise UnknownNameError("operator of the host", operator.kind, HOST_OPERATORS)
    numbers = [
        element_type(value.dtype).numbers(array)
        for value, array in zip(node.operands, arrays, strict=True)
    ]
    with np.errstate(all="ignore"):
        found = HOST_OPERATORS[operator.kind](numbers, {**operator.attributes})
        return tuple(
            element_type(dtype).stored(np.asarray(array)).reshape(shape)
            for array, (shape, dtype) in zip(found, node.results, strict=True)
        )


def _function(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    name = attributes["function"]
    own = name == "next_after"
    wide = (array if own else array.astype(np.float64) for array in arrays)
    return (FUNCTIONS[name](*wide),)


def _sort(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Sorted along an axis, NaN as the largest number, equal ones in their order."""
    array, axis = arrays[0], attributes["axis"]
    if attributes["descending"]:
        backwards = np.argsort(np.flip(array, axis), axis=axis, kind="stable")
        order = array.shape[axis] - 1 - np.flip(backwards, axis)
    else:
        order = np.argsort(array, axis=axis, kind="stable")
    order = np.take(order, np.arange(attributes["count"]), axis=axis)
    return np.take_along_axis(array, order, axis), order


def _nonzero(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Places of what is not zero, in order, then -1; and how many there are."""
    found = np.argwhere(arrays[0])
    places = np.full((attributes["bound"], arrays[0].ndim), -1, np.int64)
    places[: len(found)] = found[: len(places)]
    return places, np.asarray(len(found))


def _unique(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Different slices along an axis: values, first places, inverse, counts, how many there are.

    Results are as long as the axis; what is behind those that there are is 0.
    """
    array, axis = arrays[0], attributes["axis"]
    if array.dtype == np.float16:
        # Of slices of halves, numpy takes NaN for the smallest number.
        array = array.astype(np.float32)
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not attributes["sorted"]:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values, first, counts = np.take(values, order, axis), first[order], counts[order]
        inverse = rank[inverse]
    length, found = array.shape[axis], len(first)

    def filled(part: Array, along: int) -> Array:
        widths = [(0, length - found if at == along else 0) for at in range(part.ndim)]
        return np.pad(part, widths)

    whole = filled(values, axis), filled(first, 0), inverse, filled(counts, 0)
    return (*whole, np.asarray(found))


def _scatter_along(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    array, indices, updates = arrays
    axis, combiner = attributes["axis"], attributes["combiner"]
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = np.where(indices < 0, indices + array.shape[axis], indices)
    return (_updated(array, tuple(places), updates, combiner),)


def _scatter_nd(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    array, indices, updates = arrays
    depth = indices.shape[-1]
    wrapped = np.where(indices < 0, indices + np.array(array.shape[:depth]), indices)
    places = tuple(np.moveaxis(wrapped, -1, 0))
    return (_updated(array, places, updates, attributes["combiner"]),)


def _updated(array: Array, places: tuple[Any, ...], updates: Array, combiner: str) -> Array:
    wide = array.astype(np.float64 if array.dtype.kind == "f" else array.dtype)
    if combiner:
        _UPDATES[combiner].at(wide, places, updates)
    else:
        wide[places] = updates
    return wide


def _non_max_suppression(arrays: Sequence[Array], attributes: Attributes) -> Sequence[Array]:
    """Boxes that are kept (batch, class, box), then -1; and how many there are.

    Boxes of a class are kept by falling score, at most ``most`` of them, where none before
    overlaps by more than a share of their union.
    """
    boxes, scores = arrays[0].astype(np.float64), arrays[1]
    corners = _corners(boxes, attributes["centred"])
    kept: list[tuple[int, int, int]] = []
    for batch, kind in np.ndindex(scores.shape[:2]):
        own = scores[batch, kind]
        order = np.argsort(-own.astype(np.float64), kind="stable")
        chosen: list[int] = []
        for box in order[own[order] > attributes["score"]]:
            if len(chosen) >= attributes["most"]:
                break
            if not np.any(_overlap(corners[batch], box, chosen) > attributes["overlap"]):
                chosen.append(int(box))
        kept += [(batch, kind, box) for box in chosen]
    places = np.full((attributes["bound"], 3), -1, np.int64)
    places[: len(kept)] = np.asarray(kept, np.int64).reshape(-1, 3)
    return places, np.asarray(len(kept))


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as their lower and upper corners."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return np.concatenate([first - second / 2, first + second / 2], axis=-1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=-1)


def _overlap(corners: Array, box: int, others: Sequence[int]) -> Array:
    """The share of the union of a box and each of the others that is in both."""
    one, rest = corners[box], corners[list(others)]
    sides = np.minimum(one[2:], rest[:, 2:]) - np.maximum(one[:2], rest[:, :2])
    both = np.prod(np.maximum(sides, 0), axis=-1)
    sizes = np.prod(corners[..., 2:] - corners[..., :2], axis=-1)
    union = sizes[box] + sizes[list(others)] - both
    return np.asarray(np.divide(both, union, out=np.zeros_like(both), where=union > 0))


HOST_OPERATORS: Mapping[str, Callable[[Sequence[Array], Attributes], Sequence[Array]]] = (
    MappingProxyType(
        {
            "reshape": lambda arrays, told: (arrays[0].reshape(told["shape"]),),
            "function": _function,
            "bitwise": lambda arrays, told: (BITWISE[told["function"]](*arrays),),
            "sort": _sort,
            "nonzero": _nonzero,
            "unique": _unique,
            "scatter_along": _scatter_along,
            "scatter_nd": _scatter_nd,
            "non_max_suppression": _non_max_suppression,
            "determinant": lambda arrays, _: (np.linalg.det(arrays[0].astype(np.float64)),),
        }
    )
)
"""Operators of the host by name: from operands and attributes to results."""
