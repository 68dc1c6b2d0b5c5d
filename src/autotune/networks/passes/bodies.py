"""A change of a graph that bodies of loops undergo, too, each on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from autotune.networks.graph import Graph, Loop, Node, Value, rewritten
from autotune.networks.graph.graph import results_of

__all__ = ["with_bodies"]


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
