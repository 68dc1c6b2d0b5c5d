"""Inputs that a graph can be called with, drawn by what it does with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.ir.expressions import Binary, Cast, IndexValue, Load, ScalarExpr, loads, var
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage, Workload
from autotune.networks.arrays import numpy_type
from autotune.networks.graph import Graph, Loop, Node, Requirement, Value
from autotune.networks.passes.workload_forms import is_elementwise, is_reshape

__all__ = ["EDGES", "graph_examples"]

Array = NDArray[Any]

EDGES = (0.0, -0.0, 1e-4, -1e-4, 16.0, -16.0)
"""Numbers that are none, small or large beside those of a normal distribution. Larger ones would
hide what is wrong elsewhere, and smaller ones are slow on some processors."""
_EDGE_SHARE = 1 / 16


@frozen
class _Use:
    """Conditions on the elements of an input.

    Attributes:
        low: The smallest one that is allowed.
        high: The largest one.
        nonzero: Whether integers are divided by them.
        is_computed: Whether that is said of what is computed of them.
    """

    low: float = -np.inf
    high: float = np.inf
    nonzero: bool = False
    is_computed: bool = False

    def with_other(self, other: _Use) -> _Use:
        """Both conditions."""
        return _Use(
            max(self.low, other.low),
            min(self.high, other.high),
            self.nonzero or other.nonzero,
            self.is_computed or other.is_computed,
        )


def graph_examples(graph: Graph, edges: bool = False) -> tuple[Array, ...]:
    """Random inputs of one seed: those that indices and divisors may be, others as they come.

    Floats are normally distributed. Integers that are compared with all of a range, as those of
    which one-hot vectors are made, are of that range. Others from which indices or divisors are
    computed, and those of more than 8 bits of which nothing is known, are 0 or 1, as every table
    has these.

    Args:
        graph: The network as it was read.
        edges: Whether some of the floats are among :data:`EDGES`.
    """
    uses = _uses(graph)
    rng, marks = np.random.default_rng(0), np.random.default_rng(1)
    found = []
    for value in graph.inputs:
        use = uses.get(value.name)
        if "float" in value.dtype and (use is None or use.is_computed):
            drawn = rng.standard_normal(value.shape)
            if edges and value.size > 1:
                chosen = marks.random(value.shape) < _EDGE_SHARE
                drawn = np.where(chosen, marks.choice(EDGES, value.shape), drawn)
        else:
            drawn = _whole(value, use, rng)
        found.append(drawn.astype(numpy_type(value.dtype)))
    return tuple(found)


def _whole(value: Value, use: _Use | None, rng: np.random.Generator) -> Array:
    """Whole numbers that are allowed."""
    low, high = 0.0, 1.0
    if use is None and value.dtype in ("int8", "uint8"):
        limits = np.iinfo(value.dtype)
        low, high = limits.min, limits.max
    elif use is not None and not use.is_computed and np.isfinite((use.low, use.high)).all():
        low, high = use.low, max(use.low, use.high)
    if use is not None and use.nonzero:
        low, high = max(low, 1.0), max(high, 2.0)
    if value.dtype == "bool":
        low, high = 0.0, 1.0
    return rng.integers(int(low), int(high), value.shape, endpoint=True)


def _uses(graph: Graph) -> dict[str, _Use]:
    """The conditions on each input of which there are some, by its name."""
    found: dict[str, _Use] = {}
    for value, use in _conditions(graph):
        for source, own in _sources(value, use):
            found[source.name] = found.get(source.name, _Use()).with_other(own)
    return found


def _conditions(graph: Graph) -> Iterator[tuple[Value, _Use]]:
    """Values of a graph on which there are conditions, in bodies of loops, too."""
    for node in graph.nodes:
        for it in node.requirements:
            yield node.operands[it.operand], _use_of(it)
        yield from _choices(node)
        if isinstance(node.operation, Loop):
            inner = _uses(node.operation.body)
            for value, own in zip(node.operands, node.operation.body.inputs, strict=True):
                if own.name in inner:
                    yield value, inner[own.name]


def _choices(node: Node) -> Iterator[tuple[Value, _Use]]:
    """Whole numbers that are compared with all of a range, so that they choose of it."""
    workload = node.operation
    if not isinstance(workload, Workload) or not is_elementwise(workload):
        return
    (stage,) = workload.stages
    operands = dict(zip((it.name for it in workload.inputs), node.operands, strict=True))
    for body in walk(stage.body):
        if not isinstance(body, Binary) or body.op != "eq":
            continue
        for one, other in ((body.left, body.right), (body.right, body.left)):
            limits = _limits(one, stage, operands)
            if limits is None:
                continue
            for value in (operands[load.tensor] for load in loads(other)):
                if value.constant is None and value.dtype.removeprefix("u").startswith("int"):
                    yield value, _Use(*limits)


def _limits(
    body: ScalarExpr, stage: Stage, operands: Mapping[str, Value]
) -> tuple[int, int] | None:
    """The least and the largest of a range that a body walks through; None where it is none."""
    body = body.operand if isinstance(body, Cast) else body
    if isinstance(body, IndexValue):
        extents = [it.extent for it in stage.axes if body.index == var(it.name)]
        return (0, extents[0] - 1) if extents else None
    known = operands[body.tensor].constant if isinstance(body, Load) else None
    if known is None or known.size < 2 or known.dtype.kind not in "iu":
        return None
    return int(known.min()), int(known.max())


def _use_of(requirement: Requirement) -> _Use:
    low, high = (
        [] if it is None else [it] if isinstance(it, int) else list(it)
        for it in (requirement.low, requirement.high)
    )
    return _Use(max(low, default=-np.inf), min(high, default=np.inf), requirement.nonzero)


def _sources(value: Value, use: _Use) -> Iterator[tuple[Value, _Use]]:
    """The inputs that a value is, elsewhere or in another type, or is computed of."""
    while not value.is_input and (before := _moved(value.node)) is not None:
        value = before
    if value.is_input:
        yield value, use
        return
    computed = evolve(use, is_computed=True)
    waiting, seen = [value], set()
    while waiting:
        value = waiting.pop()
        if value.is_input:
            yield value, computed
        elif value.node is not None and id(value.node) not in seen:
            seen.add(id(value.node))
            waiting.extend(value.node.operands)


def _moved(node: Node | None) -> Value | None:
    """Value that a node only moves, or converts."""
    if node is None or is_reshape(node):
        return None if node is None else node.operands[0]
    if not isinstance(node.operation, Workload) or not is_elementwise(node.operation):
        return None
    body = node.operation.stages[0].body
    body = body.operand if isinstance(body, Cast) else body
    return node.operands[0] if isinstance(body, Load) and len(node.operands) == 1 else None
