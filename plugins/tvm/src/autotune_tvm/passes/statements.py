"""Statements of scheduled programs, taken apart and put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import IRModule, Range, TensorLoad, TensorRegion
from tvm.s_tir import SBlock, SBlockRealize
from tvm_ffi import structural_map, structural_walk

from autotune_tvm.linked_text import with_functions

__all__ = [
    "at",
    "blocks",
    "inside",
    "nodes_in",
    "reads",
    "rebuilt",
    "region_at",
    "replaced",
    "statements",
    "substituted",
    "with_bodies",
    "with_fields",
]

_FIELDS = {
    SBlock: (
        *("iter_vars", "reads", "writes", "name_hint", "body", "init", "alloc_buffers"),
        *("match_buffers", "annotations"),
    ),
    tirx.For: (
        *("loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations", "step"),
    ),
}


def with_bodies(module: IRModule, changed: Callable[[Any], Any]) -> IRModule:
    """A module with changed bodies of its functions; those that stay the same are left alone."""

    def made(function: Any) -> Any:
        body = changed(function.body)
        return function if body.same_as(function.body) else function.with_body(body)

    return with_functions(module, made)


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
    return any(it.source.same_as(buffer) for it in nodes_in(value, TensorLoad))


def nodes_in(node: Any, kind: type[Any] = object) -> list[Any]:
    """Everything of a kind in a statement or an expression, from the outside in."""
    found: list[Any] = []

    def note(inner: Any) -> None:
        if isinstance(inner, kind):
            found.append(inner)

    structural_walk(node, note, order="pre")
    return found


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
    if isinstance(node, SBlockRealize):
        return SBlockRealize(node.iter_values, node.predicate, inside[0])
    return with_fields(node, body=inside[0]) if isinstance(node, (tirx.For, SBlock)) else node


def with_fields(node: Any, **fields: Any) -> Any:
    """The block or the loop with other values of some fields."""
    kind = type(node)
    return kind(*(fields.get(name, getattr(node, name)) for name in _FIELDS[kind]))


def blocks(statement: Any) -> list[Any]:
    """All blocks in a statement, those in branches included."""
    found = [statement] if isinstance(statement, SBlock) else []
    inner = inside(statement)
    if isinstance(statement, tirx.IfThenElse):
        inner = [it for it in (statement.then_case, statement.else_case) if it is not None]
    return found + [block for each in inner for block in blocks(each)]
