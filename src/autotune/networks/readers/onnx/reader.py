"""From the nodes of a model of ONNX, and the functions that some of them are, to values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import define, field, frozen

from autotune.errors import AutotuneError, InvalidValueError, UnsupportedWorkload, one_line
from autotune.networks.graph import Value
from autotune.networks.graph.graph import current_name, named_after
from autotune.networks.readers.onnx.call import (
    Body,
    Call,
    Dequantised,
    Item,
    RowTracker,
    ValueNeeded,
)
from autotune.networks.readers.onnx.model_file import (
    ModelFile,
    sparse_value,
    tensor_value,
    type_number,
)
from autotune.networks.readers.onnx.operators import OPERATORS

__all__ = ["ModelReader"]

_ONNX = ("", "ai.onnx")

_REASONS = {
    "ImageDecoder": "it decodes files of images, which comes before a network: give the network "
    "decoded images",
    "TfIdfVectorizer": "it counts the words of a text, which comes before a network: give the "
    "network what it makes",
}


@define(eq=False)
class Scope:
    """Names of a graph or function, and what they stand for.

    Attributes:
        opsets: Versions of operators by domain.
        parent: The graph around it, whose names it may use.
        items: What is known by name.
        tensors: Constants that nothing has read yet.
        attributes: Those that a function is called with, as the protocol has them.
        replaced: What stands in place of values of graphs around it.
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    items: dict[str, Item] = field(factory=dict)
    tensors: dict[str, Any] = field(factory=dict)
    attributes: Mapping[str, Any] = field(factory=dict)
    replaced: Mapping[tuple[object, int], Value] = field(factory=dict)


@frozen(eq=False)
class ModelReader:
    """Reads the graph of a model, and all that it calls.

    Attributes:
        file: The model.
        tracker: Finds tensors that are as long as data says.
    """

    file: ModelFile
    tracker: RowTracker = field(factory=RowTracker, init=False)
    _dequantised: dict[tuple[object, int], Dequantised] = field(factory=dict, init=False)

    @property
    def _functions(self) -> dict[tuple[str, str, str], Any]:
        return {(it.domain, it.name, it.overload): it for it in self.file.model.functions}

    def outputs(self, inputs: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs of the model.

        Args:
            inputs: By name what its inputs are: inputs of a graph, or constants.

        Raises:
            UnsupportedWorkload: a node cannot be read; names it.
            ValueNeeded: an input has to be known.
            InvalidValueError: a tensor is damaged, or a constant is not what a node may get.
        """
        model = self.file.model
        scope = Scope({it.domain: it.version for it in model.opset_import}, items=dict(inputs))
        items = self._graph(model.graph, scope)
        found: dict[str, Value] = {}
        for declared, item in zip(model.graph.output, items, strict=True):
            if not isinstance(item, Value):
                raise UnsupportedWorkload(f"output {declared.name!r} is no tensor")
            found[declared.name] = item
        return found

    def _graph(self, graph: Any, scope: Scope) -> list[Item]:
        """The outputs of a graph whose inputs are in its scope."""
        for tensor in graph.initializer:
            if tensor.name not in scope.items:
                scope.tensors[tensor.name] = tensor
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            scope.items.setdefault(name, sparse_value(sparse, self.file.folder))
        names = [output.name for output in graph.output]
        self._nodes(graph.node, names, scope)
        return [self._item(name, scope) for name in names]

    def _nodes(self, nodes: Sequence[Any], outputs: Sequence[str], scope: Scope) -> None:
        for node in _needed(nodes, set(outputs)):
            try:
                # What an operator is expanded to is known by its own name, if it has one.
                with named_after(node.name or current_name() or next(iter(node.output), "")):
                    items = self._results(node, scope)
            except ValueNeeded as error:
                raise ValueNeeded(f"{_described(node)}: {error}", error.value) from None
            except (InvalidValueError, UnsupportedWorkload) as error:
                raise type(error)(f"{_described(node)}: {error}") from error
            except AutotuneError as error:
                raise UnsupportedWorkload(f"{_described(node)}: {error}") from error
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                # Of what contradicts the specification an operator may make anything.
                raise InvalidValueError(
                    f"{_described(node)}: its inputs or attributes are not those of the operator "
                    f"({one_line(str(error))})"
                ) from error
            for name, item in zip(node.output, items, strict=False):
                scope.items[name] = item.named(name) if isinstance(item, Value) else item

    def _results(self, node: Any, scope: Scope) -> Sequence[Item]:
        inputs = tuple(self._item(name, scope) if name else None for name in node.input)
        stated = {it.name: it for it in _stated(node, scope)}
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._called(function, inputs, stated, scope.opsets)
        domain = "" if node.domain in _ONNX else node.domain
        version = next((it for key, it in scope.opsets.items() if key in (node.domain, domain)), 0)
        if domain == "":
            version = max(scope.opsets.get(key, 0) for key in _ONNX)
        operator = OPERATORS.get((domain, node.op_type))
        schema = _schema(node.op_type, version, domain)
        if operator is None:
            body = expansion(schema, node, inputs, stated, version)
            if body is None:
                raise UnsupportedWorkload(_unknown(domain, node.op_type))
            return self._called(body, inputs, stated, scope.opsets)
        call = Call(
            kind=node.op_type,
            since=schema.since_version if schema is not None else version,
            inputs=inputs,
            outputs=tuple(map(bool, node.output)),
            attributes=_attributes(stated, schema),
            bodies={
                it.name: self._body(it.g, scope) for it in stated.values() if it.HasField("g")
            },
            folder=self.file.folder,
            dequantised=self._dequantised,
            tracker=self.tracker,
        )
        found = operator(call)
        return found if isinstance(found, list) else [found]  # type: ignore[list-item]

    def _called(
        self,
        function: Any,
        inputs: Sequence[Item],
        stated: Mapping[str, Any],
        opsets: Mapping[str, int],
    ) -> list[Item]:
        """The results of a function of a model, or of ONNX itself."""
        own = {it.domain: it.version for it in function.opset_import}
        defaults = {it.name: it for it in function.attribute_proto}
        scope = Scope(own or opsets, attributes={**defaults, **stated})
        given = [*inputs, *[None] * (len(function.input) - len(inputs))]
        scope.items.update(zip(function.input, given, strict=True))
        self._nodes(function.node, function.output, scope)
        return [self._item(name, scope, missing=True) for name in function.output]

    def _body(self, graph: Any, scope: Scope) -> Body:
        names = tuple(value.name for value in graph.input)
        captured: dict[tuple[object, int], Value] = {}
        for name in sorted(_free_names(graph)):
            item = self._item(name, scope, missing=True)
            for value in item if isinstance(item, tuple) else (item,):
                if value is not None and value.constant is None:
                    captured[value.key] = value
        return Body(names, tuple(captured.values()), partial(self._run, graph, scope))

    def _run(
        self,
        graph: Any,
        parent: Scope,
        inputs: Sequence[Item],
        replaced: Mapping[tuple[object, int], Value],
    ) -> list[Item]:
        names = [value.name for value in graph.input]
        if len(names) != len(inputs):
            raise UnsupportedWorkload(
                f"its graph {graph.name!r} takes {len(names)} inputs, not {len(inputs)}"
            )
        items = dict(zip(names, inputs, strict=True))
        return self._graph(
            graph, Scope(parent.opsets, parent, items, {}, parent.attributes, replaced)
        )

    def _item(self, name: str, scope: Scope, missing: bool = False) -> Item:
        """The value that a name stands for."""
        if name in scope.items:
            return scope.items[name]
        if name in scope.tensors:
            tensor = scope.tensors.pop(name)
            scope.items[name] = tensor_value(tensor, self.file.folder, name, self.file.content)
            return scope.items[name]
        if scope.parent is None:
            if missing:
                return None
            raise InvalidValueError(f"nothing computes {name!r}, which is read")
        item = self._item(name, scope.parent, missing)
        if isinstance(item, tuple):
            return tuple(scope.replaced.get(it.key, it) for it in item)
        return item if item is None else scope.replaced.get(item.key, item)


def _needed(nodes: Sequence[Any], wanted: set[str]) -> list[Any]:
    """The nodes that some names depend on, in order."""
    found = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.append(node)
            wanted.update(node.input)
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    wanted.update(_free_names(attribute.g))
    return found[::-1]


def _free_names(graph: Any) -> set[str]:
    """Names that a graph reads of those around it."""
    known = {it.name for it in (*graph.input, *graph.initializer)}
    known |= {name for node in graph.node for name in node.output}
    return set(_read_names(graph)) - known - {""}


def _read_names(graph: Any) -> Iterator[str]:
    yield from (it.name for it in graph.output)
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _free_names(attribute.g)


def _stated(node: Any, scope: Scope) -> Iterator[Any]:
    """The attributes of a node, with those of the function that it is in."""
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.ref_attr_name in scope.attributes:
            found = type(attribute)()
            found.CopyFrom(scope.attributes[attribute.ref_attr_name])
            found.name = attribute.name
            yield found


def _schema(kind: str, version: int, domain: str) -> Any:
    """ONNX's schema of an operator; None where it is none of its."""
    from onnx import defs

    try:
        return defs.get_schema(kind, version, domain)
    except defs.SchemaError:
        return None


def _attributes(stated: Mapping[str, Any], schema: Any) -> dict[str, Any]:
    found = (
        {}
        if schema is None
        else {
            name: _plain(it.default_value)
            for name, it in schema.attributes.items()
            if it.default_value.name
        }
    )
    return {**found, **{name: _plain(it) for name, it in stated.items()}}


def _plain(attribute: Any) -> Any:
    """An attribute as numbers, text, lists of them, or a tensor."""
    from onnx.helper import get_attribute_value

    value = get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (str, int, float)) or hasattr(value, "DESCRIPTOR"):
        return value
    return [it.decode("utf-8", "replace") if isinstance(it, bytes) else it for it in value]


def _described(node: Any) -> str:
    name = node.name or next((it for it in node.output if it), "")
    domain = f"{node.domain}." if node.domain not in _ONNX else ""
    return f"{domain}{node.op_type} {name!r}"


def _unknown(domain: str, kind: str) -> str:
    if any(kind == known for _, known in OPERATORS):
        return f"the operator of domain {domain or 'ai.onnx'!r} is not that of ONNX"
    if domain.startswith("ai.onnx.preview.training"):
        return "training is not supported"
    if domain == "ai.onnx.ml":
        return "it is of classical models, such as trees; networks alone are supported"
    return _REASONS.get(kind, "the operator is not supported")


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
