"""Finding operations around and inside of others, and the numbers that they take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from autotune_mlir.scalar_import import defining

__all__ = ["ancestors", "constant_index", "operations_in", "parent_of"]


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


def constant_index(value: Any) -> int | None:
    """A number of the program; None where only the running program knows it."""
    producer = defining(value)
    if producer is None or producer.name != "arith.constant":
        return None
    return int(producer.attributes["value"].value)
