"""Finding operations around and inside of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = [
    "operations_in",
    "parent_of",
]


def parent_of(operation: Any) -> Any | None:
    """The operation that another one is in; None around the module."""
    parent = operation.parent
    return None if parent is None else getattr(parent, "operation", parent)


def operations_in(operation: Any) -> Iterator[Any]:
    """All operations inside of one, each before those inside of it."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations_in(inner)
