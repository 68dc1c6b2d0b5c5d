"""Reuse: which loop comes back to the same elements first, after how much else, how often.

Kinds and distances are those of TVM's ``per_store_feature`` (Ansor, OSDI'20, appendix): from
the innermost loop outwards, the first that does not move the buffer reuses it in every
iteration; before that, a loop that several statements share reuses what an earlier
statement touched in the same iteration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from attrs import frozen

from autotune.ir.expressions import (
    AffineForm,
    IndexTerm,
    IntExpr,
    ceildiv,
    const,
    less,
    maximum,
    minimum,
    nontrivial,
    product,
    select,
)
from autotune.nest.loop_nest import ELEMENT, Access, LoopNest, Statement
from autotune.nest.quantities.regions import buffers_of, held_depth, region_dimensions

__all__ = [
    "Layout",
    "Reuse",
    "Walk",
    "contiguous",
    "counted",
    "covered",
    "innermost_stride",
    "layout_of",
    "line_bytes",
    "line_quantities",
    "lines_by_power",
    "memory_quantities",
    "operation_quantities",
    "physical_region",
    "reloads",
    "reuse_of",
    "reuse_quantities",
    "touched_bytes",
    "traffic_quantities",
]


@frozen(eq=False)
class Layout:
    """Layout of a buffer in memory, row by row.

    Attributes:
        shape: Extents in memory, outermost first. A blocked buffer has one dimension more than
            its indices: blocks of one dimension come first, what is inside a block last.
        block_dim: The blocked index, or None.
        group_dim: The index whose groups are inside everything else, or None.
        dims: The indices in the order of ``shape``; None: their own.
    """

    shape: tuple[IntExpr, ...]
    block_dim: int | None
    group_dim: int | None = None
    dims: tuple[int, ...] | None = None

    def stride(self, dimension: int, step: IntExpr, extent: IntExpr) -> IntExpr:
        """Elements between places ``step`` apart in index ``dimension``, for a loop of ``extent``.

        A loop stays inside a block, or it goes from block to block.
        """
        if self.group_dim is not None:
            group, groups = self.shape[-1], Layout(self.shape[:-1], self.block_dim)
            if dimension != self.group_dim:
                return groups.stride(dimension, step, extent) * group
            between = groups.stride(dimension, ceildiv(step, group), extent) * group
            return select(less(step, group), step, between)
        if self.block_dim is None:
            place = dimension if self.dims is None else self.dims.index(dimension)
            return step * product(self.shape[place + 1 :])
        block = self.shape[-1]
        if dimension == self.block_dim:
            if (block % (step * extent)).value == 0:
                return step
            blocks = (step // block) * product(self.shape[1:])
            return blocks if (step % block).value == 0 else select(less(step, block), step, blocks)
        others = [at for at in range(len(self.shape) - 1) if at != self.block_dim]
        return step * product(self.shape[others.index(dimension) + 2 :])


def layout_of(nest: LoopNest, buffer: str) -> Layout:
    """The layout of a buffer of the schedule, or of a tensor of the workload."""
    known = nest.buffer(buffer)
    if known is not None:
        return Layout(known.shape, known.block_dim, known.group_dim, known.dims)
    return Layout(tuple(map(const, nest.workload.tensors[buffer].shape)), None)


def physical_region(
    nest: LoopNest, statement: Statement, buffer: str, layout: Layout
) -> tuple[IntExpr, ...]:
    """Extents in memory of the hull that a statement touches of ``buffer``."""
    extents = list(region_dimensions(statement, buffer, held_depth(nest, buffer)))
    if layout.dims is not None:
        return tuple(extents[dimension] for dimension in layout.dims)
    if layout.block_dim is None:
        return tuple(extents)
    inside: tuple[IntExpr, ...] = ()
    block = layout.shape[-1]
    if layout.group_dim is not None:
        *_, block, group = layout.shape
        inside = (minimum(extents[layout.group_dim], group),)
        extents[layout.group_dim] = ceildiv(extents[layout.group_dim], group)
    blocked = extents.pop(layout.block_dim)
    return (ceildiv(blocked, block), *extents, minimum(blocked, block), *inside)


@frozen(eq=False)
class Walk:
    """Walk of a statement through a buffer.

    The loops of a copy that threads make together count elements of the copied region, which
    are digits of its dimensions: a step of such a loop moves the fastest digit that is longer
    than the step.

    Attributes:
        nest: The nest.
        statement: The statement.
        buffer: Name of the buffer.
        known: Quantities of this statement and of those before it, by output name: at least
            ``region`` and ``trips``.
        annotated: Whether loops of extent 1 count as loops when they are marked (parallel,
            vectorised, bound, ...), as they do in TVM.
    """

    nest: LoopNest
    statement: Statement
    buffer: str
    known: Mapping[str, IntExpr]
    annotated: bool = False

    @cached_property
    def layout(self) -> Layout:
        """Layout of the buffer in memory."""
        return layout_of(self.nest, self.buffer)

    @cached_property
    def counts(self) -> tuple[IntExpr, ...]:
        """For each loop 1 if it counts as a loop, else 0: it repeats something."""
        return tuple(
            counted(self.statement, index, annotated=self.annotated)
            for index in range(len(self.statement.loops))
        )

    @cached_property
    def moves(self) -> tuple[IntExpr, ...]:
        """For each loop 1 if it moves the statement through the buffer, else 0."""
        found = []
        for parts in self._moving:
            moved = const(0)
            for extent, _ in parts:
                own = nontrivial(extent)
                moved = own if moved.value == 0 else maximum(moved, own)
            found.append(moved)
        return tuple(found)

    @cached_property
    def strides(self) -> tuple[IntExpr, ...]:
        """For each loop the elements between two consecutive iterations, where it moves.

        Of a fused loop, the innermost part that moves at all decides.
        """
        found = []
        for parts in self._moving:
            result = const(0)
            for extent, stride in parts:
                outer = stride if result.value == 0 else result
                result = select(nontrivial(extent), stride, outer)
            found.append(result)
        return tuple(found)

    @cached_property
    def _moving(self) -> tuple[list[tuple[IntExpr, IntExpr]], ...]:
        return tuple(self._moving_parts(index) for index in range(len(self.statement.loops)))

    def _moving_parts(self, index: int) -> list[tuple[IntExpr, IntExpr]]:
        """Extent and stride of the parts of a loop that move the buffer, outermost first."""
        if self._same_memory(index) or self._cooperates(index):
            return []
        loop = self.statement.loops[index]
        found = []
        for position, (axis, extent) in enumerate(loop.parts):
            inner = self.statement.unit(index, position)
            strides = [
                stride
                for access in self._accesses()
                for stride in self._strides(access, axis, inner, extent)
            ]
            if strides and extent.value != 1:
                found.append((extent, _smallest(strides)))
        return found

    def _same_memory(self, index: int) -> bool:
        """Return whether a loop lies outside the allocation: each iteration has the same memory.

        Threads outside the allocation of shared memory have different parts of one allocation.
        """
        if index >= held_depth(self.nest, self.buffer):
            return False
        scopes = {known.name: known.scope for known in self.nest.buffers}
        threads = self.statement.loops[index].kind in ("thread", "vthread")
        return not (threads and scopes.get(self.buffer) == "shared")

    def _cooperates(self, index: int) -> bool:
        return self.statement.loops[index].name in self.statement.cooperating

    def _accesses(self) -> list[Access]:
        return [access for access in self.statement.accesses if access.buffer == self.buffer]

    def _strides(
        self, access: Access, axis: str, inner: IntExpr, extent: IntExpr
    ) -> list[IntExpr]:
        """Stride of one part of a loop in an access: of the last dimension that it moves."""
        if axis == ELEMENT:
            return self._element_strides(access, inner)
        for dimension in reversed(self.layout.dims or range(len(access.forms))):
            step = self._step(access.forms[dimension], axis, inner)
            if step.value != 0:
                return [self.layout.stride(dimension, step, extent)]
        return []

    def _step(self, form: AffineForm, axis: str, inner: IntExpr) -> IntExpr:
        """Distance that an index moves with ``inner`` steps of an axis.

        A quotient moves by the whole divisors in them, a remainder only by fewer than its
        divisor; what is neither moves by one.
        """
        step = const(0)
        for own, coefficient in form.coefficients.items():
            term = form.terms.get(own)
            if term is not None:
                step = step + self._term_step(term, axis, inner) * abs(coefficient)
                continue
            if own == axis:
                step = step + inner * abs(coefficient)
            corner = self.statement.corners.get(own, {}).get(axis)
            if corner is not None:
                step = step + inner * corner * abs(coefficient)
        return step

    def _term_step(self, term: IndexTerm, axis: str, inner: IntExpr) -> IntExpr:
        step = self._step(term.operand, axis, inner)
        if term.op == "any":
            return minimum(step, 1)
        if term.op == "floordiv":
            return step // term.divisor
        return select(less(step, term.divisor), step, 0)

    def _element_strides(self, access: Access, step: IntExpr) -> list[IntExpr]:
        """Stride of a loop that counts elements of a copied region by ``step``."""
        inner, result = const(1), const(0)
        slower = []
        for own, extent in reversed(self.statement.flattened):
            for dimension, form in enumerate(access.forms):
                if own in form.axes:
                    moved = self._step(form, own, step // inner)
                    slower.append((inner * extent, self.layout.stride(dimension, moved, const(1))))
            inner = inner * extent
        for beyond, stride in reversed(slower):
            result = stride if result.value == 0 else select(less(step, beyond), stride, result)
        return [result] if slower else []


def counted(statement: Statement, index: int, *, annotated: bool) -> IntExpr:
    """1 if a loop counts as a loop, else 0: it runs more than once, or is marked (``annotated``).

    A loop that cooperating threads share is not a loop of the copy that they make.
    """
    loop = statement.loops[index]
    if loop.name in statement.cooperating:
        return const(0)
    if annotated and loop.kind != "serial":
        return const(1)
    return nontrivial(loop.extent)


def _smallest(values: Sequence[IntExpr]) -> IntExpr:
    first, *rest = values
    for value in rest:
        first = minimum(first, value)
    return first


@frozen(eq=False)
class Reuse:
    """The first reuse of a buffer by a statement; all 0 (and ``share`` 1) if there is none.

    Attributes:
        loop: 1 if a loop reads the same elements in each of its iterations.
        serial: 1 if an earlier statement touched them in the same iteration of a shared loop.
        count: Iterations of that loop, or earlier statements that touch the buffer in it.
        iterations: Executions between two uses, times ``share``.
        bytes: Bytes touched between two uses, times ``share``.
        share: What the two above are divided by: the extent of the shared loop, or 1.
    """

    loop: IntExpr
    serial: IntExpr
    count: IntExpr
    iterations: IntExpr
    bytes: IntExpr
    share: IntExpr

    def values(self) -> tuple[IntExpr, ...]:
        """The six values in the order above."""
        return (self.loop, self.serial, self.count, self.iterations, self.bytes, self.share)


def touched_bytes(
    nest: LoopNest, statement: Statement, depth: int, known: Mapping[str, IntExpr]
) -> IntExpr:
    """Bytes of the regions of all buffers that a statement touches inside ``depth``."""
    total = const(0)
    for buffer in buffers_of(statement):
        region = known[f"{statement.name}/region/{buffer}/{depth}"]
        total = total + region * nest.element_bytes(buffer)
    return total


def companions(nest: LoopNest, statement: Statement, index: int) -> list[Statement]:
    """Statements inside the same loop ``index``, up to and with ``statement`` in program order.

    Initialisations are left out: they are part of the update that follows them.
    """
    names = [loop.name for loop in statement.loops[: index + 1]]
    found = []
    for other in nest.statements:
        shared = [loop.name for loop in other.loops[: index + 1]] == names
        if shared and (other.role != "init" or other is statement):
            found.append(other)
        if other is statement:
            break
    return found


def reuse_of(walk: Walk) -> Reuse:
    """The first reuse along a walk, from the innermost loop outwards."""
    nothing = Reuse(const(0), const(0), const(0), const(0), const(0), const(1))
    result = nothing
    for index in range(len(walk.statement.loops)):
        counts, moves = walk.counts[index], walk.moves[index]
        again = _serial(walk, index) or result
        if counts == moves:
            result = _chosen(counts, again, result)
        else:
            result = _chosen(counts, _chosen(moves, again, _repeated(walk, index)), result)
    return result


def _repeated(walk: Walk, index: int) -> Reuse:
    """Reuse by a loop that does not move the buffer."""
    statement = walk.statement
    inside = const(1)
    for loop in statement.loops[index + 1 :]:
        if loop.name not in statement.cooperating:
            inside = inside * loop.extent
    extent = statement.loops[index].extent
    return Reuse(const(1), const(0), extent, inside, _between(walk, index + 1), const(1))


def _serial(walk: Walk, index: int) -> Reuse | None:
    """Reuse of what an earlier statement touched in the same loop; None if none did."""
    nest, buffer = walk.nest, walk.buffer
    inside = companions(nest, walk.statement, index)
    touching = [item for item in inside if buffer in buffers_of(item)]
    if len(touching) < 2:
        return None
    regions = [walk.known[f"{item.name}/region/{buffer}/{index}"] for item in touching]
    fewest = regions[0]
    for region in regions[1:]:
        fewest = minimum(fewest, region)
    extent = walk.statement.loops[index].extent
    total = _together(walk, index)
    return Reuse(const(0), const(1), const(len(touching) - 1), fewest, total, extent)


def _together(walk: Walk, index: int) -> IntExpr:
    """Bytes that all statements inside loop ``index`` touch, up to this one."""
    total = const(0)
    for item in companions(walk.nest, walk.statement, index):
        total = total + touched_bytes(walk.nest, item, index, walk.known)
    return total


def _between(walk: Walk, depth: int) -> IntExpr:
    """Bytes touched inside the loops from ``depth`` on, in the first of them that counts."""
    statement = walk.statement
    if depth == len(statement.loops) or len(companions(walk.nest, statement, depth)) == 1:
        return touched_bytes(walk.nest, statement, depth, walk.known)
    return select(walk.counts[depth], _together(walk, depth), _between(walk, depth + 1))


def _chosen(condition: IntExpr, when_true: Reuse, when_false: Reuse) -> Reuse:
    pairs = zip(when_true.values(), when_false.values(), strict=True)
    return Reuse(*(select(condition, first, second) for first, second in pairs))


def reuse_quantities(
    nest: LoopNest, statement: Statement, known: Mapping[str, IntExpr]
) -> dict[str, IntExpr]:
    """``reuse_loop``, ``reuse_serial``, ... of one statement, by output name."""
    outputs: dict[str, IntExpr] = {}
    names = ("loop", "serial", "count", "iterations", "bytes", "share")
    for buffer in buffers_of(statement):
        found = reuse_of(Walk(nest, statement, buffer, known))
        for name, value in zip(names, found.values(), strict=True):
            outputs[f"{statement.name}/reuse_{name}/{buffer}"] = value
    return outputs


# What memory moves at a time, on every target: TVM's and Ansor's features assume the same.
LINE_BYTES = 64


def smallest_stride(walk: Walk) -> IntExpr:
    """Stride, in elements, of the innermost loop that moves the buffer; 0 if none does."""
    result = const(0)
    for index in range(len(walk.statement.loops)):
        result = select(walk.moves[index], walk.strides[index], result)
    return result


def innermost_stride(walk: Walk) -> IntExpr:
    """Stride, in elements, of the innermost loop in the buffer; 0 if it does not move it."""
    result = const(0)
    for index in range(len(walk.statement.loops)):
        moves, counts = walk.moves[index], walk.counts[index]
        moved = walk.strides[index] if moves == counts else select(moves, walk.strides[index], 0)
        result = select(counts, moved, result)
    return result


def line_bytes(walk: Walk) -> IntExpr:
    """Bytes of the cache lines that all executions touch, each line once per run along it.

    The loops inside the innermost one that moves the buffer stay in a line; of each step of that
    one, at most a whole line is counted.
    """
    width = walk.nest.element_bytes(walk.buffer)
    result = const(0)
    for index in range(len(walk.statement.loops)):
        per_step = minimum(walk.strides[index] * width, LINE_BYTES)
        touched = walk.known[f"{walk.statement.name}/trips/{index + 1}"] * per_step
        result = select(walk.moves[index], touched, result)
    return result


def lines_by_power(walk: Walk) -> tuple[IntExpr, IntExpr]:
    """Count as :func:`line_bytes`, with an error of Ansor's and TenSet's extractor: a quotient.

    The loops inside the first that moves the buffer are divided out as if each had the extent of
    the innermost one. Returns dividend and divisor.
    """
    width = walk.nest.element_bytes(walk.buffer)
    innermost, top, bottom = const(1), const(0), const(1)
    for loop, counts in zip(walk.statement.loops, walk.counts, strict=True):
        innermost = select(counts, loop.extent, innermost)
    total = walk.known[f"{walk.statement.name}/trips/{len(walk.statement.loops)}"]
    for index, counts in enumerate(walk.counts):
        bottom = bottom * select(counts, innermost, 1)
        top = select(
            walk.moves[index], total * minimum(walk.strides[index] * width, LINE_BYTES), top
        )
        bottom = select(walk.moves[index], 1, bottom)
    return top, bottom


def contiguous(nest: LoopNest, statement: Statement, buffer: str) -> IntExpr:
    """Elements that lie together in memory in the hull of what is touched of a buffer.

    The innermost dimension, and the next one out as long as those inside are covered completely.
    """
    layout = layout_of(nest, buffer)
    extents = physical_region(nest, statement, buffer, layout)
    result = const(1)
    for extent, size in zip(extents, layout.shape, strict=True):
        # From the outermost dimension in: a dimension that is not covered ends the run.
        result = extent * _if_full(extent, size, result)
    return result


def _if_full(extent: IntExpr, size: IntExpr, outer: IntExpr) -> IntExpr:
    if extent == size:
        return outer
    return select(less(extent, size), 1, outer)


def covered(shape: tuple[IntExpr, ...], extents: tuple[IntExpr, ...]) -> IntExpr:
    """Extent of the last dimension that equals what is touched of it; 0 if none does.

    TVM and Ansor take it for what lies together in memory, whatever is inside that dimension.
    """
    result = const(0)
    for extent, size in zip(extents, shape, strict=False):
        equal = select(less(extent, size), result, select(less(size, extent), result, size))
        result = size if extent == size else equal
    return result


def line_quantities(
    nest: LoopNest, statement: Statement, known: Mapping[str, IntExpr]
) -> dict[str, IntExpr]:
    """``stride``, ``step``, ``line_bytes`` and ``contiguous`` of one statement, by output name."""
    outputs: dict[str, IntExpr] = {}
    name = statement.name
    for buffer in buffers_of(statement):
        walk = Walk(nest, statement, buffer, known)
        outputs[f"{name}/stride/{buffer}"] = innermost_stride(walk)
        outputs[f"{name}/step/{buffer}"] = smallest_stride(walk)
        outputs[f"{name}/line_bytes/{buffer}"] = line_bytes(walk)
        outputs[f"{name}/contiguous/{buffer}"] = contiguous(nest, statement, buffer)
    return outputs


# What runs these loops has memory of its own and brings in what it needs by itself.
_PRIVATE = ("block", "thread")


def reloads(nest: LoopNest, statement: Statement, buffer: str) -> tuple[IntExpr, ...]:
    """Number of times that the region of ``buffer`` inside each depth is brought in, [loops + 1].

    A region stays while the loops around it do not move it: what counts are the iterations of all
    loops up to the innermost one that moves it and runs more than once. A fused loop counts as
    the loops that it was fused from. Loops outside the allocation bring nothing in.
    """
    moving = _moving_axes(statement, buffer)
    held = held_depth(nest, buffer)
    trips = again = const(1)
    found = [again]
    for index, loop in enumerate(statement.loops):
        if loop.name not in statement.cooperating:
            for axes, extent in _units(statement, index):
                trips = trips * extent
                if index >= held and (loop.kind in _PRIVATE or axes & moving):
                    again = select(nontrivial(extent), trips, again)
        found.append(again)
    return tuple(found)


def traffic_quantities(
    nest: LoopNest, statement: Statement, known: dict[str, IntExpr]
) -> dict[str, IntExpr]:
    """``traffic`` of one statement by output name, from its ``region``."""
    name = statement.name
    outputs: dict[str, IntExpr] = {}
    for buffer in buffers_of(statement):
        for depth, again in enumerate(reloads(nest, statement, buffer)):
            region = known[f"{name}/region/{buffer}/{depth}"]
            outputs[f"{name}/traffic/{buffer}/{depth}"] = region * again
    return outputs


def _moving_axes(statement: Statement, buffer: str) -> set[str]:
    """Axes that move the buffer's indices, those that move a copy's corner included."""
    axes = {
        axis
        for access in statement.accesses
        if access.buffer == buffer
        for form in access.forms
        for axis in form.axes
    }
    return {mover for axis in axes for mover in statement.movers(axis)}


def _units(statement: Statement, index: int) -> list[tuple[set[str], IntExpr]]:
    """Axes and iterations of the loops that a loop was fused from, outermost first."""
    loop, product = statement.loops[index], const(1)
    if loop.bound is not None:
        return [({loop.axis}, statement.iterations(index))]
    for _, extent in loop.parts:
        product = product * extent
    if product == loop.extent:
        return [({axis}, extent) for axis, extent in loop.parts]
    return [({axis for axis, _ in loop.parts}, loop.extent)]


def memory_quantities(nest: LoopNest) -> dict[str, IntExpr]:
    """``buffer/NAME`` of every allocation, and the totals per block and per thread."""
    outputs = {f"buffer/{buffer.name}": buffer.bytes for buffer in nest.buffers}
    for scope in ("shared", "local"):
        total = const(0)
        for buffer in nest.buffers:
            if buffer.scope == scope:
                total = total + buffer.bytes
        outputs[f"{scope}_bytes"] = total
    return outputs


def operation_quantities(statement: Statement) -> dict[str, IntExpr]:
    """``operations`` of one statement by output name: the count in its body times executions."""
    executions = statement.trips(len(statement.loops))
    return {
        f"{statement.name}/operations/{kind}": executions * count
        for kind, count in sorted(statement.operations.items())
    }
