"""Operators of ONNX that are functions of others, by what the package onnx says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.networks.graph import Value
from autotune.networks.readers.onnx.call import Item
from autotune.networks.readers.onnx.tensors import type_number

__all__ = ["expansion"]


def expansion(
    schema: Any,
    node: Any,
    inputs: Sequence[Item],
    stated: Mapping[str, Any],
    version: int,
) -> Any:
    """The function that an operator is.

    Args:
        schema: What ONNX says of the operator; None where it is none of its.
        node: Its node.
        inputs: What it reads.
        stated: Its attributes.
        version: Of the operators of the model.

    Returns:
        A ``FunctionProto``; None where the operator is no function.
    """
    if schema is None:
        return None
    if schema.has_function:
        versions = [it for it in schema.function_opset_versions if it <= version]
        if versions:
            return _parsed(schema.get_function_with_opset_version(max(versions)))
    if schema.has_context_dependent_function:
        versions = [it for it in schema.context_dependent_function_opset_versions if it <= version]
        if versions:
            types = [_type(item).SerializeToString() for item in inputs]
            return _parsed(
                schema.get_context_dependent_function_with_opset_version(
                    max(versions), _plain_node(node, stated).SerializeToString(), types
                )
            )
    return None


def _parsed(content: Any) -> Any:
    from onnx import FunctionProto

    if isinstance(content, FunctionProto):
        return content
    return FunctionProto.FromString(content) if content else None


def _plain_node(node: Any, stated: Mapping[str, Any]) -> Any:
    """The node with the attributes of the function that it is in."""
    found = type(node)()
    found.CopyFrom(node)
    del found.attribute[:]
    found.attribute.extend(stated.values())
    return found


def _type(item: Item) -> Any:
    from onnx import TypeProto, helper

    if isinstance(item, Value):
        return helper.make_tensor_type_proto(type_number(item.dtype), item.shape)
    return TypeProto()
