"""Ending what an object has started, once, and in the process that has started it only."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence

__all__ = ["ending_with"]


def ending_with(owner: object, *actions: Callable[[], object]) -> Callable[[], object]:
    """Have actions happen once an object is over; returns what makes them happen at once.

    They happen in their order, and only once: when what is returned is called, when the owner is
    forgotten, or when the interpreter exits. A forked copy of this process has these objects,
    too, but not what they have started: nothing happens there.

    Args:
        owner: The object; no action may refer to it, or it is never forgotten.
        actions: What to do.
    """
    return weakref.finalize(owner, _do, actions, os.getpid())


def _do(actions: Sequence[Callable[[], object]], starter: int) -> None:
    if os.getpid() == starter:
        for action in actions:
            action()
