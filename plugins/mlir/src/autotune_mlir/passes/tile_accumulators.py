"""Where sums of products in tile registers are: in registers over whole loops, or in memory.

Sums of a contraction are parts of a vector, and those of a call two registers or four. Where all
sums that a nest of loops adds to fit four registers they stay there; otherwise they are in
memory, and each iteration loads and stores them. Registers belong to the thread, which configures
them once for all calls in the body of a parallel loop, or of the function, that agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from attrs import define, field, frozen

from autotune.backends import ALIGNMENT
from autotune.sketches.intrinsics.tile_registers import SUMS
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.carried_sums import FIRST_CARRIED, behind, carrying_loops
from autotune_mlir.passes.contractions import erase_unused, extents_of
from autotune_mlir.passes.interleave import PARALLEL
from autotune_mlir.passes.split_packing import origin, written_buffers
from autotune_mlir.passes.tile_product_calls import Place, TileCalls, TileLayout, element_strides
from autotune_mlir.passes.vector_maker import VectorMaker
from autotune_mlir.tile_products import (
    TileMaker,
    TileMemory,
    changes_tiles,
    configure,
    release,
    uses_tiles,
)
from autotune_mlir.traversal import ancestors, operations_in, users_of

__all__ = ["TileAccumulators"]


@define(eq=False)
class _Chain:
    """Contractions that continue each other's sums.

    Attributes:
        calls: The contractions, in order.
        loops: Loops that carry the sums, outermost first, each with their number.
        buffer: Memory for the sums, if they need any.
    """

    calls: Sequence[TileCalls]
    loops: list[tuple[Any, int]] = field(init=False)
    buffer: Any = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.loops = carrying_loops([call.operation for call in self.calls])

    @property
    def first(self) -> TileCalls:
        """The first contraction."""
        return self.calls[0]

    @property
    def end(self) -> Any:
        """The outermost loop, or the last contraction."""
        return self.loops[0][0] if self.loops else self.calls[-1].operation

    @property
    def start(self) -> Any:
        """The sums before the first product."""
        if self.loops:
            loop, at = self.loops[0]
            return loop.operands[FIRST_CARRIED + at]
        return self.first.operation.operands[2]

    @property
    def total(self) -> Any:
        """The sums after the last product."""
        if self.loops:
            loop, at = self.loops[0]
            return loop.results[at]
        return self.calls[-1].operation.results[0]

    @property
    def registers(self) -> int:
        """Registers that hold all sums."""
        return len(self.first.places) * self.first.call.registers

    def located(self, sums: TileLayout, place: Place) -> tuple[TileMemory, int]:
        """Where the sums of a call are in the memory of all."""
        return sums.at(dict(zip(self.first.result, place, strict=True)))

    def is_undisturbed(self, until: Any) -> bool:
        """Whether factors are in memory what they were, until an operation of the block."""
        order = _order(until.block)
        last = order.index(until)
        return all(call.is_undisturbed(order, last) for call in self.calls)


@frozen
class _Span:
    """Instructions that have to find registers configured.

    Attributes:
        first: The first of them.
        last: The last one, in the same block.
        rows: As of :func:`autotune_mlir.tile_products.configure`.
    """

    first: Any
    last: Any
    rows: int


@define(eq=False)
class TileAccumulators:
    """Puts calls in the place of contractions in a function.

    Attributes:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on buffers.
    """

    ir: Any
    kernel: Any
    _spans: list[_Span] = field(init=False, factory=list)

    def replace(self, chains: Sequence[Sequence[TileCalls]]) -> None:
        """Put calls in the place of contractions.

        Args:
            chains: As of :func:`autotune_mlir.passes.carried_sums.chains`; all of one instruction.

        Raises:
            InvalidSchedule: factors are no rows in memory.
        """
        nests: list[list[_Chain]] = []
        for chain in map(_Chain, chains):
            same = [nest for nest in nests if chain.loops and nest[0].end == chain.end]
            if same:
                same[0].append(chain)
            else:
                nests.append([chain])
        for call in itertools.chain(*chains):
            if call.left_read is None:
                call.write_left(self._allocated(call.operation, call.left.value.type))
        for nest in nests:
            if not nest[0].loops:
                self._at_once(nest[0])
            elif self._fit(nest):
                self._over_loops(nest)
            else:
                for chain in nest:
                    self._in_iterations(chain)
        for call in itertools.chain(*chains):
            call.operation.results[0].replace_all_uses_with(call.operation.operands[2])
            erase_unused(call.operation)

    def configure(self) -> None:
        """Configure the registers where they are used; once all contractions are replaced."""
        scopes: list[tuple[Any, list[_Span]]] = []
        for span in self._spans:
            scope = _scope(span.first)
            known = next((spans for block, spans in scopes if block == scope), None)
            if known is None:
                scopes.append((scope, [span]))
            else:
                known.append(span)
        for scope, spans in scopes:
            if len({span.rows for span in spans}) == 1:
                order = _order(scope)
                ends = [it for span in spans for it in (span.first, span.last)]
                places = [order.index(_inside(scope, it)) for it in ends]
                self._around(_Span(order[min(places)], order[max(places)], spans[0].rows))
            else:
                for span in spans:
                    self._around(span)

    def _around(self, span: _Span) -> None:
        with self.ir.InsertionPoint(span.first), span.first.location:
            configure(self.ir, self.kernel, span.rows)
        with behind(self.ir, span.last), span.last.location:
            release(self.ir)

    def _fit(self, nest: Sequence[_Chain]) -> bool:
        """Whether all sums of a nest fit the registers, which nothing else in it uses."""
        own = [call.operation for chain in nest for call in chain.calls]
        loop = nest[0].end
        others = [
            it for it in operations_in(loop) if it.name == "vector.contract" and it not in own
        ]
        enough = sum(chain.registers for chain in nest) <= len(SUMS)
        return enough and not others and not uses_tiles(loop)

    def _at_once(self, chain: _Chain) -> None:
        """Compute sums that no loop carries, those of one call after those of another.

        All of it is done where they are written, if they are.
        """
        self._check(chain)
        write = self._plain_write(chain)
        if write is not None and not chain.is_undisturbed(write):
            write = None
        at = chain.end if write is None else write
        made = []
        with self.ir.InsertionPoint(at), at.location:
            make, source = self._maker(chain), self._source(chain)
            target = self._target(chain, write)
            for place in chain.first.places:
                first = None if source is None else chain.located(source, place)
                made.append(make.begin(first, 0))
                for call in chain.calls:
                    call.add(make, {place: 0})
                made.append(make.finish(chain.located(target, place), 0))
            self._give(chain, write)
        self._spans.append(_Span(made[0], made[-1], chain.first.call.block_rows))

    def _over_loops(self, nest: Sequence[_Chain]) -> None:
        """Keep sums in registers over the loops that carry them."""
        loop, rows = nest[0].end, nest[0].first.call.block_rows
        places = [(at, place) for at, chain in enumerate(nest) for place in chain.first.places]
        registers = itertools.count(0, nest[0].first.call.registers)
        bases = dict(zip(places, registers, strict=False))
        begun, finished = [], []
        with self.ir.InsertionPoint(loop), loop.location:
            for at, chain in enumerate(nest):
                source = self._source(chain)
                for place in chain.first.places:
                    first = None if source is None else chain.located(source, place)
                    begun.append(self._maker(chain).begin(first, bases[at, place]))
        for at, chain in enumerate(nest):
            self._check(chain)
            own = {place: bases[at, place] for place in chain.first.places}
            for call in chain.calls:
                with self.ir.InsertionPoint(call.operation), call.operation.location:
                    call.add(self._maker(chain), own)
        for at, chain in enumerate(nest):
            write = self._plain_write(chain)
            if write is not None and not _keeps_registers(loop, write):
                write = None
            point = behind(self.ir, loop) if write is None else self.ir.InsertionPoint(write)
            with point, loop.location:
                target = self._target(chain, write)
                for place in chain.first.places:
                    base = bases[at, place]
                    finished.append(self._maker(chain).finish(chain.located(target, place), base))
                self._give(chain, write)
        order = _order(loop.block)
        self._spans.append(_Span(begun[0], max(finished, key=order.index), rows))

    def _in_iterations(self, chain: _Chain) -> None:
        """Load sums from memory in each iteration, and store them again."""
        self._check(chain)
        loop, inner = chain.end, chain.calls[-1].operation
        make, buffer = self._maker(chain), self._buffer(chain)
        with self.ir.InsertionPoint(loop), loop.location:
            VectorMaker(self.ir).write_whole(chain.start, buffer)
        made = []
        with self.ir.InsertionPoint(inner), inner.location:
            sums = chain.first.sums_in(buffer)
            for place in chain.first.places:
                made.append(make.begin(chain.located(sums, place), 0))
                for call in chain.calls:
                    call.add(make, {place: 0})
                made.append(make.finish(chain.located(sums, place), 0))
        with behind(self.ir, loop), loop.location:
            self._give(chain, None)
        self._spans.append(_Span(made[0], made[-1], chain.first.call.block_rows))

    def _check(self, chain: _Chain) -> None:
        if not chain.is_undisturbed(chain.calls[-1].operation):
            raise chain.first.refused("a factor is written again before it is multiplied")

    def _maker(self, chain: _Chain) -> TileMaker:
        return TileMaker(self.ir, chain.first.call)

    def _source(self, chain: _Chain) -> TileLayout | None:
        """Where sums are before the first product; None where they are zeros."""
        if _is_zero(self.ir, chain.start):
            return None
        buffer = self._buffer(chain)
        VectorMaker(self.ir).write_whole(chain.start, buffer)
        return chain.first.sums_in(buffer)

    def _target(self, chain: _Chain, write: Any | None) -> TileLayout:
        """Where sums are stored: where they are written, or in a buffer of their own."""
        if write is None:
            return chain.first.sums_in(self._buffer(chain))
        _, buffer, *indices = write.operands
        return chain.first.sums_in(buffer, indices)

    def _give(self, chain: _Chain, write: Any | None) -> None:
        """Have what uses the sums read the buffer, unless they are where they are written."""
        if write is not None:
            write.erase()
            return
        whole = VectorMaker(self.ir).read_whole(self._buffer(chain), chain.total.type)
        chain.total.replace_all_uses_with(whole)

    def _plain_write(self, chain: _Chain) -> Any | None:
        """What writes all sums and is all that uses them, in the block where they are complete."""
        users = users_of(chain.total)
        if len(users) != 1 or users[0].block != chain.end.block:
            return None
        (user,) = users
        plain = VectorMaker(self.ir).is_plain_write(user)
        return user if plain and element_strides(user.operands[1]) is not None else None

    def _buffer(self, chain: _Chain) -> Any:
        """A buffer of the thread's own for sums."""
        if chain.buffer is None:
            chain.buffer = self._allocated(chain.end, chain.total.type)
        return chain.buffer

    def _allocated(self, user: Any, kind: Any) -> Any:
        """A buffer of the thread's own of the shape of a vector."""
        ir = self.ir
        alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)
        segments = ir.DenseI32ArrayAttr.get([0, 0])
        attributes = {"alignment": alignment, "operandSegmentSizes": segments}
        wanted = ir.MemRefType.get(list(kind.shape), kind.element_type)
        with ir.InsertionPoint.at_block_begin(_scope(user)), user.location:
            return ir.Operation.create("memref.alloca", [wanted], [], attributes).results[0]


def _order(block: Any) -> list[Any]:
    return [view.operation for view in block.operations]


def _scope(operation: Any) -> Any:
    """The block that runs on one thread: the body of a parallel loop, or of the function."""
    around = ancestors(operation)
    for inner, outer in itertools.pairwise(around):
        if outer.name in PARALLEL or outer.name == "func.func":
            return inner.block
    raise AssertionError("an operation is in a function")


def _inside(block: Any, operation: Any) -> Any:
    """The operation of a block that another one is, or is in."""
    return next(it for it in ancestors(operation) if it.block == block)


def _keeps_registers(loop: Any, write: Any) -> bool:
    """Whether registers are what they were behind a loop where its sums are written."""
    order = _order(loop.block)
    between = order[order.index(loop) + 1 : order.index(write)]
    return not any(
        len(it.regions) or it.name in ("func.call", "vector.contract") or changes_tiles(it)
        for it in between
    )


def _is_zero(ir: Any, value: Any) -> bool:
    """Whether all elements of a vector are zeros, as far as the block that it is made in tells."""
    producer = defining(value)
    if producer is None:
        return False
    if producer.name in ("vector.shape_cast", "vector.broadcast"):
        return _is_zero(ir, producer.operands[0])
    if producer.name == "arith.constant":
        number = producer.attributes["value"]
        if isinstance(number, ir.DenseElementsAttr):
            return bool(number.is_splat) and number.get_splat_value().value == 0
        return bool(number.value == 0)
    if producer.name != "vector.transfer_read":
        return False
    order, source = _order(producer.block), origin(producer.operands[0])
    for before in reversed(order[: order.index(producer)]):
        if len(before.regions):
            return False
        if any(origin(buffer) == source for buffer in written_buffers(before)):
            return _fills(before, source) and _is_zero(ir, before.operands[0])
    return False


def _fills(write: Any, buffer: Any) -> bool:
    """Whether an operation writes a vector to all of a buffer."""
    if write.name != "vector.transfer_write" or write.operands[1] != buffer:
        return False
    inside = all(str(it) == "true" for it in write.attributes["in_bounds"])
    whole = extents_of(write.operands[0]) == extents_of(buffer)
    return inside and whole and not list(write.attributes["operandSegmentSizes"])[-1]
