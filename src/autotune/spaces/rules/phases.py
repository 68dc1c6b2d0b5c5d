"""Divided indices of reductions: which tiles make quotients and remainders constants.

A transposed convolution reads at ``(h + r) // 2`` where ``(h + r) % 2`` is 0, with ``h`` spatial
and ``r`` reduced. In a tile of both that starts at a multiple of 2 and is unrolled, each
remainder is a constant: compilers drop the products with zero that it guards. A convolution in
groups reads at channel ``c // 32 * 16 + r``, which is one place for a vector inside a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from autotune.ir.expressions import (
    AffineForm,
    IndexTerm,
    IndexValue,
    index_form,
)
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage

__all__ = ["Phases", "lanes_inside_groups", "phases_of"]


@frozen
class Phases:
    """Tiles in which quotients and remainders of sums of axes are constants.

    Attributes:
        rows: By spatial axis, what the extent of its register tile is a multiple of.
        windows: By reduce axis, what the extent of its unrolled part is a multiple of; the whole
            axis will do as well.
    """

    rows: Mapping[str, int] = field(factory=dict)
    windows: Mapping[str, int] = field(factory=dict)

    def tiles(self, axis: str, extent: int) -> tuple[int, ...]:
        """Extents of tiles of an axis of ``extent`` in which nothing is left to divide."""
        step = self.rows[axis] if axis in self.rows else self.windows[axis]
        return tuple(
            tile
            for tile in range(1, extent + 1)
            if extent % tile == 0 and (tile % step == 0 or tile == extent)
        )


def phases_of(stage: Stage) -> Phases:
    """Moduli that make the divided sums of spatial rows and reduce axes of ``stage`` constant.

    Sums with the last spatial axis are left out: it is vectorised, and differs between lanes.
    """
    kinds = {axis.name: axis.kind for axis in stage.axes}
    vector = stage.spatial_axes[-1].name
    rows: dict[str, int] = {}
    windows: dict[str, int] = {}
    for term in _divided(stage):
        steps = {
            axis: term.divisor // math.gcd(term.divisor, coefficient)
            for axis, coefficient in term.operand.coefficients.items()
        }
        if term.operand.terms or vector in steps:
            continue
        if {kinds[axis] for axis in steps} != {"spatial", "reduce"}:
            continue
        for axis, step in steps.items():
            found = rows if kinds[axis] == "spatial" else windows
            found[axis] = math.lcm(step, found.get(axis, 1))
    return Phases(rows, windows)


def lanes_inside_groups(stage: Stage, lanes: int) -> int:
    """The most lanes, at most ``lanes``, for which a vector stays inside a group of channels.

    Groups are what quotients of the last spatial axis distinguish, in indices of reads.
    """
    vector = stage.spatial_axes[-1].name
    width = math.gcd(
        *(
            term.divisor
            for load in stage.loads
            for form in stage.forms(load)
            for term in _terms(form)
            if term.operand.coefficients.keys() == {vector}
        )
    )
    return next((count for count in range(lanes, 1, -1) if width % count == 0), lanes)


def _divided(stage: Stage) -> Iterator[IndexTerm]:
    for node in walk(stage.body):
        if isinstance(node, IndexValue):
            yield from _terms(index_form(node.index))
    for load in stage.loads:
        for form in stage.forms(load):
            yield from _terms(form)


def _terms(form: AffineForm) -> Iterable[IndexTerm]:
    return [term for term in form.terms.values() if term.op != "any"]
