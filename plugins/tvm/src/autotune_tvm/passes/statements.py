"""Statements of scheduled programs, taken apart and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad, TensorRegion
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_map

__all__ = [
    "at",
    "blocks",
    "inside",
    "reads",
    "rebuilt",
    "region_at",
    "replaced",
    "statements",
    "substituted",
    "walk",
    "with_bodies",
    "with_fields",
]

_FIELDS = (
    "iter_vars",
    "reads",
    "writes",
    "name_hint",
    "body",
    "init",
    "alloc_buffers",
    "match_buffers",
    "annotations",
)


def with_bodies(module: IRModule, changed: Callable[[Any], Any]) -> IRModule:
    """A module with changed bodies of its functions; those that stay the same are left alone."""
    functions = {}
    for name, function in module.functions.items():
        body = changed(function.body)
        functions[name] = function if body.same_as(function.body) else function.with_body(body)
    return IRModule(functions, attrs=module.attrs)


def statements(node: Any) -> Iterator[Any]:
    """The statement and all in it."""
    yield node
    for inner in inside(node):
        yield from statements(inner)


def at(expression: Any, variables: list[Any], values: Any) -> Any:
    """The expression with values for variables."""
    fresh = [tirx.const(value, "int32") if isinstance(value, int) else value for value in values]
    (found,) = tirx.IndexMap(variables, [expression], None).map_indices(fresh)
    return found


def substituted(expression: Any, variables: list[Any], values: Sequence[Any]) -> Any:
    """Substitute as :func:`at`, but change nothing else about the expression."""

    def given(variable: Any) -> Any:
        found = (it for own, it in zip(variables, values, strict=True) if own.same_as(variable))
        return next(found, variable)

    return structural_map(expression, (tirx.Var, given))


def reads(value: Any, buffer: Any) -> bool:
    """Return whether an expression reads a buffer."""
    return any(isinstance(it, TensorLoad) and it.source.same_as(buffer) for it in walk(value))


def walk(node: Any) -> Iterator[Any]:
    """``node`` and every expression in it."""
    yield node
    parts: list[Any] = []
    for attribute in ("a", "b", "value", "condition", "true_value", "false_value"):
        if hasattr(node, attribute) and not isinstance(node, (tirx.IntImm, tirx.FloatImm)):
            parts.append(getattr(node, attribute))
    if isinstance(node, TensorLoad):
        parts = list(node.indices)
    elif hasattr(node, "args"):
        parts += list(node.args)
    for part in parts:
        yield from walk(part)


def region_at(region: Any, variables: list[Any], values: Any) -> Any:
    """The region with values for variables."""
    ranges = [
        Range.from_min_extent(at(it.min, variables, values), it.extent) for it in region.region
    ]
    return TensorRegion(region.source, ranges, region.ty)


def inside(node: Any) -> list[Any]:
    """The statements directly inside one of those that a scheduled program consists of."""
    if isinstance(node, tirx.SeqStmt):
        return list(node.seq)
    if isinstance(node, SBlockRealize):
        return [node.block]
    return [node.body] if isinstance(node, (tirx.For, SBlock)) else []


def replaced(node: Any, change: Callable[[Any], Any]) -> Any:
    """The statement with others in it in the place of those for which ``change`` gives one.

    ``change`` is asked from the outside in, and gives None for those that are to be looked into.
    """
    made = change(node)
    if made is not None:
        return made
    before = inside(node)
    after = [replaced(statement, change) for statement in before]
    if all(new.same_as(old) for new, old in zip(after, before, strict=True)):
        return node
    return rebuilt(node, after)


def rebuilt(node: Any, inside: list[Any]) -> Any:
    """The statement with others directly inside."""
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt(inside) if len(inside) > 1 else inside[0]
    if isinstance(node, tirx.For):
        return tirx.For(
            node.loop_var,
            node.min,
            node.extent,
            node.kind,
            inside[0],
            node.thread_binding,
            node.annotations,
            node.step,
        )
    if isinstance(node, SBlockRealize):
        return SBlockRealize(node.iter_values, node.predicate, inside[0])
    if isinstance(node, SBlock):
        return with_fields(node, body=inside[0])
    return node


def with_fields(block: Any, **fields: Any) -> Any:
    """The ``SBlock`` with other values of some fields."""
    return SBlock(*(fields.get(name, getattr(block, name)) for name in _FIELDS))


def blocks(statement: Any) -> list[Any]:
    """All blocks in a statement, those in branches included."""
    found = [statement] if isinstance(statement, SBlock) else []
    inner = inside(statement)
    if isinstance(statement, tirx.IfThenElse):
        inner = [it for it in (statement.then_case, statement.else_case) if it is not None]
    return found + [block for each in inner for block in blocks(each)]
