"""Statements that run an iteration late, in the loops of another one."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.errors import InvalidValueError
from autotune.nest.loop_nest import Access, Statement

__all__ = ["check_pipelines", "kept_buffers"]


def check_pipelines(statements: Sequence[Statement]) -> None:
    """Check that nothing is overwritten before a late statement has read it.

    Raises:
        InvalidValueError: a statement that runs late is not the last one in its loop, the one in
            whose loops it runs is not there, or something that it reads is gone by then.
    """
    for late in statements:
        if late.pipelined is not None:
            loop, host = late.pipelined
            _check(late, [it for it in statements if _is_inside(it, loop)], host)


def kept_buffers(late: Statement, inside: Sequence[Statement]) -> frozenset[str]:
    """Buffers of the others that a late statement reads inside its loop."""
    written = {_write(other).buffer for other in inside if other is not late}
    return frozenset(access.buffer for access in late.accesses if access.buffer in written)


def _check(late: Statement, inside: list[Statement], host: str) -> None:
    names = [statement.name for statement in inside]
    problem = f"{late.name!r} cannot run late in the loops of {host!r}"
    if host not in names[:-1] or names[-1] != late.name:
        raise InvalidValueError(f"{problem}: it is not the last statement of one loop around both")
    kept = kept_buffers(late, inside)
    for statement in inside[: names.index(host) + 1]:
        buffer = _write(statement).buffer
        if buffer in kept:
            raise InvalidValueError(f"{problem}: {statement.name!r} overwrites {buffer!r} before")


def _write(statement: Statement) -> Access:
    return next(access for access in statement.accesses if access.write)


def _is_inside(statement: Statement, loop: str) -> bool:
    return any(other.name == loop for other in statement.loops)
