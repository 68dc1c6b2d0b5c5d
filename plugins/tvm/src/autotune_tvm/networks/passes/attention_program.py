"""What an attention computes, and the one program of it.

Its stages are those of the workload ``attention``, which the search space knows; causal masks are
comparisons of indices there, of which it knows what they hide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, prod
from types import MappingProxyType
from typing import Any, Union

from attrs import frozen
from tvm import te, tirx

__all__ = [
    "OPERATORS",
    "Attention",
    "Both",
    "Leaf",
    "Masked",
    "Number",
    "Operand",
    "ScoreStep",
    "Step",
    "Triangle",
]


@frozen
class Number:
    """One number for all elements."""

    value: float


@frozen
class Triangle:
    """One number up to a diagonal, and another one beyond it.

    Attributes:
        offset: By how much the last column of a row with ``near`` is beyond the row.
        near, far: The numbers; truth values of a condition.
    """

    offset: int
    near: float
    far: float


@frozen
class Operand:
    """A tensor that is read element by element, whose axes are the last of the scores.

    Attributes:
        place: Which one it is of those that the program is given after queries, keys and values.
        shape: Extents, 1 along axes in which it is the same everywhere.
        batch: Extents of all axes of the scores before those of queries and keys.
    """

    place: int
    shape: tuple[int, ...]
    batch: tuple[int, ...]

    def element(self, tensor: Any, head: Any, row: Any, column: Any) -> Any:
        """What stands beside the score of one query and one key; heads are numbered."""
        digits = (_digit(head, self.batch, axis) for axis in range(len(self.batch)))
        indices = [*digits, row, column][len(self.batch) + 2 - len(self.shape) :]
        return tensor[tuple(0 if n == 1 else i for n, i in zip(self.shape, indices, strict=True))]


@frozen
class Both:
    """A condition that holds where both of its parts do."""

    left: Leaf
    right: Leaf


Leaf = Union[Number, Triangle, Operand, Both]  # noqa: UP007 - Python 3.10 evaluates it


@frozen
class ScoreStep:
    """An elementwise operator on the scores.

    Attributes:
        operator: One of :data:`OPERATORS`, or ``"astype"``.
        dtype: Of the result.
        other: Its other operand, if there is one.
        is_first: Whether scores are the first operand.
    """

    operator: str
    dtype: str
    other: Leaf | None = None
    is_first: bool = True


@frozen
class Masked:
    """Scores become one number where they are hidden.

    Attributes:
        condition: What says where.
        shows: Whether they are shown where it holds, else hidden there.
        low: The number.
        dtype: Of the scores.
    """

    condition: Leaf
    shows: bool
    low: float
    dtype: str


Step = Union[ScoreStep, Masked]  # noqa: UP007 - Python 3.10 evaluates it

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "subtract": lambda a, b: a - b,
        "multiply": lambda a, b: a * b,
        "divide": lambda a, b: a / b,
    }
)
"""What may be done to scores before their softmax, besides masking and casts."""


@frozen
class Attention:
    """``softmax(steps(scale * q k^T)) v`` of heads that are one axis, or two.

    They are two where several heads of queries share keys and values: groups, each of which has
    one head of keys and of values, and the heads of queries in a group.

    Attributes:
        is_transposed: Whether keys are ``[heads, width, keys]``, else ``[heads, keys, width]``.
        scale: What the products are multiplied by first.
        steps: What is done to them then.
        is_guarded: Whether the weights of a query are zero where all of its scores are minus
            infinity, else not a number.
        dtype: Type of the products.
        weights_dtype: Type of the softmax.
        casts: Types that the weights are converted to, one after the other.
        result_dtype: Of the result.
    """

    is_transposed: bool
    scale: float
    steps: tuple[Step, ...]
    is_guarded: bool
    dtype: str
    weights_dtype: str
    casts: tuple[str, ...]
    result_dtype: str

    def program(self, queries: Any, keys: Any, values: Any, *others: Any) -> Any:
        """The tensor expression.

        Args:
            queries: ``[heads, queries, width]``, or ``[groups, heads, queries, width]``.
            keys: As ``is_transposed`` says, with groups in place of heads where there are some.
            values: ``[heads, keys, columns]``, or ``[groups, keys, columns]``.
            others: What :class:`Operand` numbers.
        """
        *heads, count, width = queries.shape
        held, columns = values.shape[1:]
        rows, square = (*heads, count), (*heads, count, held)
        names = [*"gh"[-len(heads) :], "i", "j"]
        d = te.reduce_axis((0, width), "d")

        def product(*place: Any) -> Any:
            first, row, j = place[0], place[:-1], place[-1]
            key = keys[first, d, j] if self.is_transposed else keys[first, j, d]
            return te.sum(queries(*row, d).astype(self.dtype) * key.astype(self.dtype), [d])

        scores = te.compute(square, product, "scores", varargs_names=names)
        if self.scale != 1.0 or self.steps:
            products = scores

            def stepped(*place: Any) -> Any:
                *numbers, i, j = place
                head = numbers[0] if len(numbers) == 1 else numbers[0] * heads[1] + numbers[1]
                return self._stepped(products[place], (head, i, j), others)

            scores = te.compute(square, stepped, "masked", varargs_names=names)
        weights = self._weights(scores, rows, held, names)
        r, result = te.reduce_axis((0, held), "r"), self.result_dtype

        def mixed(*place: Any) -> Any:
            value = values[place[0], r, place[-1]].astype(result)
            return te.sum(weights(*place[:-1], r).astype(result) * value, [r])

        return te.compute((*rows, columns), mixed, "mixed", varargs_names=[*names[:-1], "c"])

    def _weights(self, scores: Any, rows: Sequence[Any], held: Any, names: list[str]) -> Any:
        """The softmax of scores along their last axis, of ``held`` elements."""
        square = (*rows, held)
        j, k = (te.reduce_axis((0, held), name) for name in "jk")

        def highest(*row: Any) -> Any:
            return te.max(scores(*row, j), [j])

        def power(*place: Any) -> Any:
            return te.exp(scores[place] - largest[place[:-1]])

        def added(*row: Any) -> Any:
            return te.sum(powers(*row, k), [k])

        largest = te.compute(rows, highest, "largest", varargs_names=names[:-1])
        powers = te.compute(square, power, "powers", varargs_names=names)
        total = te.compute(rows, added, "total", varargs_names=names[:-1])

        def weight(*place: Any) -> Any:
            row = place[:-1]
            value = powers[place] / total[row]
            if self.is_guarded:
                zero, lowest = (tirx.const(it, self.weights_dtype) for it in (0.0, -inf))
                # The maximum of minus infinities alone is TVM's lowest finite number, from which
                # all of them are infinitely far, or minus infinity itself.
                hidden = tirx.Or(total[row].equal(zero), largest[row].equal(lowest))
                value = tirx.Select(hidden, zero, value)
            for dtype in self.casts:
                value = value.astype(dtype)
            return value

        return te.compute(square, weight, "weights", varargs_names=names)

    def _stepped(self, score: Any, place: tuple[Any, Any, Any], others: Sequence[Any]) -> Any:
        if self.scale != 1.0:
            score = score * tirx.const(self.scale, self.dtype)
        for step in self.steps:
            if isinstance(step, Masked):
                low = tirx.const(step.low, step.dtype)
                parts = (score, low) if step.shows else (low, score)
                score = _selected(step.condition, *parts, place, others)
            elif step.other is None:
                score = score.astype(step.dtype)
            else:
                other = _value(step.other, step.dtype, place, others)
                pair = (score, other) if step.is_first else (other, score)
                score = OPERATORS[step.operator](*pair)
        return score


def _selected(
    condition: Leaf, yes: Any, no: Any, place: tuple[Any, Any, Any], others: Sequence[Any]
) -> Any:
    """A selection for each part of a condition, since causal masks are found in selections."""
    if isinstance(condition, Both):
        inner = _selected(condition.right, yes, no, place, others)
        return _selected(condition.left, inner, no, place, others)
    if isinstance(condition, Triangle):
        near, far = (yes if it else no for it in (condition.near, condition.far))
        return tirx.Select(_is_near(condition, place), near, far)
    return tirx.Select(_value(condition, "bool", place, others), yes, no)


def _value(leaf: Leaf, dtype: str, place: tuple[Any, Any, Any], others: Sequence[Any]) -> Any:
    if isinstance(leaf, Operand):
        return leaf.element(others[leaf.place], *place)
    if isinstance(leaf, Triangle):
        near, far = (tirx.const(it, dtype) for it in (leaf.near, leaf.far))
        return tirx.Select(_is_near(leaf, place), near, far)
    assert isinstance(leaf, Number)  # conditions are taken apart by `_selected`
    return tirx.const(leaf.value, dtype)


def _is_near(triangle: Triangle, place: tuple[Any, Any, Any]) -> Any:
    _, row, column = place
    return column <= row + triangle.offset


def _digit(number: Any, extents: Sequence[int], axis: int) -> Any:
    """The index along one axis of an element that is numbered in row-major order."""
    behind = prod(extents[axis + 1 :])
    if behind > 1:
        number = number // behind
    return number % extents[axis] if prod(extents[:axis]) > 1 else number
