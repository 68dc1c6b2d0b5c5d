"""The symbolic loop nest: a workload after a sketch's steps, with extents as expressions.

Every statement of the scheduled program (computations, their initialisation, packing copies,
write-backs) is listed with the loops around it, outermost first. Loops shared by statements
are the same object. Quantities follow from extents alone:

* ``reach(axis, depth)``: how far an axis moves inside the loops from ``depth`` on;
* the *region* of a buffer: the hull of what a statement touches inside those loops,
  ``sum(|c| * (reach - 1)) + 1`` in each dimension; this is what gets allocated.

Everything else that follows from them is in :mod:`autotune.nest.quantities`. Inner
quantities are those of the first iteration of the loops outside.
"""

from __future__ import annotations

from attrs import field, frozen

from autotune.ir.element_types import element_type
from autotune.ir.expressions import (
    AffineForm,
    IndexTerm,
    IntExpr,
    ScalarExpr,
    ceildiv,
    const,
    less,
    maximum,
    minimum,
    product,
    select,
)
from autotune.ir.workloads import Workload
from autotune.sketches.steps import are_distances

LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", "block", "vthread", "thread")

ELEMENT = "element"
"""Axis of the fused loops of a cooperative copy: it counts the elements of the copied region."""


def copy_axis(dimension: int) -> str:
    """The axis of a copy along a dimension of what it copies; no axis of a stage is called so."""
    return f"copy.{dimension}"


@frozen
class LoopBound:
    """Bound on the iterations of a loop that are run, depending on another axis.

    A point is at ``scale * own + stride * other``. Those are run of which the least position is
    at most ``offset``, and the greatest at least ``least``.

    Attributes:
        axis: The other axis.
        offset: What positions are at most.
        scale: By what a value of the loop's own axis is multiplied; positive.
        stride: By what a value of the other axis is multiplied; not 0.
        least: What positions are at least; None: they may be anything below.
        values: Values of the loop's own axis.
    """

    axis: str
    offset: IntExpr
    scale: int
    stride: int = -1
    least: IntExpr | None = None
    values: int = 1

    @property
    def is_causal(self) -> bool:
        """Truth of :func:`~autotune.sketches.steps.are_distances` for this bound."""
        return are_distances(self.stride, self.least)


@frozen(eq=False)
class Loop:
    """Loop of a nest.

    Attributes:
        name: Its name.
        extent: How often it runs, at most.
        parts: How far each axis moves in it (several for a fused loop).
        kind: One of :data:`LOOP_KINDS`.
        units: For each part the values of its axis between two iterations; None, or no entry,
            where these are what the loops inside run through.
        bound: Up to where it runs; None: to its end.
    """

    name: str
    extent: IntExpr
    parts: tuple[tuple[str, IntExpr], ...]
    kind: str = "serial"
    units: tuple[IntExpr | None, ...] = ()
    bound: LoopBound | None = None

    @property
    def axis(self) -> str:
        """The axis that it moves, the outermost of a fused loop."""
        return self.parts[0][0]


@frozen
class Access:
    """Access of a statement to a buffer.

    Attributes:
        buffer: Name of the buffer.
        forms: Index of each dimension as a form over the statement's axes.
        shape: Extents that bound the region of each dimension.
        write: Whether it is written.
    """

    buffer: str
    forms: tuple[AffineForm, ...]
    shape: tuple[IntExpr, ...]
    write: bool = False

    @property
    def axes(self) -> frozenset[str]:
        """Axes that move an index."""
        return frozenset(axis for form in self.forms for axis in form.coefficients)


@frozen
class EarlyRead:
    """Elements that a statement asks for before it reads them.

    Attributes:
        operand: An input that it reads.
        loop: Name of the loop, whose next iteration it asks for.
        choice: 1 where it does; 0: as if this were not there.
    """

    operand: str
    loop: str
    choice: IntExpr


@frozen(eq=False)
class Statement:
    """Statement of the scheduled program.

    Attributes:
        name: ``C``, ``C.init``, ``C.write``, ``B.pack``, ...
        stage: The stage on whose behalf it runs.
        role: compute, init, write or pack.
        loops: Loops around it, outermost first.
        accesses: Reads, then the write.
        operations: Arithmetic operations per execution, by kind.
        body: What is stored, or combined into what is stored; over the statement's axes. None
            for an initialisation or a plain copy.
        sources: Buffer from which the body's loads of each tensor are served.
        corners: For a copy, whose own axes count from the corner of a tile: how far the corner
            moves along each own axis with each axis of the loops outside.
        starts: For a copy: where its corner is with all loops at 0, where that is not 0.
        falling: For a copy: pairs of its own axes and of axes whose steps move the corner down.
        cooperating: For a copy that all threads of a block make together: names of the loops
            over threads and virtual threads around it. They neither multiply its executions nor
            move what it touches.
        flattened: Axes that :data:`ELEMENT` counts through, the last the fastest, with their
            extents; empty unless the statement's own loops are fused.
        guards: Axes whose loops may pass their extent, with that extent: what lies beyond is
            skipped.
        unroll_limit: Statements that the compiler may make by unrolling loops; 0: unrolls none.
        intrinsic: The instruction that its innermost loops are calls of, as steps name it.
        pipelined: Name of the loop of which it runs one iteration late, and of the statement in
            whose own loops it does. Buffers that are allocated in this loop and that it reads
            keep what they hold until they are written again.
        streams: 1 where it writes past the caches; 0: as usual.
        early: What it asks for early.
    """

    name: str
    stage: str
    role: str
    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    operations: dict[str, int] = field(factory=dict)
    body: ScalarExpr | None = None
    sources: dict[str, str] = field(factory=dict)
    corners: dict[str, dict[str, IntExpr]] = field(factory=dict)
    starts: dict[str, IntExpr] = field(factory=dict)
    falling: frozenset[tuple[str, str]] = frozenset()
    cooperating: frozenset[str] = frozenset()
    flattened: tuple[tuple[str, IntExpr], ...] = ()
    guards: dict[str, IntExpr] = field(factory=dict)
    unroll_limit: IntExpr = const(0)
    intrinsic: str = ""
    pipelined: tuple[str, str] | None = None
    streams: IntExpr = const(0)
    early: tuple[EarlyRead, ...] = ()

    @property
    def stored(self) -> Access:
        """The access that it writes by."""
        return next(access for access in self.accesses if access.write)

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes that move in some loop."""
        return tuple(
            dict.fromkeys(
                axis
                for loop in self.loops
                if loop.name not in self.cooperating
                for axis, _ in loop.parts
            )
        )

    def movers(self, axis: str) -> frozenset[str]:
        """Axes of the loops that move ``axis``, which may be one of a copy's own."""
        found = {axis, *self.corners.get(axis, {})}
        if any(axis == name for name, _ in self.flattened):
            found.add(ELEMENT)
        return frozenset(found)

    def trips(self, depth: int) -> IntExpr:
        """Number of times that the loops from ``depth`` on are entered.

        Product of the outer extents, of bounded loops the mean number of iterations.
        """
        result, parts = const(1), const(1)
        for index, loop in enumerate(self.loops[:depth]):
            if loop.name in self.cooperating:
                continue
            if loop.bound is None:
                result = result * loop.extent
                continue
            passed, part = self._passed(index, loop.bound)
            result, parts = result * passed, parts * part
        if parts.value == 1:
            return result
        return minimum(ceildiv(result, parts), self._most_trips(depth))

    def _most_trips(self, depth: int) -> IntExpr:
        loops = self.loops[:depth]
        return product(loop.extent for loop in loops if loop.name not in self.cooperating)

    def iterations(self, index: int) -> IntExpr:
        """Number of iterations of a loop: its extent, or the mean of a bounded one, rounded up."""
        loop = self.loops[index]
        if loop.bound is None:
            return loop.extent
        passed, part = self._passed(index, loop.bound)
        return minimum(ceildiv(passed, part), loop.extent)

    def _passed(self, index: int, bound: LoopBound) -> tuple[IntExpr, IntExpr]:
        """Mean iterations of a bounded loop, as a fraction."""
        if bound.is_causal:
            return self._passed_in_triangle(index, bound)
        return self._passed_in_window(index, bound)

    def _passed_in_window(self, index: int, bound: LoopBound) -> tuple[IntExpr, IntExpr]:
        """Mean iterations of a loop with few values, exactly.

        For each value of its own axis the tiles of the other one are counted in which the
        iteration with this value is run. With ``t`` values in an iteration, ``r`` values of the
        other axis in a tile, and positions ``a * own + b * other``, these are the tiles ``i`` with
        ``a * first + b * i * r <= offset`` and ``a * last + b * ((i + 1) * r - 1) >= least``;
        where ``b`` is negative, counted from the last tile.
        """
        own, rows = self.reach(self.loops[index].axis, index + 1), self.reach(bound.axis, 0)
        inner = self.reach(bound.axis, index + 1)
        tiles, step = rows // inner, inner * abs(bound.stride)
        shift = (rows - 1) * min(bound.stride, 0)
        passed = const(0)
        for value in range(bound.values):
            first = const(value) // own * own
            end = (bound.offset - shift - first * bound.scale) // step + 1
            begin = const(0)
            if bound.least is not None:
                place = bound.least - shift - (first + own - 1) * bound.scale
                begin = maximum(ceildiv(place + abs(bound.stride), step) - 1, 0)
            passed = passed + maximum(minimum(end, tiles) - begin, 0)
        return maximum(passed, 1), own * tiles

    def _passed_in_triangle(self, index: int, bound: LoopBound) -> tuple[IntExpr, IntExpr]:
        """Mean iterations of a loop under a causal mask.

        With ``n`` values of the bounding axis, ``r`` of them inside the loop, and ``t`` of the
        ``m`` values of its own axis in an iteration, the mean over all ``n / r`` of
        ``((tile + 1) * r - 1 + offset) // t + 1`` is ``(n + r + t + 2 * offset - 1) / (2 * t)``,
        but for the rounding of the quotients. The last ``e = n + offset - m`` rows end with the
        axis, which takes ``e * (e + r) / n`` off the dividend.
        """
        loop = self.loops[index]
        rows, inner = self.reach(bound.axis, 0), self.reach(bound.axis, index + 1)
        part = self.reach(loop.axis, index + 1) * bound.scale
        past = rows + bound.offset - self.reach(loop.axis, 0) * bound.scale
        cut = minimum(maximum(past, 0), rows)
        passed = rows + inner + part + bound.offset * 2 - 1
        return maximum(passed - cut * (cut + inner) // rows, 1), part * 2

    def reach(self, axis: str, depth: int) -> IntExpr:
        """Distinct values of ``axis`` inside the loops from ``depth`` on."""
        inner = const(1)
        for name, extent in reversed(self.flattened):
            if name == axis:
                run = self.moved_inside(ELEMENT, depth)
                whole = self.moved_inside(ELEMENT, 0) == run
                return extent if whole else minimum(extent, ceildiv(run, inner))
            inner = inner * extent
        reach = self.moved_inside(axis, depth)
        return minimum(reach, self.guards[axis]) if axis in self.guards else reach

    def unit(self, index: int, position: int) -> IntExpr:
        """Values of its axis between two iterations of one part of loop ``index``."""
        loop = self.loops[index]
        known = loop.units[position] if loop.units else None
        if known is not None:
            return known
        own = loop.parts[position][0]
        inner = const(1)
        for axis, extent in loop.parts[position + 1 :]:
            inner = inner * extent if axis == own else inner
        for further in self.loops[index + 1 :]:
            if further.name not in self.cooperating:
                for axis, extent in further.parts:
                    inner = inner * extent if axis == own else inner
        return inner

    def moved_inside(self, axis: str, depth: int) -> IntExpr:
        """Product of the extents by which loops from ``depth`` on move ``axis``."""
        result = const(1)
        for loop in self.loops[depth:]:
            if loop.name in self.cooperating:
                continue
            for name, extent in loop.parts:
                if name == axis:
                    result = result * extent
        return result

    def terms(self, form: AffineForm, depth: int) -> tuple[tuple[IntExpr, IntExpr], ...]:
        """Steps of an index inside the loops from ``depth`` on: ``(step, reach)`` pairs.

        It takes the values ``sum(step * at)`` with every ``at`` in ``range(reach)``, apart from a
        constant and from signs. A copy's corner moves by terms of its own. A quotient or remainder
        takes its own values one after the other.
        """
        found = []
        for axis, coefficient in form.coefficients.items():
            if axis in form.terms:
                reach = self._term_reach(form.terms[axis], depth)
                found.append((const(abs(coefficient)), reach))
                continue
            found.append((const(abs(coefficient)), self.reach(axis, depth)))
            for outer, step in self.corners.get(axis, {}).items():
                found.append((step * abs(coefficient), self.reach(outer, depth)))
        return tuple(found)

    def _term_reach(self, term: IndexTerm, depth: int) -> IntExpr:
        """Values between the least and the largest that a term has inside ``depth``.

        Those of the first iteration of the loops outside, as all inner quantities, where what is
        divided never falls along an axis; elsewhere of any iteration, at most. What is neither
        quotient nor remainder has at most one value for each point of its axes.
        """
        if term.op == "any":
            return product(self._spread(axis, depth) for axis in sorted(term.operand.axes))
        extent = const(1)
        for step, reach in self.terms(term.operand, depth):
            extent = extent + (reach - 1) * step
        origin = term.operand.origin
        first = term.divisor - 1 if origin is None else origin % term.divisor
        if term.op == "floordiv":
            return ceildiv(extent + first, term.divisor)
        if first == 0:
            return minimum(extent, term.divisor)
        return select(less(term.divisor, extent + first), term.divisor, extent)

    def _spread(self, axis: str, depth: int) -> IntExpr:
        """Values of an axis inside ``depth``, at most, those by corners of a copy included."""
        result = self.reach(axis, depth)
        for outer in self.corners.get(axis, {}):
            result = result * self.reach(outer, depth)
        return result

    def region(self, access: Access, depth: int) -> tuple[IntExpr, ...]:
        """Hull of what ``access`` touches inside the loops from ``depth`` on, by dimension."""
        result = []
        for form, size in zip(access.forms, access.shape, strict=True):
            extent = const(1)
            for step, reach in self.terms(form, depth):
                extent = extended(extent, step, reach)
            within = self.within_bounds(access, form, depth)
            result.append(extent if within else minimum(extent, size))
        return tuple(result)

    def within_bounds(self, access: Access, form: AffineForm, depth: int) -> bool:
        """Return whether an index stays within its bound inside ``depth`` by construction.

        A constant does, and an axis does unless the corner of a copy moves it. A copy may be
        larger than what it copies.
        """
        corners = {outer for axis in form.coefficients for outer in self.corners.get(axis, {})}
        moved = any(self.reach(outer, depth).value != 1 for outer in corners)
        larger = self.role == "pack" and not access.write
        return not form.coefficients or (is_axis(form) and not moved and not larger)


@frozen(eq=False)
class Buffer:
    """A buffer that the schedule introduces, or that holds an intermediate result.

    Attributes:
        name: Name, as accesses use it.
        shape: Allocated extents.
        dtype: Element type.
        depth: Number of loops that enclose the allocation.
        scope: ``global``, ``shared`` (by the threads of a block) or ``local`` (to a thread).
        block_dim: Index that is laid out in blocks: those come first in ``shape``, what is inside
            a block last; the extent before the last may be larger than what is touched of it.
            None: ``shape`` follows the indices.
        group_dim: Index of a blocked buffer of which groups of neighbours are laid out inside
            everything else: the last extent of ``shape`` is that of a group.
        dims: Indices in the order in which ``shape`` has their extents; None: their own order.
            The last extent may be larger than what is touched of it.
        stages: How many iterations of the loop around the allocation have a part of it each, of
            extents ``shape``, one after the other in memory.
        bulk: Whether the device's copy engine fills it, when one thread asks for it.
    """

    name: str
    shape: tuple[IntExpr, ...]
    dtype: str
    depth: int
    scope: str = "global"
    block_dim: int | None = None
    group_dim: int | None = None
    dims: tuple[int, ...] | None = None
    stages: IntExpr = const(1)
    bulk: bool = False

    @property
    def extents(self) -> tuple[IntExpr, ...]:
        """Allocated extents: ``shape``, behind the number of stages where there are several."""
        return self.shape if self.stages.value == 1 else (self.stages, *self.shape)

    @property
    def elements(self) -> IntExpr:
        """Allocated elements."""
        return product(self.extents)

    @property
    def bytes(self) -> IntExpr:
        """Allocated bytes."""
        return self.elements * element_type(self.dtype).bytes


@frozen(eq=False)
class LoopNest:
    """Statements in program order, and the buffers that the schedule introduces.

    Attributes:
        statements: What a call of the program runs.
        buffers: Those that it allocates, and those that ``packing`` fills.
        workload: The sketch's with its reductions split as the steps say.
        packing: What packs constants before the first call.
    """

    statements: tuple[Statement, ...]
    buffers: tuple[Buffer, ...]
    workload: Workload
    packing: tuple[Statement, ...] = ()

    def buffer(self, name: str) -> Buffer | None:
        """The buffer of this name; None for a tensor of the workload."""
        return next((known for known in self.buffers if known.name == name), None)

    def scope(self, buffer: str) -> str:
        """Memory of a buffer or tensor: ``global``, ``shared`` or ``local``."""
        known = self.buffer(buffer)
        return "global" if known is None else known.scope

    def dtype(self, buffer: str) -> str:
        """Element type of a buffer or tensor."""
        known = self.buffer(buffer)
        return self.workload.tensors[buffer].dtype if known is None else known.dtype

    def element_bytes(self, buffer: str) -> int:
        """Bytes of one element of a buffer or tensor."""
        return element_type(self.dtype(buffer)).bytes

    def bounds(self, statement: Statement, buffer: str) -> tuple[IntExpr, ...]:
        """Extents of a buffer: as allocated, or as a statement's first access bounds it."""
        known = self.buffer(buffer)
        if known is not None:
            return known.shape
        return next(it.shape for it in statement.accesses if it.buffer == buffer)


def scope_inside(path: tuple[Loop, ...]) -> str:
    """Scope of a buffer that is allocated inside the given loops."""
    kinds = {loop.kind for loop in path}
    if kinds & {"thread", "vthread"}:
        return "local"
    return "shared" if "block" in kinds else "global"


def hull(form: AffineForm, reach: dict[str, IntExpr]) -> IntExpr:
    """Extent of the hull of an affine index whose axes take ``reach`` consecutive values each."""
    result = const(1)
    for axis, coefficient in form.coefficients.items():
        result = result + (reach[axis] - 1) * abs(coefficient)
    return result


def extended(extent: IntExpr, step: IntExpr, reach: IntExpr) -> IntExpr:
    """Extent of a hull that is repeated ``reach`` times, ``step`` apart."""
    return extent * reach if extent == step else extent + (reach - 1) * step


def is_axis(form: AffineForm) -> bool:
    """Return whether the index is an axis itself."""
    return form.constant == 0 and list(form.coefficients.values()) == [1] and not form.terms


def clipped_hull(form: AffineForm, reach: dict[str, IntExpr], bound: IntExpr) -> IntExpr:
    """The hull, at most ``bound``; an axis by itself never passes its bound."""
    extent = hull(form, reach)
    return extent if is_axis(form) or not form.coefficients else minimum(extent, bound)
