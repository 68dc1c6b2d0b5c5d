"""Finding operations around and inside of others, those that read a value, and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotune_mlir.importing.scalar_import import defining

__all__ = [
    "ancestors",
    "constant_index",
    "operations_in",
    "parent_of",
    "users_of",
    "with_inner",
]


def parent_of(operation: Any) -> Any | None:
    """The operation that another one is in; None around the module."""
    parent = operation.parent
    return None if parent is None else getattr(parent, "operation", parent)


def ancestors(operation: Any) -> list[Any]:
    """An operation and those around it, the innermost first."""
    found = [operation]
    while (parent := parent_of(found[-1])) is not None:
        found.append(parent)
    return found


def operations_in(operation: Any) -> Iterator[Any]:
    """All operations inside of one, each before those inside of it."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations_in(inner)


def with_inner(operation: Any) -> Iterator[Any]:
    """An operation and all inside of it, each before those inside of it."""
    yield operation.operation
    yield from operations_in(operation)


def users_of(value: Any) -> list[Any]:
    """Operations that read a value, as often as they do."""
    return [getattr(use.owner, "operation", use.owner) for use in value.uses]


def constant_index(value: Any) -> int | None:
    """A number of the program; None where only the running program knows it."""
    producer = defining(value)
    if producer is None or producer.name != "arith.constant":
        return None
    return int(producer.attributes["value"].value)
