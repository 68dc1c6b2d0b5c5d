"""Nodes of ONNX that draw random numbers, or that compute as in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from autotune.errors import UnsupportedWorkload

__all__ = ["check_deterministic"]


def check_deterministic(model: Any, constants: Mapping[str, Any]) -> None:
    """Refuse a model that computes something else in every call, or as in training.

    Operators that draw have a seed, by their definitions; what turns training on, or off, is an
    attribute or an input of the others.

    Args:
        model: The ``ModelProto``.
        constants: The tensors of its graphs that are known, by name.

    Raises:
        UnsupportedWorkload: names the first such node.
    """
    versions = {it.domain: it.version for it in model.opset_import}
    for node in _nodes(model):
        problem = _problem(node, versions, constants)
        if problem:
            name = node.name or node.output[0]
            raise UnsupportedWorkload(f"node {name!r} ({node.op_type}) {problem}")


def _nodes(model: Any) -> Iterator[Any]:
    """Those of all graphs and functions of a model."""
    left = [model.graph, *model.functions]
    while left:
        for node in left.pop().node:
            yield node
            for attribute in node.attribute:
                left += [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]


def _problem(node: Any, versions: Mapping[str, int], constants: Mapping[str, Any]) -> str:
    """Why a node cannot be imported; "" where it is none of these."""
    from onnx import defs

    version = versions.get(node.domain, versions.get("ai.onnx" if not node.domain else "", 1))
    try:
        schema = defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        return ""  # of another domain, or a function
    trains = _trains(node, schema, constants)
    if "seed" in schema.attributes and trains is not False:
        return (
            "draws random numbers, and a network computes the same in every call; export the "
            "model for inference, or let it take them as an input"
        )
    return "computes as in training; export the model for inference" if trains else ""


def _trains(node: Any, schema: Any, constants: Mapping[str, Any]) -> bool | None:
    """Whether a node is in training mode; None where its operator has none."""
    given = {it.name: it.i for it in node.attribute}
    if "training_mode" in schema.attributes:
        return bool(given.get("training_mode", 0))
    names = [it.name for it in schema.inputs]
    if "training_mode" in names:
        at = names.index("training_mode")
        name = node.input[at] if at < len(node.input) else ""
        # One that is not known may be anything.
        return bool(np.any(constants.get(name, True))) if name else False
    if node.op_type == "BatchNormalization":
        return sum(map(bool, node.output)) > 1  # the definition before there was the attribute
    return not given.get("is_test", 0) if "is_test" in schema.attributes else None
