"""Nodes that compute the same are one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from attrs import evolve

from autotune.ir.workloads import Workload
from autotune.networks.graph import Graph, HostOperator, Node, Value, rewritten
from autotune.networks.graph.graph import results_of
from autotune.networks.passes.workload_forms import with_bodies
from autotune.targets import Target

__all__ = ["merge_equal"]

_SAMPLED = 64


def merge_equal(graph: Graph, machine: Target) -> tuple[Graph, str]:
    """Leave out nodes that compute what another one does: equal operations on equal operands.

    Constants are equal that hold the same. Loops are left as they are, but for their bodies.

    Args:
        graph: A network.
        machine: Not asked.
    """
    count = 0

    def merged(one: Graph) -> Graph:
        nonlocal count
        found, here = _merged(one)
        count += here
        return found if here else one

    return with_bodies(graph, merged), f"{count} nodes" if count else ""


def _merged(graph: Graph) -> tuple[Graph, int]:
    first: dict[Hashable, tuple[Value, ...]] = {}
    constants = _Constants()
    count = 0

    def change(node: Node, operands: tuple[Value, ...]) -> Sequence[Value] | None:
        nonlocal count
        operation = _identity(node)
        if operation is None:
            return None
        read = tuple(constants.key(it) for it in operands)
        key = (operation, read, node.results, node.requirements)
        if key in first:
            count += 1
            return first[key]
        same = all(new is old for new, old in zip(operands, node.operands, strict=True))
        first[key] = results_of(node if same else evolve(node, operands=operands))
        return first[key]

    return rewritten(graph, change, loops=False), count


def _identity(node: Node) -> Hashable:
    """Equal for operations that compute the same of the same operands; None of loops."""
    operation = node.operation
    if isinstance(operation, Workload):
        return operation.inputs, operation.stages, operation.outputs, operation.external
    if isinstance(operation, HostOperator):
        return operation.kind, repr(sorted(operation.attributes.items()))
    return None


class _Constants:
    """Keys of values: of constants what they hold."""

    def __init__(self) -> None:
        self._keys: dict[int, Hashable] = {}
        self._alike: dict[Hashable, list[Value]] = {}

    def key(self, value: Value) -> Hashable:
        """Equal for values that are the same."""
        if value.constant is None:
            return value.key
        name = id(value.constant)
        if name not in self._keys:
            self._keys[name] = self._representative(value)
        return self._keys[name]

    def _representative(self, value: Value) -> Hashable:
        assert value.constant is not None
        array = np.atleast_1d(value.constant)
        # Taken by their places: what is transposed in memory would be copied as a whole.
        places = np.arange(0, array.size, max(1, array.size // _SAMPLED))
        sample = array[np.unravel_index(places, array.shape)].tobytes()
        alike = self._alike.setdefault((value.shape, value.dtype, sample), [])
        for other in alike:
            if _hold_the_same(value, other):
                return other.key
        # Kept, so that no other array is given its place in memory.
        alike.append(value)
        return value.key


def _hold_the_same(one: Value, other: Value) -> bool:
    """Return whether two constants of one shape and type are equal bit by bit."""
    assert one.constant is not None and other.constant is not None
    left, right = (np.ascontiguousarray(it.constant).view(np.uint8) for it in (one, other))
    return bool(np.array_equal(left, right))
