"""The statements of a candidate: the symbolic nest with the numbers of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from attrs import evolve, frozen

from autotune.errors import InvalidValueError
from autotune.ir.expressions import IntExpr, ScalarExpr, const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload
from autotune.lower.linear import Digits, Linear
from autotune.nest import Loop, LoopNest, Statement
from autotune.nest.loop_nest import ELEMENT, Access
from autotune.sketches import Candidate, FuseProducer, PadExtent, Tile
from autotune.sketches.intrinsics import Intrinsic, find_intrinsic

__all__ = [
    "ConcreteBound",
    "ConcreteLoop",
    "ConcreteStatement",
    "Number",
    "check_factors",
    "concrete_statements",
]

Number = Callable[[IntExpr], int]
"""The value of an expression over the parameters."""

MOST_LANES = 128
"""Lanes of the longest vectors that are printed; longer loops of vectors stay loops."""


@frozen
class ConcreteBound:
    """Bound on the iterations of a loop, as :class:`~autotune.nest.loop_nest.LoopBound`."""

    axis: str
    offset: int
    scale: int
    stride: int
    least: int | None


@frozen(eq=False)
class ConcreteLoop:
    """A loop whose counter, the digit of its name, runs from 0 to ``extent``.

    Attributes:
        axes: The axes that it moves, several if it is fused.
        has_unit: Whether steps say by how much it moves its axis.
    """

    name: str
    extent: int
    kind: str
    axes: tuple[str, ...]
    bound: ConcreteBound | None = None
    has_unit: bool = False


@frozen(eq=False)
class ConcreteStatement:
    """A statement.

    Attributes:
        source: The statement of the nest.
        loops: Loops around it, outermost first.
        axes: Each of its axes as a form over counters, corners of copies included.
        guards: Axes that may pass their extent, with that extent.
        body: As ``source.body``, or the part of it that is chosen where this runs.
        tile: Counters of the rows and columns of the square that its two innermost loops go
            through, where it transposes.
        combines_lanes: Whether its lanes are combined, and the result is one number.
        interleaves: Whether its two innermost loops go through the rows of a group and their
            elements, which it writes in turn.
        streams: Whether it writes past the caches.
        early: What it asks for early: operands, and the loops whose next iteration reads them.
        intrinsic: The instruction that its innermost loops are a call of.
    """

    source: Statement
    loops: tuple[ConcreteLoop, ...]
    axes: Mapping[str, Linear]
    guards: Mapping[str, int]
    body: ScalarExpr | None
    tile: tuple[str, str] | None = None
    combines_lanes: bool = False
    interleaves: bool = False
    streams: bool = False
    early: tuple[tuple[str, str], ...] = ()
    intrinsic: Intrinsic | None = None

    @property
    def body_depth(self) -> int:
        """Number of loops around what is printed at once: a point, lanes, or a call."""
        call = self.intrinsic
        if call is None:
            return len(self.loops)
        # A thread's loops over a tile of warps: fragments, what it has of each, and terms.
        inside = len(call.axes) if call.lanes == 1 else 2 * len(call.spatial_axes) + 1
        return len(self.loops) - inside

    @property
    def name(self) -> str:
        """Its name in the nest."""
        return self.source.name

    @property
    def write(self) -> Access:
        """The access that writes."""
        return next(access for access in self.source.accesses if access.write)

    @property
    def lane(self) -> str | None:
        """The counter of its lanes: that of its innermost loop, if this is a vector."""
        if not self.loops:
            return None
        last = self.loops[-1]
        vector = last.kind == "vectorized" and len(last.axes) == 1
        return last.name if vector and 1 < last.extent <= MOST_LANES else None

    def depth(self, digit: str, digits: Digits) -> int:
        """Number of the innermost loop that moves a digit."""
        names = {loop.name: depth for depth, loop in enumerate(self.loops)}
        return max((names.get(name, 0) for name in digits.sources(digit)), default=0)

    def inside(self, linear: Linear, depth: int, digits: Digits) -> Linear:
        """The part of an index that moves inside the loops from ``depth`` on."""
        if not depth:
            return linear
        return linear.kept(lambda digit: self.depth(digit, digits) >= depth)

    def split(self, name: str, size: int, digits: Digits) -> ConcreteStatement:
        """The statement with one loop of its own split into blocks of ``size`` iterations."""
        loop = next(loop for loop in self.loops if loop.name == name)
        outer = evolve(loop, name=f"{name}.outer", extent=loop.extent // size)
        inner = evolve(loop, name=f"{name}.inner", extent=size)
        if loop.kind == "parallel":
            inner = evolve(inner, kind="serial")
        elif loop.kind == "vectorized":
            outer = evolve(outer, kind="serial")
        moved = digits.counter(outer.name, outer.extent) * size
        moved = moved + digits.counter(inner.name, size)
        axes = {
            axis: form.without(name) + moved * form.coefficient(name)
            for axis, form in self.axes.items()
        }
        at = self.loops.index(loop)
        return evolve(
            self, loops=(*self.loops[:at], outer, inner, *self.loops[at + 1 :]), axes=axes
        )


def concrete_statements(
    nest: LoopNest, config: Mapping[str, int], digits: Digits
) -> tuple[list[ConcreteStatement], list[ConcreteStatement]]:
    """The copies that are made first, and the other statements, in program order."""
    known: dict[IntExpr, int] = {}

    def number(expression: IntExpr) -> int:
        if expression.op == "const":
            return int(expression.args[0])
        if expression not in known:
            known[expression] = int(evaluate(expression, config))
        return known[expression]

    def concrete(statement: Statement) -> ConcreteStatement:
        return ConcreteStatement(
            statement,
            tuple(_loop(loop, number) for loop in statement.loops),
            _axes(statement, number, digits),
            {axis: number(extent) for axis, extent in statement.guards.items()},
            statement.body,
            streams=bool(number(statement.streams)),
            early=tuple((it.operand, it.loop) for it in statement.early if number(it.choice)),
            intrinsic=find_intrinsic(statement.intrinsic) if statement.intrinsic else None,
        )

    return [concrete(it) for it in nest.packing], [concrete(it) for it in nest.statements]


def check_factors(candidate: Candidate, workload: Workload) -> None:
    """Check that the factors of tiles multiply to what they tile.

    Args:
        candidate: What is checked.
        workload: What its steps schedule, after those that rewrite it.

    Raises:
        InvalidValueError: some do not; the step is named.
    """
    steps, config = candidate.sketch.core_steps, candidate.config
    padded = {(it.stage, it.axis): it.extent for it in steps if isinstance(it, PadExtent)}
    partial = {it.stage for it in steps if isinstance(it, FuseProducer)}
    for step in steps:
        if not isinstance(step, Tile) or step.stage in partial:
            continue
        own = const(workload.stage(step.stage).axis(step.axis).extent)
        extent = int(evaluate(padded.get((step.stage, step.axis), own), config))
        factors = [int(evaluate(factor, config)) for factor in step.factors]
        if prod(factors) != extent:
            raise InvalidValueError(
                f"axis {step.axis!r} of stage {step.stage!r} has extent {extent}, which its "
                f"factors {factors} do not multiply to"
            )


def _loop(loop: Loop, number: Number) -> ConcreteLoop:
    bound = None
    if loop.bound is not None:
        least = None if loop.bound.least is None else number(loop.bound.least)
        found = loop.bound
        bound = ConcreteBound(found.axis, number(found.offset), found.scale, found.stride, least)
    return ConcreteLoop(
        loop.name,
        number(loop.extent),
        loop.kind,
        tuple(axis for axis, _ in loop.parts),
        bound,
        any(unit is not None for unit in loop.units),
    )


def _axes(statement: Statement, number: Number, digits: Digits) -> dict[str, Linear]:
    """Every axis as a form over the counters of the loops."""
    parts = _parts(statement, number, digits)
    moved = _by_units if any(loop.units for loop in statement.loops) else _by_extents
    axes = moved(statement, parts, number)
    axes |= _flattened(statement, axes, number, digits)
    corners = dict(axes)
    for axis, steps in statement.corners.items():
        for outer, step in steps.items():
            sign = -1 if (axis, outer) in statement.falling else 1
            shift = corners.get(outer, Linear()) * (sign * number(step))
            axes[axis] = axes.get(axis, Linear()) + shift
    for axis, start in statement.starts.items():
        axes[axis] = axes.get(axis, Linear()) + number(start)
    return axes


def _flattened(
    statement: Statement, axes: Mapping[str, Linear], number: Number, digits: Digits
) -> dict[str, Linear]:
    """The axes through which a fused copy counts its elements, the last the fastest."""
    found: dict[str, Linear] = {}
    rest = axes.get(ELEMENT, Linear())
    for position in reversed(range(len(statement.flattened))):
        axis, extent = statement.flattened[position]
        size = number(extent)
        found[axis] = rest if position == 0 else digits.remainder(rest, size)
        rest = digits.quotient(rest, size)
    return found


Part = tuple[int, int, str, int, Linear]
"""Number of the loop, position in it, axis, extent and counter of a part of a loop."""


def _parts(statement: Statement, number: Number, digits: Digits) -> list[Part]:
    """List what loops move; fused ones count through all of their parts, the last the fastest."""
    found: list[Part] = []
    for depth, loop in enumerate(statement.loops):
        if loop.name in statement.cooperating:
            continue
        rest = digits.counter(loop.name, number(loop.extent))
        of_loop: list[Part] = []
        for position in reversed(range(len(loop.parts))):
            axis, extent = loop.parts[position]
            size = number(extent)
            counter = rest if position == 0 else digits.remainder(rest, size)
            of_loop.append((depth, position, axis, size, counter))
            rest = rest if position == 0 else digits.quotient(rest, size)
        found += reversed(of_loop)
    return found


def _by_units(statement: Statement, parts: list[Part], number: Number) -> dict[str, Linear]:
    axes: dict[str, Linear] = {}
    for depth, position, axis, _, counter in parts:
        unit = number(statement.unit(depth, position))
        axes[axis] = axes.get(axis, Linear()) + counter * unit
    return axes


def _by_extents(statement: Statement, parts: list[Part], number: Number) -> dict[str, Linear]:
    axes: dict[str, Linear] = {}
    for _, _, axis, size, counter in parts:
        axes[axis] = axes.get(axis, Linear()) * size + counter
    return axes
