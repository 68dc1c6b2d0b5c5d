"""Rows that are asked for ahead of time, in programs on buffers.

The Transform dialect makes no ``memref.prefetch``. A schedule says which stages ask, and for what,
in an attribute of the function; what they read is found by the place in the program's text that
the operations of a stage come from, which they keep through the schedule and bufferization.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from autotune.backends import InvalidSchedule
from autotune_mlir.emit import STAGE
from autotune_mlir.importing.locations import positions
from autotune_mlir.passes.split_packing import origin
from autotune_mlir.traversal import operations_in

__all__ = ["PREFETCH", "NextRow", "mark_of", "prefetch_rows", "stage_positions"]

PREFETCH = "autotune.prefetch"
"""Attribute of a function: what its stages ask for."""

_LINE_BYTES = 64
# For reading, into the second cache.
_LOCALITY = 2
_SEPARATOR = "; "


@frozen
class NextRow:
    """What a stage asks for.

    Attributes:
        stage: Name of the stage.
        argument: Position of the operand among the arguments of the function.
        ahead: How far, in elements of the operand, it is behind what the stage reads.
    """

    stage: str
    argument: int
    ahead: int


def mark_of(rows: Sequence[NextRow]) -> str:
    """The value of the attribute."""
    return _SEPARATOR.join(f"{row.argument} {row.ahead} {row.stage}" for row in rows)


def _marked(text: str) -> list[NextRow]:
    marks = (mark.split(" ", 2) for mark in text.split(_SEPARATOR))
    return [NextRow(stage, int(argument), int(ahead)) for argument, ahead, stage in marks]


def stage_positions(module: Any) -> dict[str, str]:
    """Where the operation of each stage is in the text that a program was parsed from.

    Args:
        module: The program, before its schedule.
    """
    found: dict[str, str] = {}
    for operation in operations_in(module.operation):
        if STAGE in operation.attributes:
            (found[str(operation.attributes[STAGE].value)],) = positions(operation)
    return found


def prefetch_rows(ir: Any, kernel: Any, places: Mapping[str, str]) -> None:
    """Have the marked stages ask for what they read ahead of time, once for each line of a vector.

    Where a stage has no reads of its own, as an earlier one has left all in registers, that one
    asks. Behind the last row is what nothing needs; fetching never fails.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function, on buffers, before its operations become loops; loses the attribute.
        places: As of :func:`stage_positions`.

    Raises:
        InvalidSchedule: nothing reads such an operand in parts.
    """
    if PREFETCH not in kernel.attributes:
        return
    rows = _marked(kernel.attributes[PREFETCH].value)
    del kernel.attributes[PREFETCH]
    arguments = kernel.regions[0].blocks[0].arguments
    for row in rows:
        reads = _reads(ir, kernel, arguments[row.argument])
        own = [read for read in reads if places[row.stage] in positions(read.operation)]
        for read in own or _first(reads):
            read.ask(ir, row.ahead)
        if not reads:
            raise InvalidSchedule(f"{row.stage!r} reads no parts of argument {row.argument}")


@frozen(eq=False)
class _Read:
    """An operation that reads a buffer.

    Attributes:
        operation: A transfer or a structured operation.
        buffer: What it reads, a view of an argument.
        number: Of the buffer among the operands.
    """

    operation: Any
    buffer: Any
    number: int

    def ask(self, ir: Any, ahead: int) -> None:
        """Ask, in front of the read, for what is ``ahead`` elements behind it."""
        if self.operation.name == "linalg.generic":
            block = self.operation.regions[0].blocks[0]
            with ir.InsertionPoint.at_block_begin(block), self.operation.location:
                self._ask_for(ir, self._element(ir), [()], ahead)
            return
        rank = len(self.buffer.type.shape)
        first = self.number + 1
        indices = list(self.operation.operands)[first : first + rank]
        with ir.InsertionPoint(self.operation), self.operation.location:
            self._ask_for(ir, indices, self._lines(), ahead)

    def _lines(self) -> Iterator[Sequence[tuple[int, int]]]:
        """For each line of what is read, how far it is along some dimensions of the buffer."""
        extents = self.operation.results[0].type.shape
        text = str(self.operation.attributes["permutation_map"])
        dimensions = [
            int(item[1:]) if item.startswith("d") else None for item in _results_of(text)
        ]
        steps = [1] * (len(extents) - 1) + [max(1, _LINE_BYTES // _element_bytes(self.buffer))]
        ranges = [
            [(dimension, at) for at in range(0, extent, step)] if dimension is not None else [None]
            for dimension, extent, step in zip(dimensions, extents, steps, strict=True)
        ]
        places = itertools.product(*ranges)
        return (tuple(it for it in place if it is not None) for place in places)

    def _element(self, ir: Any) -> list[Any]:
        """The indices of the element that an iteration of a structured operation reads."""
        index, maps = ir.IndexType.get(), self.operation.attributes["indexing_maps"]
        domain, _, _ = str(maps[self.number]).partition(" -> ")
        count = len(list(self.operation.attributes["iterator_types"]))
        integer = ir.IntegerType.get_signless(64)
        iterators = [
            ir.Operation.create(
                "linalg.index", [index], attributes={"dim": ir.IntegerAttr.get(integer, number)}
            ).results[0]
            for number in range(count)
        ]
        return [
            ir.Operation.create(
                "affine.apply",
                [index],
                iterators,
                {"map": ir.Attribute.parse(f"{domain} -> ({result})>")},
            ).results[0]
            for result in _results_of(str(maps[self.number]))
        ]

    def _ask_for(
        self,
        ir: Any,
        indices: Sequence[Any],
        lines: Iterator[Sequence[tuple[int, int]]] | Sequence[Sequence[tuple[int, int]]],
        ahead: int,
    ) -> None:
        dimension, count = _along(self.buffer, ahead)
        attributes = {
            "isWrite": ir.BoolAttr.get(False),
            "localityHint": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), _LOCALITY),
            "isDataCache": ir.BoolAttr.get(True),
        }
        for line in lines:
            offsets = dict.fromkeys(range(len(indices)), 0)
            for number, distance in (*line, (dimension, count)):
                offsets[number] += distance
            moved = [
                _sum(ir, at, offset) for at, offset in zip(indices, offsets.values(), strict=True)
            ]
            ir.Operation.create("memref.prefetch", [], [self.buffer, *moved], attributes)


def _reads(ir: Any, kernel: Any, argument: Any) -> list[_Read]:
    """What reads an argument."""
    found: list[_Read] = []
    for operation in operations_in(kernel):
        numbers = range(0)
        if operation.name == "vector.transfer_read":
            numbers = range(1)
        elif operation.name == "linalg.generic":
            numbers = range(list(operation.attributes["operandSegmentSizes"])[0])
        for number in numbers:
            buffer = operation.operands[number]
            if isinstance(buffer.type, ir.MemRefType) and origin(buffer) == argument:
                found.append(_Read(operation, buffer, number))
                break
    return found


def _first(reads: Sequence[_Read]) -> list[_Read]:
    """Those of the stage that reads first: what it has in registers, others need not read."""
    return [it for it in reads if positions(it.operation) == positions(reads[0].operation)]


def _along(buffer: Any, ahead: int) -> tuple[int, int]:
    """A dimension of a buffer along which so many elements are a number of steps, and how many.

    Raises:
        InvalidSchedule: there is no such dimension.
    """
    strides, _ = buffer.type.get_strides_and_offset()
    for dimension, stride in enumerate(strides):
        if 0 < stride <= abs(ahead) and ahead % stride == 0:
            return dimension, ahead // stride
    if ahead == 0 and strides:
        return 0, 0
    raise InvalidSchedule(f"no dimension of {buffer.type} leads to what is {ahead} elements ahead")


def _sum(ir: Any, index: Any, offset: int) -> Any:
    if offset == 0:
        return index
    kind = ir.IndexType.get()
    number = ir.Operation.create(
        "arith.constant", [kind], attributes={"value": ir.IntegerAttr.get(kind, offset)}
    ).results[0]
    return ir.Operation.create("arith.addi", [kind], [index, number]).results[0]


def _results_of(text: str) -> list[str]:
    """The results of an affine map, as they are written."""
    found = re.search(r"-> \((.*)\)>", text)
    return [item.strip() for item in found[1].split(",")] if found and found[1] else []


def _element_bytes(buffer: Any) -> int:
    found = re.fullmatch(r"[a-z]+(\d+)", str(buffer.type.element_type))
    return max(1, int(found[1]) // 8) if found else 8
