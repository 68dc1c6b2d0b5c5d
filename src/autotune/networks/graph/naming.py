"""Names of nodes: what is made while a node of a source is read is called after that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["current_name", "named_after"]

_NAME = ContextVar("name of the node that is read", default="")


@contextmanager
def named_after(name: str) -> Iterator[None]:
    """Call nodes so that are made inside, and are given no other name; "" for no change."""
    token = _NAME.set(name or _NAME.get())
    try:
        yield
    finally:
        _NAME.reset(token)


def current_name() -> str:
    """The name of nodes that are made now; "" where there is none."""
    return _NAME.get()
