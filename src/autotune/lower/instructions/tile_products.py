"""Products in the tile registers of AMX, which the program names: no tile is ever spilled."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from autotune.ir.element_types import element_type
from autotune.lower.emitter import Emitter
from autotune.lower.instructions.call import Call, Operand
from autotune.lower.instructions.instruction import Instruction
from autotune.lower.linear import Linear
from autotune.lower.places import Place
from autotune.lower.state import State
from autotune.sketches.intrinsics import Intrinsic
from autotune.sketches.intrinsics.tile_registers import (
    LEFT,
    RIGHT,
    ROW_BYTES,
    ROWS,
    TileCall,
    configuration,
)

__all__ = ["TileProduct", "configured", "tiles"]

_LOAD, _STORE = "llvm.x86.tileloadd64", "llvm.x86.tilestored64"


@frozen
class TileProduct(Instruction):
    """Instructions that add products of rows to two or two by two tiles of sums.

    Attributes:
        shape: How a call uses the registers.
    """

    shape: TileCall

    @property
    def tile_rows(self) -> int:
        return self.shape.block_rows

    def begin(self, state: State, call: Call) -> None:
        """Load the sums of a call into registers."""
        self._move_sums(state, call, _LOAD)

    def finish(self, state: State, call: Call) -> None:
        """Store the sums of a call."""
        self._move_sums(state, call, _STORE)
        state.forget()

    def print(self, state: State, call: Call) -> None:
        """Add the products of a call to the registers of sums."""
        assert call.left is not None
        shape, emitter = self.shape, state.emitter
        row, column = (axis.name for axis in call.intrinsic.spatial_axes)
        (depth,) = (axis.name for axis in call.intrinsic.reduce_axes)
        data = _Rows(state, call, call.left, row)
        weights = _Rows(state, call, call.right, depth, shape.group)
        deep = ROW_BYTES // element_type(call.left.place.dtype).bytes
        for step in range(shape.steps):
            data.move(_LOAD, LEFT[0], **{depth: deep * step})
            for half, register in enumerate(RIGHT):
                at = {depth: ROWS * shape.group * step, column: ROWS * half}
                weights.move(_LOAD, register, **at)
            for block in range(shape.blocks):
                if block:
                    at = {depth: deep * step, row: shape.block_rows * block}
                    data.move(_LOAD, LEFT[block], **at)
                for half, register in enumerate(RIGHT):
                    numbers = (2 * block + half, LEFT[block], register)
                    given = [emitter.constant(number, "int8") for number in numbers]
                    emitter.execute(f"llvm.x86.{shape.product}", given)

    def _move_sums(self, state: State, call: Call, name: str) -> None:
        row, column = (axis.name for axis in call.intrinsic.spatial_axes)
        sums = _Rows(state, call, call.sums, row)
        for block in range(self.shape.blocks):
            for half in range(2):
                at = {row: self.shape.block_rows * block, column: ROWS * half}
                sums.move(name, 2 * block + half, **at)


class _Rows:
    """Rows of an operand that tile registers hold.

    Args:
        state: Of the walk.
        call: The call.
        operand: What of it.
        axis: That goes from row to row.
        step: By how much.
    """

    def __init__(
        self, state: State, call: Call, operand: Operand, axis: str, step: int = 1
    ) -> None:
        self._state, self._call, self._operand = state, call, operand
        size = element_type(operand.place.dtype).bytes
        self._stride = size * call.apart(operand, state.digits, axis, step)

    def move(self, name: str, register: int, **values: int) -> None:
        """Load a register, or store it."""
        emitter = self._state.emitter
        at = self._call.address(self._operand, self._state.digits, **values)
        arguments = [
            emitter.constant(register, "int8"),
            emitter.pointer(self._operand.place, at),
            emitter.constant(self._stride, "int64"),
        ]
        emitter.execute(name, arguments)


@contextmanager
def configured(emitter: Emitter, rows: int) -> Iterator[None]:
    """The code that uses the registers, with so many rows in those of sums and of left factors.

    Registers belong to a thread, and ``ldtilecfg`` waits until the tiles before are done.
    """
    place = Place(f"tiles of {rows}", "int64", "stack", (8,), order=(0,))
    emitter.allocate(place)
    for number, word in enumerate(struct.unpack("<8q", configuration(rows))):
        value = emitter.constant(word, "int64")
        emitter.store(place, Linear((), number), value, None, stream=False)
    emitter.execute("llvm.x86.ldtilecfg", [emitter.pointer(place, Linear())])
    yield
    emitter.execute("llvm.x86.tilerelease", [])


def tiles(intrinsic: Intrinsic) -> TileProduct:
    """The implementation of declarations."""
    return TileProduct(TileCall.of(intrinsic))
