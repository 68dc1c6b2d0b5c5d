"""Graphs made from graphs, and who reads what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.networks.graph.graph import Graph, Loop, Node, Value, named_after, results_of

__all__ = ["Change", "readers", "rewritten"]

Change = Callable[[Node, tuple[Value, ...]], Sequence[Value] | None]
"""From a node and its operands in the new graph to what takes its results' places, of the same
shapes and types; None to keep it."""


def rewritten(graph: Graph, change: Change, loops: bool = True) -> Graph:
    """The graph with other values in the place of what some nodes compute.

    Nodes are seen in order. What nothing reads any more is in the new graph no longer; a node of
    which nothing changes is the same object there, so that a graph that nothing changes keeps
    every node. What is made in the place of a node is called after it.

    Args:
        graph: The network.
        change: Says what takes the place of a node.
        loops: Whether bodies of loops are rewritten, too.

    Raises:
        InvalidValueError: ``change`` returned values of other shapes or types.
    """
    new: dict[object, Value] = {}

    def mapped(value: Value) -> Value:
        return new.get(value.key, value)

    for node in graph.nodes:
        operands = tuple(mapped(value) for value in node.operands)
        whole = _with_body(node, change) if loops else node
        with named_after(node.name):
            found = change(whole, operands)
        old = results_of(node)
        if found is None:
            if whole is node and all(a is b for a, b in zip(operands, node.operands, strict=True)):
                continue
            found = results_of(evolve(whole, operands=operands))
        _check(node, old, found)
        new.update({value.key: it for value, it in zip(old, found, strict=True)})
    return Graph(graph.inputs, {name: mapped(it) for name, it in graph.outputs.items()})


def _with_body(node: Node, change: Change) -> Node:
    operation = node.operation
    if not isinstance(operation, Loop):
        return node
    body = rewritten(operation.body, change)
    same = all(body.outputs[it] is operation.body.outputs[it] for it in body.outputs)
    return node if same else evolve(node, operation=evolve(operation, body=body))


def _check(node: Node, old: Sequence[Value], new: Sequence[Value]) -> None:
    if [(it.shape, it.dtype) for it in old] != [(it.shape, it.dtype) for it in new]:
        raise InvalidValueError(f"{node.label}: {list(new)} cannot take the place of {list(old)}")


def readers(graph: Graph) -> dict[object, list[tuple[Node | None, int]]]:
    """Who reads each value, by its key.

    Returns:
        Nodes and the number of the operand; None, and the number of the output, where the graph
        returns it. Values that nothing reads have no entry.
    """
    found: dict[object, list[tuple[Node | None, int]]] = {}
    for node in graph.nodes:
        for number, value in enumerate(node.operands):
            found.setdefault(value.key, []).append((node, number))
    for number, value in enumerate(graph.outputs.values()):
        found.setdefault(value.key, []).append((None, number))
    return found
