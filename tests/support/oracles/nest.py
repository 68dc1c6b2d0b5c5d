"""A loop nest walked one execution at a time, counting what the tape has formulas for.

Only the list of statements, loops, accesses and buffers is taken from the nest, with numbers in
place of expressions. Counters, axes, elements, hulls, reloads and allocations follow from running
the loops.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping

from attrs import frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import IntExpr
from autotune.ir.expressions.integer import evaluate
from autotune.nest import ELEMENT, LoopNest, Statement

Counters = tuple[int, ...]
Element = tuple[int, ...]

KINDS = {
    "parallel": "parallel",
    "lanes": "vectorized",
    "unrolled": "unrolled",
    "grid": "block",
    "vthreads": "vthread",
    "threads": "thread",
}


@frozen
class Touch:
    """A buffer of a statement.

    Attributes:
        buffer: Its name.
        held: Loops outside its allocation.
        bounds: Extents of the buffer as far as the statement may touch it.
        movers: Axes that move its indices.
        places: Per execution, what its accesses point at.
    """

    buffer: str
    held: int
    bounds: Element
    movers: tuple[str, ...]
    places: list[set[Element]]


class StatementWalk:
    """All executions of one statement for one configuration, in order."""

    def __init__(self, nest: LoopNest, statement: Statement, config: Mapping[str, int]) -> None:
        def number(expression: IntExpr) -> int:
            return int(evaluate(expression, config))

        self.statement = statement
        loops = statement.loops
        self.kinds = [loop.kind for loop in loops]
        self.idle = [loop.name in statement.cooperating for loop in loops]
        self.sizes = [number(loop.extent) for loop in loops]
        self.parts = [[(axis, number(extent)) for axis, extent in loop.parts] for loop in loops]
        self.flattened = [(axis, number(extent)) for axis, extent in statement.flattened]
        self.guards = {axis: number(bound) for axis, bound in statement.guards.items()}
        self.unroll_limit = number(statement.unroll_limit)
        self.corners = {
            axis: {outer: number(step) for outer, step in corners.items()}
            for axis, corners in statement.corners.items()
        }
        counters = itertools.product(*map(range, self.sizes))
        self.counters = [each for each in counters if self._counts(each)]
        # What the loops count, and the same with the corners of copies added.
        self.loop_axes = [self._axes(each) for each in self.counters]
        self.axes = [self._moved(each) for each in self.loop_axes]
        names = dict.fromkeys(access.buffer for access in statement.accesses)
        self.touches = [self._touch(nest, buffer, number) for buffer in names]

    def quantities(self) -> dict[str, int]:
        """Everything of this statement on the tape, by the name of the output."""
        name = self.statement.name
        found = {f"loop/{index}": size for index, size in enumerate(self.sizes)}
        for depth in range(len(self.sizes) + 1):
            found[f"trips/{depth}"] = len({counters[:depth] for counters in self.counters})
        for output, kind in KINDS.items():
            loops = zip(self.sizes, self.kinds, self.idle, strict=True)
            found[output] = math.prod(s for s, own, idle in loops if own == kind and not idle)
        found["unroll_limit"] = self.unroll_limit
        for operation, count in self.statement.operations.items():
            found[f"operations/{operation}"] = sum(count for _ in self.counters)
        for touch in self.touches:
            found.update(self._of_buffer(touch))
        return {f"{name}/{quantity}": value for quantity, value in found.items()}

    def _of_buffer(self, touch: Touch) -> dict[str, int]:
        found: dict[str, int] = {}
        for depth in range(len(self.sizes) + 1):
            elements = self._touched_first(touch, max(depth, touch.held))
            region = math.prod(hull(touch, elements))
            found[f"region/{touch.buffer}/{depth}"] = region
            found[f"unique/{touch.buffer}/{depth}"] = distinct(touch, elements)
            found[f"traffic/{touch.buffer}/{depth}"] = region * self._loads(touch, depth)
        for index, extent in enumerate(hull(touch, self._touched_first(touch, touch.held))):
            found[f"dimension/{touch.buffer}/{index}"] = extent
        straight = ("vectorized", "unrolled")
        loops = [index + 1 for index, kind in enumerate(self.kinds) if kind not in straight]
        body = max([touch.held, *loops])
        found[f"tile/{touch.buffer}"] = found[f"region/{touch.buffer}/{body}"]
        return found

    def _counts(self, counters: Counters) -> bool:
        """Tell whether an execution counts: cooperating threads share one."""
        return not any(c for c, idle in zip(counters, self.idle, strict=True) if idle)

    def _axes(self, counters: Counters) -> dict[str, int]:
        """Values of the axes: digits of the loops, of a fused loop the last the fastest."""
        axes: dict[str, int] = {}
        for parts, counter, idle in zip(self.parts, counters, self.idle, strict=True):
            digits: list[tuple[str, int, int]] = []
            for axis, size in reversed(parts):
                digits.append((axis, size, counter % size))
                counter //= size
            for axis, size, digit in reversed(digits):
                if not idle:
                    axes[axis] = axes.get(axis, 0) * size + digit
        rest = axes.get(ELEMENT, 0)
        for axis, size in reversed(self.flattened):
            axes[axis] = rest % size
            rest //= size
        return axes

    def _moved(self, axes: dict[str, int]) -> dict[str, int]:
        """The axes with the corners of a copy added to the copy's own."""
        moved = dict(axes)
        for axis, corners in self.corners.items():
            for outer, step in corners.items():
                moved[axis] = moved.get(axis, 0) + axes.get(outer, 0) * step
        return moved

    def _skipped(self, axes: Mapping[str, int]) -> bool:
        return any(axes.get(axis, 0) >= bound for axis, bound in self.guards.items())

    def _touch(self, nest: LoopNest, buffer: str, number: object) -> Touch:
        assert callable(number)
        accesses = [access for access in self.statement.accesses if access.buffer == buffer]
        held = max([0, *(known.depth for known in nest.buffers if known.name == buffer)])
        shapes = [[number(size) for size in access.shape] for access in accesses]
        bounds = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
        forms = [[(f.constant, f.coefficients) for f in access.forms] for access in accesses]

        def place(own: list[tuple[int, dict[str, int]]], at: dict[str, int]) -> Element:
            return tuple(
                start + sum(step * at.get(axis, 0) for axis, step in steps.items())
                for start, steps in own
            )

        places = [{place(own, at) for own in forms} for at in self.axes]
        used = [axis for own in forms for _, steps in own for axis in steps]
        movers = [*used, *(outer for axis in used for outer in self.corners.get(axis, {}))]
        return Touch(buffer, held, bounds, tuple(movers), places)

    def _stride(self, depth: int) -> int:
        """Executions in one iteration of the loops outside ``depth``."""
        loops = zip(self.sizes[depth:], self.idle[depth:], strict=True)
        return math.prod(size for size, idle in loops if not idle)

    def _touched_first(self, touch: Touch, depth: int) -> set[Element]:
        """Elements that the first iteration of the loops outside ``depth`` touches."""
        first = range(self._stride(depth))
        kept = [index for index in first if not self._skipped(self.axes[index])]
        return set().union(*(touch.places[index] for index in kept))

    def _loads(self, touch: Touch, depth: int) -> int:
        """Number of times that an axis moves what is held at ``depth``, in the order of execution.

        Blocks of a grid and threads hold what they need on their own. A buffer of the schedule
        is the same memory whenever it is allocated again.
        """
        if depth <= touch.held:
            return 1
        private = [
            index
            for index in range(touch.held, depth)
            if self.kinds[index] in ("block", "thread") and not self.idle[index]
        ]
        loads, before = 0, None
        for index in range(0, len(self.counters), self._stride(depth)):
            around = index - index % self._stride(touch.held) if touch.held else 0
            corner, at = self.loop_axes[around], self.loop_axes[index]
            state = [self.counters[index][loop] for loop in private]
            state += [at.get(axis, 0) - corner.get(axis, 0) for axis in touch.movers]
            loads += state != before
            before = state
        return loads


def nest_totals(nest: LoopNest, config: Mapping[str, int]) -> dict[str, int]:
    """Bytes of every allocation and per scope, by the name of the output."""
    found: dict[str, int] = {}
    scopes: Counter[str] = Counter()
    for buffer in nest.buffers:
        elements = math.prod(int(evaluate(extent, config)) for extent in buffer.shape)
        found[f"buffer/{buffer.name}"] = elements * element_type(buffer.dtype).bytes
        scopes[buffer.scope] += elements * element_type(buffer.dtype).bytes
    return {**found, "shared_bytes": scopes["shared"], "local_bytes": scopes["local"]}


def nest_quantities(nest: LoopNest, config: Mapping[str, int]) -> dict[str, int]:
    """Every quantity on the tape of a nest, counted for one configuration."""
    found: dict[str, int] = {}
    for statement in nest.statements:
        found.update(StatementWalk(nest, statement, config).quantities())
    return {**found, **nest_totals(nest, config)}


def hull(touch: Touch, elements: set[Element]) -> list[int]:
    """Extents of the hull, as far as the bounds of the buffer."""
    columns = zip(*elements, strict=True)
    spans = [max(column) - min(column) + 1 for column in columns]
    return [min(span, bound) for span, bound in zip(spans, touch.bounds, strict=True)]


def distinct(touch: Touch, elements: set[Element]) -> int:
    """Elements touched; where padding reaches beyond the bounds, as far as the bounds."""
    sizes = [len(set(column)) for column in zip(*elements, strict=True)]
    if all(size <= bound for size, bound in zip(sizes, touch.bounds, strict=True)):
        return len(elements)
    within = math.prod(min(size, bound) for size, bound in zip(sizes, touch.bounds, strict=True))
    return min(within, len(elements))
