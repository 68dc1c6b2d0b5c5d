"""From the core's graph to a Relax module: every workload is a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import Workload
from autotune.networks.graph import Graph, HostOperator, Node, Value
from autotune_tvm.emit import module_for
from autotune_tvm.networks.graph import ENTRY

__all__ = ["write_graph"]

_BFLOAT16 = "bfloat16"


def write_graph(graph: Graph, returned: Any) -> IRModule:
    """A module whose function ``main`` is the network.

    Args:
        graph: Its nodes are workloads, and operators of the host that Relax has, too.
        returned: The type of what ``main`` returns, whose tensors are the outputs in order: a
            tensor, or a tuple of such types.

    Raises:
        UnsupportedWorkload: Relax has no such operator; names it.
    """
    _check(graph)
    builder = relax.BlockBuilder()
    known: dict[object, Any] = {}
    functions: dict[str, Any] = {}
    parameters = []
    for value in graph.inputs:
        known[value.key] = relax.Var(value.name, _type(value))
        parameters.append(known[value.key])

    def given(value: Value) -> Any:
        if value.key not in known:
            known[value.key] = _constant(value)
        return known[value.key]

    with builder.function(ENTRY, parameters):
        with builder.dataflow():
            for node in graph.nodes:
                call = _call(builder, functions, node, [given(it) for it in node.operands])
                found = builder.emit(call)
                several = len(node.results) > 1
                for position in range(len(node.results)):
                    result = relax.TupleGetItem(found, position) if several else found
                    known[id(node), position] = builder.emit(result) if several else result
            outputs = iter([given(value) for value in graph.outputs.values()])
            result = builder.emit_output(_result(returned, outputs))
        builder.emit_func_output(result)
    return builder.get()


def _check(graph: Graph) -> None:
    for node in graph.nodes:
        operation = node.operation
        kind = operation.kind if isinstance(operation, HostOperator) else "loop"
        if not isinstance(operation, Workload) and kind not in _OPERATORS:
            listed = ", ".join(_OPERATORS)
            raise UnsupportedWorkload(
                f"Relax has no operator {kind!r} ({node.label}); those of the host that it has "
                f"are {listed}"
            )


def _result(kind: Any, outputs: Iterator[Any]) -> Any:
    if isinstance(kind, relax.TupleType):
        return relax.Tuple([_result(field, outputs) for field in kind.fields])
    return next(outputs)


def _type(value: Value) -> Any:
    return relax.TensorType(value.shape, value.dtype)


def _constant(value: Value) -> Any:
    array = value.constant
    assert array is not None  # what is no constant is an input or a result
    if value.dtype == _BFLOAT16:
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return relax.const(np.ascontiguousarray(array).reshape(value.shape), value.dtype)


def _call(builder: Any, functions: dict[str, Any], node: Node, operands: list[Any]) -> Any:
    operation = node.operation
    if isinstance(operation, Workload):
        if operation.spelling not in functions:
            function = module_for(operation)[ENTRY].without_attr("global_symbol")
            name = re.sub(r"\W+", "_", operation.name)
            functions[operation.spelling] = builder.add_func(function, name)
        types = [relax.TensorType(shape, dtype) for shape, dtype in node.results]
        return relax.call_tir(functions[operation.spelling], relax.Tuple(operands), types)
    assert isinstance(operation, HostOperator)  # loops were refused
    return _OPERATORS[operation.kind](operands, operation.attributes, node)


def _sort(operands: list[Any], attributes: Mapping[str, Any], node: Node) -> Any:
    count, axis, largest = (attributes[it] for it in ("count", "axis", "descending"))
    return relax.op.topk(operands[0], count, axis, "both", largest, "int64")


def _scatter_along(operands: list[Any], attributes: Mapping[str, Any], node: Node) -> Any:
    combiner = attributes["combiner"] or "update"
    return relax.op.scatter_elements(*operands, axis=attributes["axis"], reduction=combiner)


def _scatter_nd(operands: list[Any], attributes: Mapping[str, Any], node: Node) -> Any:
    return relax.op.scatter_nd(*operands, reduction=attributes["combiner"] or "update")


_OPERATORS: Mapping[str, Callable[[list[Any], Mapping[str, Any], Node], Any]] = MappingProxyType(
    {
        "reshape": lambda operands, _, node: relax.op.reshape(operands[0], node.results[0][0]),
        "sort": _sort,
        "scatter_along": _scatter_along,
        "scatter_nd": _scatter_nd,
    }
)
"""Operators of the host that Relax has, too."""
