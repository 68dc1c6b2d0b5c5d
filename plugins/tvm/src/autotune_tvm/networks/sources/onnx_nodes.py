"""Nodes of ONNX that stand in place of another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

__all__ = ["KnownTensors", "NodeWriter", "constants_of", "replace_nodes"]

Array = NDArray[Any]


@frozen(eq=False)
class KnownTensors:
    """What is known of the tensors of a graph before it runs.

    Attributes:
        types: Shapes (0 for an unknown length) and element types of ONNX, by name.
        constants: Those whose elements are known, by name.
        opset: Version of the operators.
    """

    types: Mapping[str, tuple[tuple[int, ...], int]]
    constants: Mapping[str, Array]
    opset: int


def replace_nodes(
    model: Any,
    shapes: Mapping[str, Sequence[int]],
    kinds: Collection[str],
    done: str,
    write: Callable[[Any, KnownTensors, NodeWriter], bool],
) -> Any:
    """A model with other nodes in place of some; the same one where nothing is replaced.

    Args:
        model: The ``ModelProto``; it is not changed.
        shapes: The lengths of the axes of each input, by its name.
        kinds: Operators that may be replaced.
        done: What was done to a node, for the names of new ones.
        write: Writes what stands in place of a node, or nothing, and says whether it did.

    Raises:
        UnsupportedWorkload: as ``write``.
    """
    if not any(_is_one_of(node, kinds) for node in model.graph.node):
        return model
    from onnx import shape_inference

    described = type(model)()
    described.CopyFrom(model)
    _fix_inputs(described.graph, shapes)
    described = shape_inference.infer_shapes(described, data_prop=True)
    opset = next((it.version for it in model.opset_import if it.domain in ("", "ai.onnx")), 1)
    known = KnownTensors(_types(described.graph), constants_of(model), opset)
    nodes: list[Any] = []
    replaced = False
    for node in model.graph.node:
        writer = NodeWriter(f"{node.name or node.output[0]}.{done}.", known.constants)
        if _is_one_of(node, kinds) and write(node, known, writer):
            nodes += writer.nodes
            described.graph.initializer.extend(writer.initializers())
            replaced = True
        else:
            nodes.append(node)
    if not replaced:
        return model
    del described.graph.node[:]
    described.graph.node.extend(nodes)
    _drop_unread(described.graph)
    return described


def _is_one_of(node: Any, kinds: Collection[str]) -> bool:
    return node.op_type in kinds and not node.domain


def _drop_unread(graph: Any) -> None:
    """Leave out weights that were given another form."""
    read = {name for node in graph.node for name in node.input}
    read |= {value.name for value in (*graph.input, *graph.output)}
    kept = [it for it in graph.initializer if it.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _fix_inputs(graph: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    # What an exporter says of the others may have names for the lengths that are given here.
    del graph.value_info[:]
    for value in graph.input:
        for axis, length in zip(
            value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False
        ):
            axis.dim_value = length


def _types(graph: Any) -> dict[str, tuple[tuple[int, ...], int]]:
    found = {it.name: (tuple(it.dims), it.data_type) for it in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        tensor = value.type.tensor_type
        if tensor.HasField("shape"):
            found[value.name] = (tuple(it.dim_value for it in tensor.shape.dim), tensor.elem_type)
    return found


def constants_of(model: Any) -> dict[str, Array]:
    """The tensors of a graph that are known before it runs, by name."""
    from onnx import numpy_helper

    graph = model.graph
    given = {value.name for value in graph.input}
    found = {
        it.name: numpy_helper.to_array(it) for it in graph.initializer if it.name not in given
    }
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                found[node.output[0]] = numpy_helper.to_array(attribute.t)
    return found


class NodeWriter:
    """Writes nodes one after the other; what they make of constants is computed at once.

    Args:
        prefix: Begins the names of what is written; no other name of the graph begins so.
        constants: Tensors of the graph that are known, by name.
    """

    def __init__(self, prefix: str, constants: Mapping[str, Array]) -> None:
        self._prefix = prefix
        self._known = dict(constants)
        self._count = 0
        self._written: dict[str, Array] = {}
        self.nodes: list[Any] = []
        """What was written, in order."""

    def initializers(self) -> list[Any]:
        """The constants that were written and that the nodes read, as tensors of ONNX."""
        from onnx import numpy_helper

        read = {name for node in self.nodes for name in node.input}
        return [
            numpy_helper.from_array(np.ascontiguousarray(array), name)
            for name, array in self._written.items()
            if name in read
        ]

    def constant(self, array: Array) -> str:
        """A tensor that is known."""
        name = self._name()
        self._known[name] = self._written[name] = array
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output; returns the output's name."""
        from onnx import helper

        output = self._name()
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def rename(self, data: str, output: str) -> None:
        """Let a tensor have another name, too."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [data], [output], name=self._name()))

    def slice(self, data: str, axis: int, start: int, stop: int) -> str:
        """The part of an axis from ``start`` to before ``stop``."""
        if data in self._known:
            index = (slice(None),) * axis + (slice(start, stop),)
            return self.constant(self._known[data][index])
        bounds = [self.constant(np.array([it], np.int64)) for it in (start, stop, axis)]
        return self.op("Slice", data, *bounds)

    def transpose(self, data: str, axes: Sequence[int]) -> str:
        """The axes in another order."""
        if data in self._known:
            return self.constant(self._known[data].transpose(axes))
        return self.op("Transpose", data, perm=list(axes))

    def reshape(self, data: str, shape: Sequence[int]) -> str:
        """The elements in another shape."""
        if data in self._known:
            return self.constant(self._known[data].reshape(shape))
        return self.op("Reshape", data, self.constant(np.array(shape, np.int64)))

    def add(self, one: str, other: str) -> str:
        """The sum."""
        if one in self._known and other in self._known:
            return self.constant(self._known[one] + self._known[other])
        return self.op("Add", one, other)

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"
