"""Elementwise operations ``x * factor + term`` with constants, read from their bodies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from attrs import frozen

from autotune.ir.expressions import Binary, Constant, Load, ScalarExpr, Unary
from autotune.ir.workloads import Stage, Workload
from autotune.networks.graph import Node, Value, binary, constant, reshape, unary
from autotune.networks.passes.fusion_forms import reads_in_place

__all__ = ["Affine", "affine_of", "combined"]


@frozen
class Affine:
    """``x * factor + term``.

    Attributes:
        factor: A constant of the rank of ``x`` that broadcasts to it; None for 1.
        term: Likewise; None for 0.
    """

    factor: Value | None = None
    term: Value | None = None

    def times(self, by: Value, op: str = "mul") -> Affine:
        """This multiplied with a constant, or divided by it."""
        factor = by if self.factor is None and op == "mul" else combined(op, self.factor, by)
        return Affine(factor, None if self.term is None else combined(op, self.term, by))

    def plus(self, other: Value) -> Affine:
        """A constant added to this."""
        term = other if self.term is None else combined("add", self.term, other)
        return Affine(self.factor, term)


def combined(op: str, left: Value | None, right: Value) -> Value:
    """An operation on two constants; None stands for 1."""
    first = left if left is not None else constant(np.ones([1] * right.rank), right.dtype)
    return binary(op, first, right)


def affine_of(node: Node) -> tuple[int, Affine] | None:
    """The number of the operand that is no constant, and what is made of it.

    Returns:
        None where the node does not have this form, in one floating-point type.
    """
    workload = node.operation
    if not isinstance(workload, Workload) or len(workload.stages) > 1:
        return None
    (stage,) = workload.stages
    others = [at for at, it in enumerate(node.operands) if it.constant is None]
    if stage.combiner is not None or len(others) != 1 or stage.gathers:
        return None
    tensor = workload.inputs[others[0]]
    if {it.dtype for it in workload.tensors.values()} not in ({"float32"}, {"float64"}):
        return None
    if tensor.shape != stage.output.shape or not reads_in_place(workload, tensor.name):
        return None
    known = {it.name: value for it, value in zip(workload.inputs, node.operands, strict=True)}
    found = _affine(stage.body, stage, tensor.name, known)
    return None if found is None else (others[0], found)


def _affine(
    body: ScalarExpr, stage: Stage, name: str, known: Mapping[str, Value]
) -> Affine | None:
    if isinstance(body, Load) and body.tensor == name:
        return Affine()
    if isinstance(body, Unary) and body.op == "neg":
        inner = _affine(body.operand, stage, name, known)
        return None if inner is None else inner.times(_number(-1, stage))
    if not isinstance(body, Binary) or body.op not in ("add", "sub", "mul", "div"):
        return None
    right = _constant(body.right, stage, name, known)
    left = _constant(body.left, stage, name, known) if right is None else None
    other, side = (right, body.left) if right is not None else (left, body.right)
    inner = None if other is None else _affine(side, stage, name, known)
    if other is None or inner is None:
        return None
    if body.op == "mul" or body.op == "div" and right is not None:
        return inner.times(other, body.op)
    if body.op == "add" or body.op == "sub" and right is not None:
        return inner.plus(other if body.op == "add" else unary("neg", other))
    return inner.times(_number(-1, stage)).plus(other) if body.op == "sub" else None


def _number(value: float, stage: Stage) -> Value:
    return constant(np.full([1] * len(stage.axes), value), stage.output.dtype)


def _constant(
    body: ScalarExpr, stage: Stage, name: str, known: Mapping[str, Value]
) -> Value | None:
    """A number or the elements of a constant, in the rank of what is computed."""
    if isinstance(body, Constant):
        return _number(float(body.value), stage) if body.dtype == stage.output.dtype else None
    if not isinstance(body, Load) or body.tensor == name:
        return None
    value, shape, at = known[body.tensor], [1] * len(stage.axes), -1
    names = [axis.name for axis in stage.axes]
    for index, extent in zip(body.indices, value.shape, strict=True):
        if extent == 1:
            continue
        place = names.index(index.args[0]) if index.op == "var" else -1
        if place <= at or stage.axes[place].extent != extent:
            return None
        shape[place], at = extent, place
    return reshape(value, shape)
