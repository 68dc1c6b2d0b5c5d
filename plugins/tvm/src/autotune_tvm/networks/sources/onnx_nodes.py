"""Nodes of ONNX that stand in place of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NodeWriter", "constants_of"]

Array = NDArray[Any]


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
