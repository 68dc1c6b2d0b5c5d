"""Loops of an attention that end where a causal mask hides the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from attrs import frozen

from autotune.ir.expressions import IntExpr, const, maximum, product
from autotune.ir.workloads import Stage, Workload
from autotune.sketches import (
    BoundLoop,
    SplitReduction,
    Step,
    Tile,
    TileCeil,
    partial_name,
)
from autotune.sketches.steps import inlined_stages
from autotune.spaces.rules.access import is_pointwise
from autotune.spaces.rules.causal_masks import MaskedRows

__all__ = ["bounded_loops"]

_Kind = TypeVar("_Kind", Tile, TileCeil, SplitReduction)


def bounded_loops(
    workload: Workload, masked: MaskedRows, sums: Stage, steps: Sequence[Step]
) -> list[Step]:
    """Steps that bound the loops over the columns of a mask.

    Args:
        workload: Of which the stages are.
        masked: The stages under the mask.
        sums: What is summed with the weights, in tiles of rows whose innermost level is a
            register tile.
        steps: Those of all these stages so far.
    """
    return _Bounds(workload, masked, sums, tuple(steps)).made()


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
        sums: What is summed with the weights.
        steps: Those of all these stages.
    """

    workload: Workload
    masked: MaskedRows
    sums: Stage
    steps: tuple[Step, ...]

    def made(self) -> list[Step]:
        """The steps, those of the products first."""
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
