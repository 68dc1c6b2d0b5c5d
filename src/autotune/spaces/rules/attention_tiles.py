"""Rule: attention in tiles of queries, whose scores never leave the caches.

For heads ``b``, queries ``i``, keys ``j`` and a width ``d``, the nest is ``b.0*i.0`` in parallel,
and inside it one after the other: the scores of a tile of ``i.1 * i.2`` queries and all keys,
their weights row by row (a softmax), and ``d.0 i.1 | j | i.2 d.1 d.2``, the weighted sums of
values. Both products have register tiles of ``i.2`` rows, and the keys are packed once, before.
Under a causal mask all loops over keys end where it hides the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from math import isinf
from typing import TypeVar

from attrs import frozen

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    affine_form,
    const,
    loads,
    maximum,
    product,
    var,
)
from autotune.ir.expressions.scalar import children, walk
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import (
    Accumulate,
    AtMost,
    BoundLoop,
    Constraint,
    FuseProducer,
    Inline,
    Order,
    Pack,
    Parallel,
    SplitReduction,
    Step,
    Tile,
    TileCeil,
    Unroll,
    Vectorize,
    partial_name,
)
from autotune.sketches.steps import inlined_stages
from autotune.spaces.rules.access import (
    depends_on,
    dimension_of,
    is_affine,
    is_expensive,
    is_plain,
    is_pointwise,
    largest_divisor,
    operand_forms,
    own_producer,
    producer_stage,
    rows_behind,
    rows_in_step,
)
from autotune.spaces.rules.draft import SketchDraft, Split, loops, split
from autotune.spaces.rules.multi_level_tiling import MultiLevelTilingRule, compared
from autotune.spaces.rules.row_fusion import with_kept, with_producers
from autotune.spaces.rules.rule import SketchRule

_ZERO, _LOWEST, _INFINITE, _OTHER = "zero", "lowest", "minus infinity", "other"
_NO_SCORE = (_LOWEST, _INFINITE)
# The exponential of what is this low is zero beside that of any score.
_LOW = -1e9


# A mask shows a row those columns that are at most ``offset`` beyond it, and is a selection by a
# comparison of the indices. Where the weights of what it hides are zero, neither these nor the
# scores behind them have to be computed.
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
    found = compared(condition, True)
    if found is None or found[0] not in (((row, 1), (column, -1)), ((column, 1), (row, -1))):
        return None
    (first, _), (least, most) = found[0][0], found[1]
    if first == row:
        least, most = (None if end is None else -end for end in (most, least))
    if most is not None:
        return (most, True) if least is None else None
    return None if least is None else (least - 1, False)


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


__all__ = ["ATTENTION_LABEL", "AttentionTilesRule", "shown_columns"]

ATTENTION_LABEL = "attention-tiles"

_NEEDED = ("accumulate", "fuse_producer", "inline", "pack")
# Beyond 16 rows the accumulators of a register tile spill.
_MOST_ROWS = 16
# With fewer rows a register tile reads its other operand more than it multiplies.
_FEWEST_ROWS = 4
_MOST_UNROLLED = 8


@frozen
class _Attention:
    """Sums of values, weighted by what is computed row by row from products of two operands.

    Attributes:
        stage: The weighted sums.
        values: The tensor that is weighted.
        scores: The stage with the products.
        keys: The operand of the scores that all rows share.
        weights: The point-wise stage with the weights.
        behind: What it needs row by row that is computed from the scores, in topological order.
        rows: Number of axes that all these stages share, the leading ones.
    """

    stage: Stage
    values: str
    scores: Stage
    keys: str
    weights: Stage
    behind: tuple[Stage, ...]
    rows: int

    @property
    def row(self) -> str:
        """The axis along which rows are tiled."""
        return self.stage.spatial_axes[self.rows - 1].name


class AttentionTilesRule(SketchRule):
    """Sums weighted by what is computed row by row from products: all inside one loop over tiles.

    Applies to what multi-level tiling applies to; its sketches are tried, too.
    """

    name = "attention-tiles"

    def apply(self, draft: SketchDraft, stage: Stage) -> Iterable[SketchDraft] | None:
        fitting = not draft.on_gpu and draft.can(*_NEEDED)
        found = _attention(draft, stage) if fitting else None
        return None if found is None else self._drafts(draft, stage, found)

    def _drafts(
        self, draft: SketchDraft, stage: Stage, found: _Attention
    ) -> Iterator[SketchDraft]:
        yield from MultiLevelTilingRule().apply(draft, stage) or ()
        yield _Tiling(draft, found).made()


@frozen
class _Tiling:
    """The sketch of one attention.

    Attributes:
        draft: The sketch so far.
        found: The stages.
    """

    draft: SketchDraft
    found: _Attention

    def made(self) -> SketchDraft:
        """The draft with all these stages inside one parallel loop over tiles of rows."""
        found, splits = self.found, self._splits()
        loop = f"{found.row}.0"
        inlined = [it for it in found.behind if is_pointwise(it) and not is_expensive(it)]
        row = found.weights.spatial_axes[found.rows - 1].name
        settled = [it.name for it in (found.stage, found.scores, found.weights, *found.behind)]
        first = self.draft.extended(
            settled=settled,
            label=ATTENTION_LABEL,
            params=[param for it in splits for param in it.params],
            constraints=[constraint for it in splits for constraint in it.constraints],
            steps=[*(it.step for it in splits[:3]), *self._sum_steps(splits[1])],
        )
        made = with_producers(
            with_kept(first, found.stage, found.weights, loop),
            *(found.weights, f"{row}.0", found.behind, inlined, found.rows, ""),
        )
        made = made.extended(
            constraints=self._limits(splits[0]),
            steps=[*self._score_steps(loop, splits), *self._loop_kinds()],
        )
        own = made.steps[len(self.draft.steps) :]
        packed = [step.operand for step in own if isinstance(step, Pack)]
        return made.extended(
            settled=[operand for operand in packed if self._is_inlined(operand)],
            steps=self._bounds(own),
        )

    def _sum_steps(self, vectors: Split) -> list[Step]:
        """Tiles of the weighted sums."""
        stage, row = self.found.stage, self.found.row
        vector, reduced = stage.spatial_axes[-1].name, stage.reduce_axes[0].name
        outer = loops(stage.spatial_axes[:-1])
        walk = (f"{vector}.0", f"{row}.1", f"{reduced}.0", f"{reduced}.1")
        steps: list[Step] = [
            Order(stage.name, (*outer, *walk, f"{row}.2", f"{vector}.1", f"{vector}.2")),
            Parallel(stage.name, outer),
        ]
        if not self._is_contiguous(stage, self.found.values):
            steps.extend(self._pack_steps(stage, self.found.values, vectors))
        steps.append(self.draft.written(stage.name, f"{row}.1", vectors.factors[1:]))
        return steps

    def _score_steps(self, loop: str, splits: Sequence[Split]) -> list[Step]:
        """Tiles of the scores, of the rows that one iteration of ``loop`` has."""
        found, stage, row = self.found, self.found.scores, self._score_row
        rows, *_, keys, terms = splits
        key, reduced = keys.axis, terms.axis
        outer = loops(stage.spatial_axes[: found.rows - 1])
        others = loops(stage.reduce_axes[:-1])
        walk = (f"{key}.0", f"{row}.0", *others, f"{reduced}.0", f"{reduced}.1")
        return [
            *self._pack_steps(stage, found.keys, keys),
            FuseProducer(stage.name, found.stage.name, loop, 1),
            Tile(stage.name, row, rows.factors[1:]),
            keys.step,
            terms.step,
            Order(stage.name, (*outer, *walk, f"{row}.1", f"{key}.1", f"{key}.2")),
            Accumulate(stage.name, f"{row}.0", keys.factors[1:]),
        ]

    def _pack_steps(self, stage: Stage, operand: str, vectors: Split) -> list[Step]:
        """The copy of an operand in panels of a register tile's width, made before the loops."""
        dimension = dimension_of(operand_forms(stage, operand), vectors.axis)
        _, tile, width = vectors.factors
        lanes = width.value if self._is_contiguous(stage, operand) else 1
        inlined = [Inline(operand)] if self._is_inlined(operand) else []
        return [Pack(stage.name, operand, None, dimension, tile * width, lanes or 1), *inlined]

    def _is_contiguous(self, stage: Stage, operand: str) -> bool:
        forms = operand_forms(stage, operand)
        return dimension_of(forms, stage.spatial_axes[-1].name) == len(forms) - 1

    def _is_inlined(self, operand: str) -> bool:
        """Return whether what is packed is computed point by point where it is packed."""
        return own_producer(self.draft.workload, operand) is not None

    def _loop_kinds(self) -> list[Step]:
        """Kinds of the innermost loops of both products."""
        steps: list[Step] = []
        for stage, row in (
            (self.found.scores, self._score_row),
            (self.found.stage, self.found.row),
        ):
            vector, reduced = stage.spatial_axes[-1].name, stage.reduce_axes[-1].name
            level = 2 if stage is self.found.stage else 1
            steps.append(Vectorize(stage.name, f"{vector}.2"))
            unrolled = (f"{reduced}.1", f"{row}.{level}", f"{vector}.1")
            steps.append(Unroll(stage.name, unrolled))
        return steps

    def _bounds(self, steps: Sequence[Step]) -> list[Step]:
        """Expressions that end loops over keys where a causal mask hides the rest."""
        found = self.found
        stages = (*found.behind, found.weights)
        masked = masked_rows(found.scores, stages, found.rows)
        if masked is None or not self.draft.can("bound_loop"):
            return []
        return _Bounds(self.draft.workload, masked, found.stage, tuple(steps)).made()

    @property
    def _score_row(self) -> str:
        return self.found.scores.spatial_axes[self.found.rows - 1].name

    def _splits(self) -> list[Split]:
        """Rows of the sums, their vectors and terms, and vectors and terms of the scores."""
        found = self.found
        tiles = _row_tiles(found.stage, found.rows)
        splits = [split(found.stage.name, found.stage.axis(found.row), None, None, tiles)]
        for stage in (found.stage, found.scores):
            vector, reduced = stage.spatial_axes[-1], stage.reduce_axes[-1]
            width = _vector_width(self.draft, stage)
            counts = range(1, _MOST_UNROLLED + 1)
            unrolled = tuple(count for count in counts if reduced.extent % count == 0)
            splits.append(split(stage.name, vector, None, None, inner=width))
            splits.append(split(stage.name, reduced, None, unrolled))
        return splits

    def _limits(self, split_rows: Split) -> Iterator[Constraint]:
        """Limits of backend and machine: register tiles, the tile of scores, and shares."""
        found, target = self.found, self.draft.target
        outer, walked, rows = split_rows.factors
        tiles = []
        for stage in (found.stage, found.scores):
            width = _vector_width(self.draft, stage)
            vectors = var(f"{stage.name}.{stage.spatial_axes[-1].name}.1")
            unrolled = rows * vectors * var(f"{stage.name}.{stage.reduce_axes[-1].name}.1")
            tile_bytes = rows * vectors * (width * stage.output.element.bytes)
            yield from self.draft.bounded(unrolled, tile_bytes)
            tiles.append(rows * vectors + vectors + 1)
        if target.vector_registers:
            for live in tiles:
                yield AtMost(live, target.vector_registers, "vector registers", hard=False)
        heads = math.prod(axis.extent for axis in found.stage.spatial_axes[: found.rows - 1])
        most = heads * found.stage.axis(found.row).extent
        yield from self.draft.shared(outer * heads, most)
        private = [cache.size_bytes for cache in target.caches if cache.level == 2]
        if private:
            row_bytes = sum(
                stage.output.shape[-1] * stage.output.element.bytes
                for stage in (found.scores, found.weights)
            )
            tile = walked * rows * row_bytes
            yield AtMost(tile, private[0], "tile of scores in the second cache", hard=False)


def _attention(draft: SketchDraft, stage: Stage) -> _Attention | None:
    """The stages of an attention that ends with ``stage``; None where it is none."""
    if is_pointwise(stage) or stage.gathers or len(stage.reduce_axes) != 1:
        return None
    if len(stage.reads) != 2:
        return None
    first, second = stage.reads
    for tensor, values in ((first, second), (second, first)):
        weights = producer_stage(draft.workload, tensor)
        if weights is None or tensor in draft.workload.outputs:
            continue
        found = rows_behind(draft, weights)
        if found is None or draft.workload.consumers(tensor) != (stage,):
            continue
        behind, rows = found
        scores = _scores(draft, [*behind, weights], rows)
        if scores is None or rows_in_step(stage, weights) < rows or not _row_tiles(stage, rows):
            continue
        keys = _shared_operand(draft, scores, rows, scores.spatial_axes[-1].name)
        shared = _shared_operand(draft, stage, rows, stage.spatial_axes[-1].name)
        if keys is None or shared != values:
            continue
        if dimension_of(operand_forms(stage, tensor), stage.reduce_axes[0].name) == rows:
            return _Attention(stage, values, scores, keys, weights, tuple(behind), rows)
    return None


def _scores(draft: SketchDraft, users: list[Stage], rows: int) -> Stage | None:
    """The one product that ``users`` alone read, row by row, if there is one."""
    workload, names = draft.workload, {user.name for user in users}
    found = []
    for candidate in workload.stages:
        consumers = workload.consumers(candidate.name)
        if candidate.name in names | draft.settled or candidate.name in workload.outputs:
            continue
        if is_pointwise(candidate) or not consumers:
            continue
        if not {consumer.name for consumer in consumers} <= names:
            continue
        if all(rows_in_step(consumer, candidate) >= rows for consumer in consumers):
            found.append(candidate)
    return found[0] if len(found) == 1 and found[0].reduce_axes else None


def _shared_operand(draft: SketchDraft, stage: Stage, rows: int, vector: str) -> str | None:
    """The operand of a product that all rows share and in which ``vector`` has a dimension.

    None where the stage is no product of two operands in floating point, over one axis more than
    the rows have, or where vectors along this axis are short.
    """
    if len(stage.spatial_axes) != rows + 1 or len(stage.reads) != 2 or stage.gathers:
        return None
    if 2 * _vector_width(draft, stage) < draft.target.lanes(stage.output.dtype):
        return None
    if len(stage.loads) != 2 or not stage.output.element.is_float:
        return None
    row = stage.spatial_axes[rows - 1].name
    forms = {tensor: operand_forms(stage, tensor) for tensor in stage.reads}
    shared = [tensor for tensor in stage.reads if not depends_on(forms[tensor], row)]
    if len(shared) != 1:
        return None
    others = (forms[tensor] for tensor in stage.reads if tensor != shared[0])
    # Several heads may share one, which they read at the quotient of an axis.
    if not (is_plain(forms[shared[0]], divided=True) and all(map(is_affine, others))):
        return None
    return shared[0] if dimension_of(forms[shared[0]], vector) is not None else None


def _row_tiles(stage: Stage, rows: int) -> tuple[int, ...]:
    """Rows of a register tile; none where all that divide the axis are few."""
    extent = stage.spatial_axes[rows - 1].extent
    found = tuple(n for n in range(1, _MOST_ROWS + 1) if extent % n == 0)
    return found if found[-1] >= min(_FEWEST_ROWS, extent) else ()


def _vector_width(draft: SketchDraft, stage: Stage) -> int:
    lanes = draft.target.lanes(stage.output.dtype)
    return largest_divisor(stage.spatial_axes[-1].extent, lanes)


_Kind = TypeVar("_Kind", Tile, TileCeil, SplitReduction)


@frozen
class _Columns:
    """The loops over the columns of one stage.

    Attributes:
        stage: The stage that has them: that of the partial results of a split reduction.
        width: Columns of an iteration of the outermost.
        scale: Columns of a value of the axis.
    """

    stage: str
    width: IntExpr
    scale: int


@frozen
class _Bounds:
    """Distance beyond the edge of the mask that each stage has to compute.

    Attributes:
        workload: Of which the stages are.
        masked: The stages under the mask.
        sums: What is summed with the weights, in tiles of rows whose innermost level is a register
            tile.
        steps: Those of all these stages so far.
    """

    workload: Workload
    masked: MaskedRows
    sums: Stage
    steps: tuple[Step, ...]

    def made(self) -> list[Step]:
        """The steps that bound the loops over columns, those of the products first."""
        masked, found = self.masked, list[Step]()
        column = self.sums.reduce_axes[0].name
        row = self.sums.spatial_axes[masked.rows - 1].name
        found.append(BoundLoop(self.sums.name, f"{column}.0", row, const(masked.offset), 1))
        beyond = self._beyond(row, column)
        for stage in (masked.scores, *reversed(masked.stages)):
            columns, far = self._columns(stage), beyond.get(stage.name)
            if columns is None or far is None:
                continue
            loop, own = f"{masked.column(stage)}.0", masked.row(stage)
            offset = far + masked.offset
            found.append(BoundLoop(columns.stage, loop, own, offset, columns.scale))
        return found

    def _beyond(self, row: str, column: str) -> dict[str, IntExpr]:
        """By stage the columns beyond the edge that others read; all of a stage without any."""
        masked, weights = self.masked, self.masked.stages[-1]
        rows, width = self._factors(self.sums.name, row)[-1], self._width(self.sums.name, column)
        # A tile of rows reads what its last row is shown, and the rest of a round of columns.
        found = {weights.name: rows + width - 2} if self._columns(weights) else {}
        for stage in reversed(masked.stages[:-1]):
            far = self._of(stage, found)
            if far is not None:
                found[stage.name] = far
        readers = self._readers(masked.scores)
        if all(masked.hides(reader, masked.scores.name) for reader in readers):
            found[masked.scores.name] = const(0)
        return found

    def _of(self, stage: Stage, known: dict[str, IntExpr]) -> IntExpr | None:
        """The columns beyond the edge that a stage has to compute; None for all of them."""
        if self._columns(stage) is None:
            return None
        if not is_pointwise(stage):
            return const(0) if self.masked.neutral(stage) else None
        result = const(0)
        for reader in self._readers(stage):
            if self.masked.hides(reader, stage.name):
                continue
            columns, far = self._columns(reader), known.get(reader.name)
            if columns is None or far is None:
                return None
            result = maximum(result, far + columns.width - 1)
        return result

    def _readers(self, stage: Stage) -> list[Stage]:
        """Stages that read a stage, also inside of others."""
        inlined = inlined_stages(self.steps)
        found = []
        for reader in self.workload.consumers(stage.name):
            found.extend(self._readers(reader) if reader.name in inlined else [reader])
        return found

    def _columns(self, stage: Stage) -> _Columns | None:
        """The loops over the columns of a stage; None without any, or where some are not whole."""
        column = self.masked.column(stage)
        if column is None or stage.name in inlined_stages(self.steps):
            return None
        name, lanes = stage.name, 1
        for step in self._of_kind(SplitReduction, stage.name):
            name, lanes = partial_name(stage.name), step.lanes
            if stage.axis(column).extent % lanes:
                return None
        if any(step.axis == column for step in self._of_kind(TileCeil, name)):
            return None
        return _Columns(name, self._width(name, column) * lanes, lanes)

    def _width(self, stage: str, axis: str) -> IntExpr:
        """Values of an axis in an iteration of its outermost loop."""
        return product(self._factors(stage, axis)[1:])

    def _factors(self, stage: str, axis: str) -> tuple[IntExpr, ...]:
        found = [step for step in self._of_kind(Tile, stage) if step.axis == axis]
        return found[0].factors if found else (const(1),)

    def _of_kind(self, kind: type[_Kind], stage: str) -> list[_Kind]:
        return [step for step in self.steps if isinstance(step, kind) and step.stage == stage]
