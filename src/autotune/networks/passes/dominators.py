"""Through which node everything goes that is computed from another."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.networks.graph import Graph, Node

__all__ = ["Flow"]


class Flow:
    """Who reads the nodes of a graph, and where their readers meet.

    Nodes are numbers, in the order in which they run.

    Args:
        graph: A graph; bodies of its loops are not looked into.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes: Sequence[Node] = graph.nodes
        self.place = {id(node): number for number, node in enumerate(self.nodes)}
        self._returned = {id(it.node) for it in graph.outputs.values() if it.node is not None}
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for number in range(len(self.nodes)):
            for source in dict.fromkeys(self.sources(number)):
                self.readers[source].append(number)
        self._meet: list[int] = [len(self.nodes)] * len(self.nodes)
        self._depth = [0] * (len(self.nodes) + 1)
        for number in reversed(range(len(self.nodes))):
            found = self._common(number)
            self._meet[number] = found
            self._depth[number] = self._depth[found] + 1

    def sources(self, number: int) -> list[int]:
        """The nodes that a node reads from, by operand; inputs and constants left out."""
        return [
            self.place[id(it.node)] for it in self.nodes[number].operands if it.node is not None
        ]

    def is_returned(self, number: int) -> bool:
        """Return whether the graph returns a result of a node."""
        return id(self.nodes[number]) in self._returned

    def meeting(self, number: int) -> int | None:
        """The first node through which all goes that is computed from a node; None: there is none.

        Of what the graph returns there is none either.
        """
        found = self._meet[number]
        return found if found < len(self.nodes) else None

    def between(self, number: int, meeting: int) -> list[int]:
        """The nodes on the way from a node to where its readers meet, in order."""
        found: set[int] = set()
        waiting = [it for it in self.readers[number] if it != meeting]
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting += [it for it in self.readers[here] if it != meeting]
        return sorted(found)

    def _common(self, number: int) -> int:
        exit_, readers = len(self.nodes), self.readers[number]
        if self.is_returned(number) or not readers:
            return exit_
        found = readers[0]
        for other in readers[1:]:
            while found != other:
                if self._depth[found] >= self._depth[other]:
                    found = exit_ if found == exit_ else self._meet[found]
                else:
                    other = self._meet[other]
        return found
