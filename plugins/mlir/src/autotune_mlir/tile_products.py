"""Instructions of AMX, as calls of LLVM's intrinsics that name the tile registers.

MLIR's own operations on tiles make values of them, which LLVM would keep in registers of its
choice. Loops cannot carry such values: the releases of MLIR that the backend runs on have no
lowering for branches that hand them on (``failed to legalize operation 'cf.br'``). So registers
are named, as TVM's programs name them, and no tile is ever spilled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from autotune.sketches.intrinsics.tile_registers import (
    LEFT,
    RIGHT,
    ROW_BYTES,
    TileCall,
    configuration,
)
from autotune_mlir.traversal import operations_in

__all__ = [
    "TileMaker",
    "TileMemory",
    "changes_tiles",
    "configure",
    "release",
    "tiles",
    "uses_tiles",
]

_CALL = "llvm.call_intrinsic"
_CONFIGURE = "llvm.x86.ldtilecfg"
_LOAD = "llvm.x86.tileloadd64"
_STORE = "llvm.x86.tilestored64"
_TILES = ("llvm.x86.tile", "llvm.x86.tdp", _CONFIGURE)

tiles = TileCall.of
"""The implementation of declarations: how a call uses the registers."""


def uses_tiles(operation: Any) -> bool:
    """Whether there are instructions of tile registers inside of an operation."""
    return any(
        it.name == _CALL and it.attributes["intrin"].value.startswith(_TILES)
        for it in operations_in(operation)
    )


def changes_tiles(operation: Any) -> bool:
    """Whether an operation is an instruction that changes tile registers."""
    if operation.name != _CALL:
        return False
    name = str(operation.attributes["intrin"].value)
    return name.startswith(_TILES) and name != _STORE


@frozen
class TileMemory:
    """A part of a buffer of which tile registers are loaded and stored.

    Attributes:
        start: Address of its first byte, as an index.
        row: Bytes from a row to the next.
    """

    start: Any
    row: int


@frozen
class TileMaker:
    """Makes instructions at the current insertion point.

    Attributes:
        ir: The ``ir`` module of the bindings.
        call: How a call of the declared instruction uses the registers.
    """

    ir: Any
    call: TileCall

    def begin(self, sums: tuple[TileMemory, int] | None, base: int) -> Any:
        """Load the sums of a call into registers, or clear these.

        Args:
            sums: Where they are, and the bytes to the first one; None clears the registers.
            base: The first register.

        Returns:
            The first instruction.
        """
        if sums is None:
            made = [
                self._named("llvm.x86.tilezero", [base + register])
                for register in range(self.call.registers)
            ]
        else:
            made = self._moves(_LOAD, sums, base)
        return made[0]

    def finish(self, sums: tuple[TileMemory, int], base: int) -> Any:
        """Store the sums of a call; as :meth:`begin`, but returns the last instruction."""
        return self._moves(_STORE, sums, base)[-1]

    def add(self, left: tuple[TileMemory, int], right: tuple[TileMemory, int], base: int) -> None:
        """Add the products of a call.

        Args:
            left: Where the left factor is, and the bytes to its first element.
            right: The same of the right factor, whose rows are groups of rows.
            base: The first register of the sums.
        """
        (data, first), (weights, begin) = left, right
        for step in range(self.call.steps):
            self._move(_LOAD, LEFT[0], data, first + step * ROW_BYTES)
            below = begin + step * 16 * weights.row
            for half, register in enumerate(RIGHT):
                self._move(_LOAD, register, weights, below + half * ROW_BYTES)
            for block in range(self.call.blocks):
                if block:
                    lower = first + block * self.call.block_rows * data.row
                    self._move(_LOAD, LEFT[block], data, lower + step * ROW_BYTES)
                for half, register in enumerate(RIGHT):
                    sums = base + 2 * block + half
                    self._named(f"llvm.x86.{self.call.product}", [sums, LEFT[block], register])

    def _moves(self, name: str, sums: tuple[TileMemory, int], base: int) -> list[Any]:
        memory, first = sums
        below = self.call.block_rows * memory.row
        return [
            self._move(
                name, base + 2 * block + half, memory, first + block * below + half * ROW_BYTES
            )
            for block in range(self.call.blocks)
            for half in range(2)
        ]

    def _move(self, name: str, register: int, memory: TileMemory, offset: int) -> Any:
        place = self._address(memory.start, offset)
        return self._named(name, [register], place, self._integer(memory.row, 64))

    def _address(self, start: Any, offset: int) -> Any:
        ir = self.ir
        if offset:
            moved = ir.AffineMap.get(1, 0, [ir.AffineExpr.get_dim(0) + offset])
            start = self._one(
                "affine.apply", ir.IndexType.get(), start, map=ir.AffineMapAttr.get(moved)
            )
        number = self._one("arith.index_cast", ir.IntegerType.get_signless(64), start)
        return self._one("llvm.inttoptr", ir.Type.parse("!llvm.ptr"), number)

    def _named(self, name: str, registers: Sequence[int], *operands: Any) -> Any:
        numbers = [self._integer(register, 8) for register in registers]
        return _call(self.ir, name, [*numbers, *operands])

    def _integer(self, value: int, bits: int) -> Any:
        kind = self.ir.IntegerType.get_signless(bits)
        return self._one("arith.constant", kind, value=self.ir.IntegerAttr.get(kind, value))

    def _one(self, name: str, kind: Any, *operands: Any, **attributes: Any) -> Any:
        return self.ir.Operation.create(name, [kind], list(operands), attributes).results[0]


def configure(ir: Any, kernel: Any, rows: int) -> Any:
    """Configure the registers at the current insertion point, and clear them.

    Args:
        ir: The ``ir`` module of the bindings.
        kernel: The function; a constant is put beside it.
        rows: Of the registers of sums and of the left factor.

    Returns:
        The instruction.
    """
    name = f"autotune_tile_rows_{rows}"
    body = kernel.operation.block
    known = (it.attributes["sym_name"] for it in body.operations if "sym_name" in it.attributes)
    if name not in [it.value for it in known]:
        numbers = ", ".join(map(str, configuration(rows)))
        text = (
            f"llvm.mlir.global internal constant @{name}(dense<[{numbers}]> : tensor<64xi8>) "
            "{alignment = 64 : i64} : !llvm.array<64 x i8>"
        )
        added = ir.Module.parse(text)  # kept: it owns what is not moved yet
        body.append(list(added.body.operations)[0])
    attributes = {"global_name": ir.FlatSymbolRefAttr.get(name)}
    pointer = [ir.Type.parse("!llvm.ptr")]
    place = ir.Operation.create("llvm.mlir.addressof", pointer, [], attributes)
    return _call(ir, _CONFIGURE, [place.results[0]])


def release(ir: Any) -> None:
    """Clear the registers at the current insertion point, and give them back."""
    _call(ir, "llvm.x86.tilerelease", [])


def _call(ir: Any, name: str, operands: Sequence[Any]) -> Any:
    attributes = {
        "intrin": ir.StringAttr.get(name),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
    }
    return ir.Operation.create(_CALL, [], operands, attributes)
