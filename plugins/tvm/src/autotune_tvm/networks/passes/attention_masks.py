"""What scores of an attention are computed of besides products: scales, biases and masks."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import numpy as np
from attrs import define, evolve, field
from tvm.ir import GenericConst

from autotune_tvm.networks.graph import (
    Array,
    Graph,
    array_of,
    dtype_of,
    operator_of,
    shape_of,
)
from autotune_tvm.networks.passes.attention_program import (
    OPERATORS,
    Both,
    Leaf,
    Masked,
    Number,
    Operand,
    ScoreStep,
    Step,
    Triangle,
)
from autotune_tvm.networks.passes.fold_constants import computed_array

__all__ = ["Sides", "is_same_shape", "may_hide_all", "triangle"]

Shape = tuple[int, ...]

_LIMIT = 1 << 28
"""Bytes of a mask that is computed to see what it is: positions of 5,800 queries and keys."""
_ABSORBING = -1e30
"""This, and what is lower, stays as it is when a score is added to it."""


@define(eq=False)
class Sides:
    """Reads the other operands of what is done to scores.

    Attributes:
        graph: What is read.
        operands: Tensors that are read element by element.
    """

    graph: Graph
    operands: list[Any] = field(factory=list)

    def step(self, call: Any, scores: Any, shape: Shape, dtype: str) -> Step | None:
        """What a call does to scores; None where no program is made of it.

        Args:
            call: An operator.
            scores: The operand with the scores.
            shape: Of the result.
            dtype: Of the result.
        """
        operator = operator_of(call)
        if operator == "where":
            return self._selected(call, scores, shape, dtype)
        if operator not in OPERATORS:
            return None
        left, right = call.args
        is_first = left.same_as(scores)
        other = right if is_first else left
        if operator == "add":
            masked = self._added_mask(other, shape, dtype)
            if masked is not None:
                return masked
        leaf = self._leaf(other, shape)
        return None if leaf is None else ScoreStep(operator, dtype, leaf, is_first)

    def _selected(self, call: Any, scores: Any, shape: Shape, dtype: str) -> Masked | None:
        condition, chosen, rest = call.args
        shows = bool(chosen.same_as(scores))
        number = _number(rest if shows else chosen)
        leaf = None if number is None else self._condition(condition, shape)
        return None if leaf is None or number is None else Masked(leaf, shows, number, dtype)

    def _added_mask(self, other: Any, shape: Shape, dtype: str) -> Masked | None:
        """What is added as a selection, where that makes no difference."""
        known = triangle(computed_array(other, self.graph, _LIMIT), shape)
        if known is not None and known.near == 0 and known.far <= _ABSORBING:
            return Masked(evolve(known, near=True, far=False), True, known.far, dtype)
        call = self.graph.source(_unspread(other, self.graph))
        if operator_of(call) != "where":
            return None
        numbers = [_number(it) for it in call.args[1:]]
        for shows, (zero, low) in ((True, numbers), (False, numbers[::-1])):
            if zero == 0 and low is not None and low <= _ABSORBING:
                leaf = self._condition(call.args[0], shape)
                return None if leaf is None else Masked(leaf, shows, low, dtype)
        return None

    def _condition(self, value: Any, shape: Shape) -> Leaf | None:
        value = _unspread(value, self.graph)
        call = self.graph.source(value)
        if operator_of(call) in ("bitwise_and", "logical_and"):
            known = len(self.operands)
            left, right = (self._condition(it, shape) for it in call.args)
            if isinstance(left, (Triangle, Both)) and right is not None:
                return Both(left, right)
            if isinstance(right, (Triangle, Both)) and left is not None:
                return Both(right, left)
            del self.operands[known:]
        return self._leaf(value, shape)

    def _leaf(self, value: Any, shape: Shape) -> Leaf | None:
        """What stands beside each score; None where it is no tensor of known numbers."""
        value = _unspread(value, self.graph)
        number = _number(value)
        known = triangle(computed_array(value, self.graph, _LIMIT), shape)
        if number is not None:
            return Number(number)
        if known is not None:
            return known
        own = shape_of(value)
        if own is None or len(own) > len(shape):
            return None
        if any(n not in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False)):
            return None
        place = next((i for i, it in enumerate(self.operands) if it.same_as(value)), None)
        if place is None:
            place = len(self.operands)
            self.operands.append(value)
        return Operand(place, own, shape[:-2])


def is_same_shape(value: Any, other: Any) -> bool:
    """Whether two values have one shape and one element type."""
    return shape_of(value) == shape_of(other) and dtype_of(value) == dtype_of(other)


def may_hide_all(step: Step) -> bool:
    """Whether a query may be shown no key at all after a step."""
    if isinstance(step, Masked):
        known = step.condition
        shows_first = isinstance(known, Triangle) and bool(known.near) == step.shows
        return not shows_first and step.low == -inf
    if isinstance(step.other, (Triangle, Number)):
        first = step.other.near if isinstance(step.other, Triangle) else step.other.value
        return not isfinite(first)
    return step.other is not None


def triangle(array: Array | None, shape: Shape) -> Triangle | None:
    """How a constant divides the keys of each query; None where it does something else.

    Args:
        array: The constant.
        shape: Of the scores.
    """
    if array is None or array.shape[-2:] != shape[-2:] or any(n != 1 for n in array.shape[:-2]):
        return None
    square = array.reshape(array.shape[-2:])
    near, first = square[0, 0], np.flatnonzero(square[0] != square[0, 0])
    if not first.size:
        return None
    far, offset = square[0, first[0]], int(first[0]) - 1
    rows, columns = np.ogrid[: shape[-2], : shape[-1]]
    if not np.array_equal(square, np.where(columns <= rows + offset, near, far)):
        return None
    return Triangle(offset, near.item(), far.item())


def _unspread(value: Any, graph: Graph) -> Any:
    """A value before it was repeated along axes, or got another type or shape that it had."""
    while True:
        call = graph.source(value)
        if operator_of(call) not in ("broadcast_to", "reshape"):
            return value
        if operator_of(call) == "reshape" and shape_of(call.args[0]) != shape_of(value):
            return value
        value = call.args[0]


def _number(value: Any) -> float | None:
    """The one number that a constant holds everywhere; None for all else."""
    array = array_of(value)
    if not isinstance(value, GenericConst) or array is None or not array.size:
        return None
    first = array.reshape(-1)[0]
    return first.item() if (array == first).all() else None
