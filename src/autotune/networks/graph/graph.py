"""Networks as data: values, the nodes that compute them, graphs, and graphs made from graphs.

A value knows the node that computes it, and a node its operands, so a graph is what its outputs
depend on: what nothing needs is in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Stage, Workload
from autotune.runtime.plan import HostOperator, Requirement

__all__ = [
    "Graph",
    "HostOperator",
    "Loop",
    "Node",
    "Operation",
    "Requirement",
    "Value",
    "constant",
    "current_name",
    "input_value",
    "named_after",
    "readers",
    "results_of",
    "rewritten",
]

Array = NDArray[Any]


@frozen(eq=False)
class Value:
    """A tensor of a network: an input, a constant, or one of the results of a node.

    Attributes:
        shape: Extents; they may be 0 where it is a constant.
        dtype: Name of the element type.
        name: What the source calls it, for people; of an input it is unique in a graph.
        constant: What it holds, as programs have it (bfloat16 as ``uint16``), where it is known.
        node: What computes it; None of inputs and constants.
        position: Which of the node's results it is.
    """

    shape: tuple[int, ...]
    dtype: str
    name: str = ""
    constant: Array | None = None
    node: Node | None = None
    position: int = 0

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def is_input(self) -> bool:
        """True of values that the caller gives."""
        return self.constant is None and self.node is None

    @property
    def key(self) -> tuple[object, int]:
        """Equal for values that are the same result, whatever they are called."""
        if self.node is not None:
            return id(self.node), self.position
        return (self.name, -1) if self.is_input else (id(self.constant), -2)

    def named(self, name: str) -> Value:
        """The same value under another name; an input keeps its own."""
        return self if self.is_input else evolve(self, name=name)

    def __repr__(self) -> str:
        return f"Value({self.name!r}, {self.dtype}{list(self.shape)})"


@frozen(eq=False)
class Loop:
    """A graph that runs a number of times, each time with the state that it left.

    Operands of its node are the first states, then what is read a slice at a time, then what every
    step reads whole; inputs of ``body`` are in that order, slices without their first dimension.
    Outputs of ``body`` are the next states, then what is kept of every step. Results are the last
    states, then what was kept, stacked along a first dimension of ``trips``.

    Attributes:
        body: One step.
        trips: How often it runs, at least once.
        states: How many states there are.
        slices: How many operands are read a slice at a time.
        reverse: By operand read in slices, whether it is read from its end.
        kept_reverse: By result kept, whether it is filled from its end.
    """

    body: Graph
    trips: int
    states: int
    slices: int
    reverse: tuple[bool, ...] = ()
    kept_reverse: tuple[bool, ...] = ()


Operation = Workload | HostOperator | Loop


@frozen(eq=False)
class Node:
    """An operation on values.

    Attributes:
        operation: A workload, whose inputs are the operands in order and whose outputs are the
            results; an operator of the host; or a loop.
        operands: What it reads.
        results: Shape and type of each result.
        requirements: What operands must hold.
        name: What the source calls it, for messages.
    """

    operation: Operation
    operands: tuple[Value, ...]
    results: tuple[tuple[tuple[int, ...], str], ...]
    requirements: tuple[Requirement, ...] = ()
    name: str = ""

    @property
    def label(self) -> str:
        """A name for messages."""
        if self.name:
            return self.name
        kind = self.operation
        if isinstance(kind, Loop):
            return "loop"
        return kind.kind if isinstance(kind, HostOperator) else kind.name

    @property
    def is_reshape(self) -> bool:
        """True if it changes the shape alone."""
        return isinstance(self.operation, HostOperator) and self.operation.kind == "reshape"

    @property
    def pointwise(self) -> Stage | None:
        """The one stage of a workload that computes each element on its own; None of all else."""
        if not isinstance(self.operation, Workload) or len(self.operation.stages) > 1:
            return None
        (stage,) = self.operation.stages
        return stage if stage.combiner is None else None

    @property
    def named_operands(self) -> dict[str, Value]:
        """Operands of a workload by the names of its inputs."""
        assert isinstance(self.operation, Workload)
        names = (it.name for it in self.operation.inputs)
        return dict(zip(names, self.operands, strict=True))

    def check(self, arrays: Sequence[Array]) -> None:
        """Check what its operands hold.

        Raises:
            InvalidValueError: an integer would be divided by zero, or an index is out of range.
        """
        for requirement in self.requirements:
            requirement.check(arrays[requirement.operand], self.label)


@frozen(eq=False)
class Graph:
    """A network.

    Attributes:
        inputs: What its caller gives, each with a name of its own.
        outputs: What it returns, by name: results of nodes, constants, or inputs as they are.

    Raises:
        InvalidValueError: two inputs have one name, or an output depends on what is no input.
    """

    inputs: tuple[Value, ...]
    outputs: dict[str, Value]

    def __attrs_post_init__(self) -> None:
        names = [value.name for value in self.inputs]
        for name in names:
            if names.count(name) > 1:
                raise InvalidValueError(f"two inputs are called {name!r}")
        known = {value.key for value in self.inputs}
        for value in self._read():
            if value.is_input and value.key not in known:
                raise InvalidValueError(f"{value!r} is read, and is no input: {names}")

    def _read(self) -> Iterator[Value]:
        for node in self.nodes:
            yield from node.operands
        yield from self.outputs.values()

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that an output depends on, each behind those that it reads from."""
        done: dict[int, Node] = {}
        waiting = [value.node for value in reversed([*self.outputs.values()]) if value.node]
        while waiting:
            node = waiting[-1]
            missing = [
                it.node for it in node.operands if it.node is not None and id(it.node) not in done
            ]
            if missing and id(node) not in done:
                waiting.extend(reversed(missing))
                continue
            waiting.pop()
            done.setdefault(id(node), node)
        return tuple(done.values())

    @property
    def constants(self) -> tuple[Value, ...]:
        """Every constant that a node reads or that is an output, each once."""
        found = {it.key: it for it in self._read() if it.constant is not None}
        return tuple(found.values())

    @cached_property
    def runs(self) -> tuple[tuple[Node, int], ...]:
        """Every node and how often a call runs it, a loop before the nodes of its body."""
        return tuple(_runs(self, 1))

    @property
    def workloads(self) -> dict[Workload, int]:
        """Number of runs of each workload in one call; workloads are equal in names, too."""
        counts: dict[str, int] = {}
        by_spelling: dict[str, Workload] = {}
        for node, times in self.runs:
            workload = node.operation
            if isinstance(workload, Workload):
                by_spelling.setdefault(workload.spelling, workload)
                counts[workload.spelling] = counts.get(workload.spelling, 0) + times
        return {by_spelling[spelling]: count for spelling, count in counts.items()}


def _runs(graph: Graph, times: int) -> Iterator[tuple[Node, int]]:
    for node in graph.nodes:
        yield node, times
        if isinstance(node.operation, Loop):
            for inner, trips in node.operation.body.runs:
                yield inner, times * node.operation.trips * trips


def results_of(node: Node) -> tuple[Value, ...]:
    """The values that a node computes."""
    return tuple(
        Value(shape, dtype, node.name, None, node, position)
        for position, (shape, dtype) in enumerate(node.results)
    )


def constant(array: Any, dtype: str | None = None, name: str = "") -> Value:
    """A value that is known.

    Args:
        array: Its elements; of bfloat16 either numbers, or their bits as ``uint16``.
        dtype: Name of its type; that of the array by default.
        name: What the source calls it.

    Raises:
        InvalidValueError: there is no such type.
    """
    given = np.asarray(array)
    if dtype is None:
        return Value(given.shape, given.dtype.name, name, given)
    element = element_type(dtype)
    stored = given if given.dtype == element.dtype else element.stored(given)
    return Value(given.shape, dtype, name, stored)


def input_value(name: str, shape: Sequence[int], dtype: str) -> Value:
    """An input of a graph; where it has no elements there is nothing to give: a constant."""
    if 0 in shape:
        return Value(tuple(shape), dtype, name, np.empty(tuple(shape), element_type(dtype).dtype))
    return Value(tuple(shape), dtype, name)


_NAME = ContextVar("name of the node that is read", default="")


@contextmanager
def named_after(name: str) -> Iterator[None]:
    """Call nodes so that are made inside, and are given no other name; "" for no change."""
    token = _NAME.set(name or _NAME.get())
    try:
        yield
    finally:
        _NAME.reset(token)


def current_name() -> str:
    """The name of nodes that are made now; "" where there is none."""
    return _NAME.get()


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
    """Return the readers of each value, by its key.

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
