"""Which loops move a statement through a buffer, and how far in memory."""

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
from autotune.nest.loop_nest import ELEMENT, Access, Buffer, LoopNest, Statement
from autotune.nest.quantities.regions import held_depth, region_dimensions

__all__ = ["Layout", "Walk", "counted", "layout_of", "physical_region"]


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
    known: Buffer | None = next((b for b in nest.buffers if b.name == buffer), None)
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
