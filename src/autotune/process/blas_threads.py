"""Threads of matrix products: those of small matrices only get slower on several."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

__all__ = ["one_blas_thread", "use_blas_threads"]


def one_blas_thread() -> AbstractContextManager[Any]:
    """A context in which numpy's library uses the calling thread alone.

    Its other threads wait for work by watching for it, which costs the processor as much as
    working, and more where other processes want it; and what is computed does not depend on how
    many threads there are.
    """
    context: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return context


def use_blas_threads(threads: int) -> None:
    """Let numpy's library use so many threads from now on."""
    for library in _controller().select(user_api="blas").lib_controllers:
        library.set_num_threads(threads)


@cache
def _controller() -> Any:
    # Finding the libraries takes milliseconds, setting their threads microseconds.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
