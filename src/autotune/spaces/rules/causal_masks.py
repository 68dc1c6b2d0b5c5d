"""Causal masks of an attention, found in what its stages compute.

A mask shows a row those columns that are at most ``offset`` beyond it, and is a selection by a
comparison of the indices. Where the weights of what it hides are zero, neither these nor the
scores behind them have to be computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isinf

from attrs import frozen

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    affine_form,
    loads,
)
from autotune.ir.expressions.scalar import children, walk
from autotune.ir.workloads import Stage
from autotune.spaces.rules.access import index_of_value, is_pointwise

__all__ = ["MaskedRows", "masked_rows", "shown_columns"]

_ZERO, _LOWEST, _INFINITE, _OTHER = "zero", "lowest", "minus infinity", "other"
_NO_SCORE = (_LOWEST, _INFINITE)
# The exponential of what is this low is zero beside that of any score.
_LOW = -1e9
# For a comparison by which the row is subtracted from the column, and one the other way round:
# what is added to the distance of both, and whether what is near is where it holds.
_EDGES = {
    1: {"le": (0, True), "lt": (-1, True), "gt": (0, False), "ge": (-1, False)},
    -1: {"ge": (0, True), "gt": (-1, True), "lt": (0, False), "le": (-1, False)},
}


def shown_columns(condition: ScalarExpr, row: str, column: str) -> tuple[int, bool] | None:
    """Divide the columns of a row by a condition.

    Args:
        condition: Of a selection.
        row: The axis over rows.
        column: The axis over columns.

    Returns:
        The offset, and whether the condition holds where ``column <= row + offset``, else where
        not; None where it depends on anything else.
    """
    if isinstance(condition, Unary) and condition.op == "not":
        found = shown_columns(condition.operand, row, column)
        return None if found is None else (found[0], not found[1])
    if not isinstance(condition, Binary):
        return None
    left, right = index_of_value(condition.left), index_of_value(condition.right)
    distance = None if left is None or right is None else affine_form(left - right)
    if distance is None or set(distance.coefficients) != {row, column}:
        return None
    sign = distance.coefficients[column]
    if distance.coefficients[row] != -sign or condition.op not in _EDGES.get(sign, {}):
        return None
    shift, near = _EDGES[sign][condition.op]
    return shift - sign * distance.constant, near


@frozen
class MaskedRows:
    """The stages of an attention under a causal mask.

    Attributes:
        scores: The stage with the scores.
        stages: What is computed from them row by row, in topological order, the weights last.
        rows: Number of row axes, the leading ones.
        offset: By how much the last column that a row is shown is beyond the row.
    """

    scores: Stage
    stages: tuple[Stage, ...]
    rows: int
    offset: int

    def row(self, stage: Stage) -> str:
        """The axis over rows of a stage."""
        return stage.spatial_axes[self.rows - 1].name

    def column(self, stage: Stage) -> str | None:
        """The axis over columns of a stage; None where it has one result for each row."""
        if stage is not self.scores and stage.reduce_axes:
            return stage.reduce_axes[0].name
        rest = [axis for axis in stage.spatial_axes[self.rows :] if axis.extent > 1]
        return rest[0].name if len(rest) == 1 else None

    def neutral(self, stage: Stage) -> bool:
        """Tell if what a reduction combines of hidden columns leaves its result as it is."""
        hidden = self._value(stage.body, stage)
        return (stage.combiner, hidden) in (("add", _ZERO), ("max", _LOWEST), ("max", _INFINITE))

    def hides(self, reader: Stage, tensor: str) -> bool:
        """Tell if a stage reads no hidden column of a tensor, or does not use what it reads."""
        return not self._uses(reader.body, reader, tensor)

    def is_zero(self, stage: Stage) -> bool:
        """Return whether a stage is zero at hidden columns."""
        return self._value(stage.body, stage) == _ZERO

    @property
    def in_step(self) -> bool:
        """True if all stages read each other, and the scores, at their own column."""
        named = {it.name for it in self.stages if is_pointwise(it) and self.column(it) is not None}
        named.add(self.scores.name)
        return all(
            self._in_step(load, stage)
            for stage in self.stages
            for load in stage.loads
            if load.tensor in named
        )

    def _uses(self, body: ScalarExpr, stage: Stage, tensor: str) -> bool:
        if isinstance(body, Load):
            if body.tensor == tensor:
                return True
            inner = self._stage(body.tensor)
            return (
                inner is not None
                and self.column(inner) is not None
                and is_pointwise(inner)
                and self._uses(inner.body, inner, tensor)
            )
        if isinstance(body, Select) and (taken := self._taken(body, stage)) is not None:
            return self._uses(taken, stage, tensor)
        return any(self._uses(child, stage, tensor) for child in children(body))

    def _taken(self, body: Select, stage: Stage) -> ScalarExpr | None:
        """The branch that a selection takes at hidden columns; None where it may be either."""
        column = self.column(stage)
        found = None
        if column is not None:
            found = shown_columns(body.condition, self.row(stage), column)
        if found is None or found[0] > self.offset:
            return None
        return body.on_false if found[1] else body.on_true

    def _value(self, body: ScalarExpr, stage: Stage) -> str:
        """Value of a body at hidden columns."""
        if isinstance(body, Constant):
            if body.value == 0:
                return _ZERO
            if not isinstance(body.value, float) or body.value > _LOW:
                return _OTHER
            return _INFINITE if isinf(body.value) else _LOWEST
        if isinstance(body, Cast):
            return self._value(body.operand, stage)
        if isinstance(body, Load):
            inner = self._stage(body.tensor)
            known = inner is not None and is_pointwise(inner) and self._in_step(body, stage)
            return self._value(inner.body, inner) if known and inner is not None else _OTHER
        if isinstance(body, Select):
            return self._selected(body, stage)
        if isinstance(body, Unary):
            low = body.op == "exp" and self._value(body.operand, stage) in _NO_SCORE
            return _ZERO if low else _OTHER
        return self._combined(body, stage) if isinstance(body, Binary) else _OTHER

    def _selected(self, body: Select, stage: Stage) -> str:
        taken = self._taken(body, stage)
        if taken is None:
            values = {self._value(it, stage) for it in (body.on_true, body.on_false)}
            return values.pop() if len(values) == 1 else _OTHER
        value = self._value(taken, stage)
        other = body.on_false if taken is body.on_true else body.on_true
        # Numbers of others may be as low, and all columns of a row then have equal weights; beside
        # minus infinity alone, weights are not numbers whatever is hidden, or set to zero.
        return _OTHER if value == _LOWEST and not self._is_score(other, stage) else value

    def _combined(self, body: Binary, stage: Stage) -> str:
        left, right = self._value(body.left, stage), self._value(body.right, stage)
        if body.op == "sub":
            low = left in _NO_SCORE and self._is_largest(body.right)
            return left if low else _OTHER
        if body.op == "div":
            return _ZERO if left == _ZERO and self._is_of_row(body.right) else _OTHER
        if body.op == "mul":
            zero = (left == _ZERO and self._is_of_row(body.right)) or (
                right == _ZERO and self._is_of_row(body.left)
            )
            return _ZERO if zero else _OTHER
        return _OTHER

    def _is_largest(self, body: ScalarExpr) -> bool:
        """Return whether it is the maximum of a row, to which hidden columns add nothing."""
        inner = self._stage(body.tensor) if isinstance(body, Load) else None
        return inner is not None and inner.combiner == "max" and self.neutral(inner)

    def _is_of_row(self, body: ScalarExpr) -> bool:
        """Return whether it is the same in all columns of a row."""
        for node in walk(body):
            if isinstance(node, Load):
                inner = self._stage(node.tensor)
                if inner is None or any(it.extent > 1 for it in inner.spatial_axes[self.rows :]):
                    return False
            elif isinstance(node, IndexValue):
                return False
        return True

    def _is_score(self, body: ScalarExpr, stage: Stage) -> bool:
        """Return whether it is computed from scores alone."""
        for node in loads(body):
            inner = self._stage(node.tensor)
            if node.tensor == self.scores.name:
                continue
            if inner is None or not is_pointwise(inner) or not self._is_score(inner.body, inner):
                return False
        return True

    def _in_step(self, load: Load, stage: Stage) -> bool:
        """Return whether a stage reads another one at its own column."""
        column = self.column(stage)
        form = affine_form(load.indices[-1])
        return form is not None and form.constant == 0 and form.coefficients == {column: 1}

    def _stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def masked_rows(scores: Stage, stages: Sequence[Stage], rows: int) -> MaskedRows | None:
    """The causal mask of an attention; None where its weights have none that shows each row any.

    Args:
        scores: The stage with the scores.
        stages: What is computed from them row by row, in topological order, the weights last.
        rows: Number of row axes, the leading ones.
    """
    for offset in sorted(set(_offsets(stages, rows))):
        found = MaskedRows(scores, tuple(stages), rows, offset)
        # Where the first column is hidden from a row, so may be all of them.
        if offset >= 0 and found.in_step and found.is_zero(stages[-1]):
            return found
    return None


def _offsets(stages: Sequence[Stage], rows: int) -> Iterator[int]:
    """Offsets of all masks in stages with rows and columns."""
    for stage in stages:
        if len(stage.axes) != rows + 1:
            continue
        row, column = stage.spatial_axes[rows - 1].name, stage.axes[-1].name
        for node in walk(stage.body):
            if isinstance(node, Select):
                found = shown_columns(node.condition, row, column)
                if found is not None:
                    yield found[0]
