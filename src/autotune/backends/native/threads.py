"""The pools of threads that parallel loops run on, one for each number of threads."""

from __future__ import annotations

import os
from functools import lru_cache

from attrs import frozen

from autotune import _native

__all__ = ["Launch", "launch_on"]


@frozen
class Launch:
    """The means of a program to start tasks; both are 0 where it runs them itself.

    Attributes:
        function: Address of ``void launch(pool, task, arrays, count)``.
        pool: Its first argument.
    """

    function: int = 0
    pool: int = 0


def launch_on(threads: int) -> Launch:
    """The pool of this process with so many threads, made on first use; none for one thread."""
    if threads < 2:
        return Launch()
    return Launch(_native.launcher(), _pool(threads, os.getpid()).address)


@lru_cache(maxsize=8)
def _pool(threads: int, process: int) -> _native.ThreadPool:
    """A pool whose threads belong to this process: those of its parent are not in a child."""
    return _native.ThreadPool(threads)
