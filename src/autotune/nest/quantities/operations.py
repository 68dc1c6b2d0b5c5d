"""Arithmetic operations of a statement by kind."""

from __future__ import annotations

from autotune.ir.expressions import IntExpr
from autotune.nest.loop_nest import Statement

__all__ = ["operation_quantities"]


def operation_quantities(statement: Statement) -> dict[str, IntExpr]:
    """``operations`` of one statement by output name: the count in its body times executions."""
    executions = statement.trips(len(statement.loops))
    return {
        f"{statement.name}/operations/{kind}": executions * count
        for kind, count in sorted(statement.operations.items())
    }
