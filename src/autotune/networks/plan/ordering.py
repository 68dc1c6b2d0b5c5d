"""An order of nodes in which little memory is needed at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autotune.ir.element_types import element_type
from autotune.networks.graph import Graph, HostOperator, Node, Value
from autotune.networks.graph.graph import results_of

__all__ = ["ordered"]

# What another order has to save: that of the graph follows its layers, whose results are in cache.
_WORTH_IT = 0.95


def ordered(graph: Graph) -> Sequence[Node]:
    """The nodes of a graph, each behind those that it reads from.

    In the graph's own order, unless one in which the node that takes the least memory comes next
    needs less at its peak.
    """
    own = graph.nodes
    memory = _Memory(graph, own)
    other = memory.greedy(own)
    return other if memory.peak(other) < _WORTH_IT * memory.peak(own) else own


class _Memory:
    """Bytes that the values of a graph take, and which nodes need them."""

    def __init__(self, graph: Graph, nodes: Sequence[Node]) -> None:
        self._roots: dict[object, object] = {}
        self._sizes: dict[object, int] = {}
        self._uses: dict[object, int] = {}
        for node in nodes:
            for result in results_of(node):
                if _is_view(node):
                    self._roots[result.key] = self._root(node.operands[0])
                else:
                    self._sizes[result.key] = _bytes_of(result)
            for key in self._read(node):
                self._uses[key] = self._uses.get(key, 0) + 1
        for value in graph.outputs.values():
            self._uses[self._root(value)] = len(nodes) + 1

    def peak(self, nodes: Sequence[Node]) -> int:
        """The most bytes that are needed at a time."""
        left, now, most = dict(self._uses), 0, 0
        for node in nodes:
            now += self._made(node)
            most = max(most, now)
            now -= self._freed(node, left, is_done=True)
        return most

    def greedy(self, nodes: Sequence[Node]) -> list[Node]:
        """An order in which the next node is the one that adds least."""
        left = dict(self._uses)
        known = {id(node) for node in nodes}
        missing = {
            id(node): len({id(it.node) for it in node.operands if id(it.node) in known})
            for node in nodes
        }
        readers: dict[int, list[Node]] = {}
        for node in nodes:
            for source in {id(it.node) for it in node.operands if id(it.node) in known}:
                readers.setdefault(source, []).append(node)
        rank = {id(node): number for number, node in enumerate(nodes)}
        ready = [node for node in nodes if not missing[id(node)]]
        found = []
        while ready:
            costs = (
                (self._made(it) - self._freed(it, left, is_done=False), rank[id(it)], at)
                for at, it in enumerate(ready)
            )
            node = ready.pop(min(costs)[2])
            self._freed(node, left, is_done=True)
            found.append(node)
            for reader in readers.get(id(node), ()):
                missing[id(reader)] -= 1
                if not missing[id(reader)]:
                    ready.append(reader)
        return found

    def _root(self, value: Value) -> object:
        return self._roots.get(value.key, value.key)

    def _read(self, node: Node) -> set[object]:
        if _is_view(node):
            return set()
        return {self._root(value) for value in node.operands if value.constant is None}

    def _made(self, node: Node) -> int:
        return sum(self._sizes.get(it.key, 0) for it in results_of(node))

    def _freed(self, node: Node, left: dict[object, int], *, is_done: bool) -> int:
        """Bytes that are needed no longer behind a node; once it is done, that is noted."""
        freed = 0
        for key in self._read(node):
            if left[key] == 1:
                freed += self._sizes.get(key, 0)
            if is_done:
                left[key] -= 1
        unread = (it.key for it in results_of(node) if it.key not in self._uses)
        freed += sum(self._sizes.get(key, 0) for key in unread)
        return freed


def _is_view(node: Node) -> bool:
    return isinstance(node.operation, HostOperator) and node.operation.kind == "reshape"


def _bytes_of(value: Value) -> int:
    return prod(value.shape) * element_type(value.dtype).bytes
