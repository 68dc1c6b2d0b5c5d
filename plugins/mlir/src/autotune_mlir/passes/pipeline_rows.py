"""Rows that are written while the next one is computed, in programs on buffers.

Loops over tensors carry what they write, and no operation of the Transform dialect runs a part of
an iteration within the next one. On buffers the last stage of a row moves into the loop of an
earlier one of the next row, a few vectors at a time: arithmetic between the stores gives memory
time to take them. Operations are assigned to stages by their places in the text, as for rows that
are fetched ahead (:mod:`autotune_mlir.passes.prefetch_rows`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from autotune.backends import InvalidSchedule
from autotune_mlir.importing.locations import positions
from autotune_mlir.importing.scalar_import import defining
from autotune_mlir.passes.split_packing import ALLOCATIONS, VIEWS, origin, written_buffers
from autotune_mlir.traversal import ancestors, constant_index, parent_of, users_of, with_inner

__all__ = ["PIPELINE", "LateStage", "mark_of", "pipeline_rows"]

PIPELINE = "autotune.pipeline"
"""Attribute of a function: which stages run an iteration late."""

_MARKS, _STAGES = "; ", " | "
_MORE_THAN = 4  # of arith.cmpi, signed


@frozen
class LateStage:
    """A stage that runs an iteration late.

    Attributes:
        argument: Position of its result among the arguments of the function.
        stage: Its name.
        host: The stage in whose loop it runs.
    """

    argument: int
    stage: str
    host: str


def mark_of(stages: Sequence[LateStage]) -> str:
    """The value of the attribute."""
    return _MARKS.join(f"{it.argument} {it.stage}{_STAGES}{it.host}" for it in stages)


def _marked(text: str) -> Iterator[LateStage]:
    for mark in text.split(_MARKS):
        argument, _, stages = mark.partition(" ")
        yield LateStage(int(argument), *stages.split(_STAGES))


def pipeline_rows(ir: Any, kernel: Any, places: Mapping[str, str]) -> None:
    """Have the marked stages run an iteration late, in the loops of their hosts.

    Both loops are split into as many pieces as divide both, which take turns.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on buffers, before its operations become loops; loses the attribute.
        places: Where the operations of stages are in the text, by stage.

    Raises:
        InvalidSchedule: there is no loop over rows around both stages, or what the late one reads
            is overwritten before.
    """
    if PIPELINE not in kernel.attributes:
        return
    marks = list(_marked(kernel.attributes[PIPELINE].value))
    del kernel.attributes[PIPELINE]
    for mark in marks:
        rows = _rows(ir, kernel, mark, places)
        if rows is not None:
            _Pipeline(ir, mark, rows).write()


@frozen(eq=False)
class _Rows:
    """A loop over rows.

    Attributes:
        loop: The ``scf.for``.
        first, step, trips: Its iterations.
        host: The operation of the host in its body.
        late: The one that writes the row.
    """

    loop: Any
    first: int
    step: int
    trips: int
    host: Any
    late: Any


def _rows(ir: Any, kernel: Any, mark: LateStage, places: Mapping[str, str]) -> _Rows | None:
    """The loop around both stages; None where it runs but once, and nothing is late.

    Raises:
        InvalidSchedule: there is no such loop, or it is none that can be changed.
    """
    result = kernel.regions[0].blocks[0].arguments[mark.argument]
    everything = list(with_inner(kernel))
    writes = [it for it in everything if _writes(it, result)]
    hosts = [it for it in everything if places[mark.host] in positions(it)]
    if not writes or not hosts:
        raise InvalidSchedule(f"nothing is left of {mark.stage!r} or of {mark.host!r}")
    late, loop, inside = _meeting(writes[0], hosts)
    if loop is None:
        raise InvalidSchedule(f"no loop is around {mark.stage!r} and {mark.host!r}")
    if loop.name != "scf.for":
        return None
    if any(late not in ancestors(write) for write in writes) or len(loop.results):
        raise InvalidSchedule(f"{mark.stage!r} does not write its rows in one loop")
    bounds = _bounds(loop)
    if bounds is None:
        raise InvalidSchedule(f"the loop over the rows of {mark.stage!r} has no constant bounds")
    host = next((it for it in inside if it.name == "scf.for"), inside[0])
    return _Rows(loop, *bounds, host, late) if bounds[2] > 1 else None


def _meeting(write: Any, hosts: Sequence[Any]) -> tuple[Any, Any | None, list[Any]]:
    """Where one operation is beside others in the innermost operation around them.

    Returns:
        What the first one is in there, the operation around, and what the others are in there, in
        their order. None where nothing is around.
    """
    around = ancestors(write)
    for own, loop in zip(around, around[1:], strict=False):
        beside = [it for host in hosts for it in ancestors(host) if _is_in(it, loop)]
        if beside:
            body = [view.operation for view in loop.regions[0].blocks[0].operations]
            return own, loop, [it for it in body if it in beside]
    return write, None, []


def _writes(operation: Any, result: Any) -> bool:
    """Whether an operation itself writes a buffer."""
    return any(origin(buffer) == result for buffer in written_buffers(operation))


def _is_in(operation: Any, around: Any) -> bool:
    """Whether an operation is in another one, with nothing in between."""
    parent = parent_of(operation)
    return parent is not None and parent == around


def _bounds(loop: Any) -> tuple[int, int, int] | None:
    """Begin, step and iterations of a loop of constant bounds."""
    numbers = [constant_index(value) for value in list(loop.operands)[:3]]
    if loop.name != "scf.for" or None in numbers:
        return None
    first, end, step = (number for number in numbers if number is not None)
    return first, step, max(0, -(-(end - first) // step))


@define
class _Pipeline:
    """Moves a late stage.

    Attributes:
        ir: The ``ir`` module of the bindings.
        mark: Which stage, and where to.
        rows: The loop over rows.
    """

    ir: Any
    mark: LateStage
    rows: _Rows
    _carried: list[Any] = field(init=False, factory=list)
    _inside: list[Any] = field(init=False, factory=list)
    _row: Any = field(init=False, default=None)

    def write(self) -> None:
        """Write the loop over rows anew.

        Raises:
            InvalidSchedule: what the late stage reads is overwritten before.
        """
        rows = self.rows
        self._inside = [view.operation for view in rows.loop.regions[0].blocks[0].operations]
        read = self._captured(rows.late)
        self._keep_buffers(read)
        self._check_order(read)
        for value in read:
            self._note_carried(value)
        loop = self._new_loop()
        self._row, *before = loop.regions[0].blocks[0].arguments
        self._host_with_late(before)
        last = rows.first + (rows.trips - 1) * rows.step
        behind = self.ir.InsertionPoint(rows.loop)
        with behind, rows.loop.location:
            at = self._number(last)
            self._late(behind, at, list(loop.results), None)
        rows.late.erase()
        rows.loop.erase()

    def _is_inside(self, value: Any) -> bool:
        producer = defining(value)
        return producer is not None and producer in self._inside

    def _captured(self, operation: Any) -> list[Any]:
        """Values from elsewhere in the row that an operation, or one inside it, uses."""
        used = (it for inner in with_inner(operation) for it in inner.operands)
        return list(dict.fromkeys(it for it in used if self._is_inside(it)))

    def _keep_buffers(self, read: Sequence[Any]) -> None:
        """Allocate what stays from one row to the next around the loop."""
        for value in read:
            if not isinstance(value.type, self.ir.MemRefType):
                continue
            producer = defining(origin(value))
            if producer is None or producer not in self._inside:
                continue
            if producer.name not in ALLOCATIONS or len(producer.operands):
                raise self._refused(f"{value.type} is no buffer of a constant size")
            for user in users_of(producer.results[0]):
                if user.name == "memref.dealloc":
                    user.move_after(self.rows.loop)
            producer.move_before(self.rows.loop)
        block = self.rows.loop.regions[0].blocks[0]
        self._inside = [view.operation for view in block.operations]

    def _check_order(self, read: Sequence[Any]) -> None:
        """Check that nothing up to the host overwrites what the late stage reads."""
        rows = self.rows
        kept = [origin(it) for it in read if isinstance(it.type, self.ir.MemRefType)]
        kept += [origin(it) for it in self._buffers(rows.late)]
        for operation in self._inside[: self._inside.index(rows.host) + 1]:
            if operation == rows.late:
                raise self._refused("it is computed before")
            for inner in with_inner(operation):
                if any(origin(it) in kept for it in written_buffers(inner)):
                    raise self._refused("what it reads is overwritten before")

    def _buffers(self, operation: Any) -> list[Any]:
        return [
            value
            for inner in with_inner(operation)
            for value in inner.operands
            if isinstance(value.type, self.ir.MemRefType)
        ]

    def _is_computed_again(self, value: Any) -> bool:
        """Whether a value follows from the number of the row."""
        producer = defining(value)
        name = "" if producer is None else producer.name
        if isinstance(value.type, self.ir.MemRefType):
            return name in VIEWS
        is_index = isinstance(value.type, self.ir.IndexType)
        return name == "arith.constant" or (is_index and name.startswith(("arith.", "affine.")))

    def _note_carried(self, value: Any) -> None:
        """Note what has to be handed from one row to the next for a value."""
        if not self._is_inside(value) or value in self._carried:
            return
        if self._is_computed_again(value):
            for operand in value.owner.operands:
                self._note_carried(operand)
        elif isinstance(value.type, self.ir.MemRefType):
            raise self._refused(f"{value.type} is no view of a buffer")
        else:
            self._carried.append(value)

    def _new_loop(self) -> Any:
        """A loop with the body of the one over rows, which hands values to the next row."""
        ir, old = self.ir, self.rows.loop
        kinds = [value.type for value in self._carried]
        create = ir.Operation.create
        with ir.InsertionPoint(old), old.location:
            first = [create("ub.poison", [kind]).results[0] for kind in kinds]
            loop = create("scf.for", kinds, [*old.operands, *first], regions=1)
        block = ir.Block.create_at_start(loop.regions[0], [ir.IndexType.get(), *kinds])
        body = old.regions[0].blocks[0]
        body.arguments[0].replace_all_uses_with(block.arguments[0])
        for operation in self._inside[:-1]:
            block.append(operation)
        with ir.InsertionPoint(block), old.location:
            create("scf.yield", operands=self._carried)
        return loop

    def _host_with_late(self, before: Sequence[Any]) -> None:
        """Let pieces of the late stage's loop take turns with those of the host's."""
        ir, host, row = self.ir, self.rows.host, self._row
        bounds, late_bounds = _bounds(host), _bounds(self.rows.late)
        trips = [1 if it is None else it[2] for it in (bounds, late_bounds)]
        count = max(1, math.gcd(*trips))
        with ir.InsertionPoint(host), host.location:
            truth = ir.IntegerType.get_signless(1)
            more = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _MORE_THAN)
            operands = [row, self._number(self.rows.first)]
            is_later = ir.Operation.create("arith.cmpi", [truth], operands, {"predicate": more})
            if count == 1:
                self._late_if(is_later.results[0], row, before, None)
                return
            kinds = [result.type for result in host.results]
            ends = [self._number(it) for it in (0, count, 1)]
            starts = list(host.operands)[3:]
            turns = ir.Operation.create("scf.for", kinds, [*ends, *starts], regions=1)
        block = ir.Block.create_at_start(turns.regions[0], [ir.IndexType.get(), *kinds])
        piece, *taken = block.arguments
        inner = ir.InsertionPoint(block)
        with inner, host.location:
            self._late_if(is_later.results[0], row, before, (piece, count))
            part = host.clone(inner)
            self._cut(part, (piece, count))
            for number, value in enumerate(taken):
                part.operands[3 + number] = value
            ir.Operation.create("scf.yield", operands=list(part.results))
        for result, made in zip(host.results, turns.results, strict=True):
            self._carried = [made if it == result else it for it in self._carried]
            result.replace_all_uses_with(made)
        self._inside[self._inside.index(host)] = turns
        host.erase()

    def _late_if(
        self, is_later: Any, row: Any, before: Sequence[Any], piece: tuple[Any, int] | None
    ) -> None:
        """The late stage for the row before, unless there is none."""
        ir = self.ir
        choice = ir.Operation.create("scf.if", operands=[is_later], regions=2)
        block = ir.Block.create_at_start(choice.regions[0], [])
        inner = ir.InsertionPoint(block)
        with inner:
            operands = [row, self._number(self.rows.step)]
            at = ir.Operation.create("arith.subi", [ir.IndexType.get()], operands).results[0]
            self._late(inner, at, before, piece)
            ir.Operation.create("scf.yield")

    def _late(
        self, point: Any, row: Any, handed: Sequence[Any], piece: tuple[Any, int] | None
    ) -> None:
        """The late stage for a row, or one of so many pieces of it, where operations are put."""
        made = [(self._row, row), *zip(self._carried, handed, strict=True)]

        def placed(value: Any) -> Any:
            known = next((new for old, new in made if old == value), None)
            if known is not None:
                return known
            producer = defining(value)
            if producer is None or producer not in self._inside:
                return value
            operands = [placed(operand) for operand in producer.operands]
            copy = producer.clone(point)
            for number, operand in enumerate(operands):
                copy.operands[number] = operand
            made.append((value, copy.results[0]))
            return copy.results[0]

        for value in self._captured(self.rows.late):
            placed(value)
        part = self.rows.late.clone(point)
        for inner in with_inner(part):
            for number, operand in enumerate(list(inner.operands)):
                inner.operands[number] = next(
                    (new for old, new in made if old == operand), operand
                )
        if piece is not None:
            self._cut(part, piece)

    def _cut(self, loop: Any, piece: tuple[Any, int]) -> None:
        """Leave one of so many equal pieces of a loop."""
        place, count = piece
        bounds = _bounds(loop)
        assert bounds is not None
        first, step, trips = bounds
        kind, length = [self.ir.IndexType.get()], trips // count * step
        create = self.ir.Operation.create
        with self.ir.InsertionPoint(loop), loop.location:
            done = create("arith.muli", kind, [place, self._number(length)]).results[0]
            begin = create("arith.addi", kind, [done, self._number(first)]).results[0]
            end = create("arith.addi", kind, [begin, self._number(length)]).results[0]
        loop.operands[0], loop.operands[1] = begin, end

    def _number(self, value: int) -> Any:
        kind = self.ir.IndexType.get()
        attributes = {"value": self.ir.IntegerAttr.get(kind, value)}
        return self.ir.Operation.create("arith.constant", [kind], attributes=attributes).results[0]

    def _refused(self, why: str) -> InvalidSchedule:
        return InvalidSchedule(
            f"{self.mark.stage!r} cannot run late in the loops of {self.mark.host!r}: {why}"
        )
