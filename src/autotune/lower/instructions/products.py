"""Products of small tensors: dot products in lanes (VNNI, AVX512-BF16), and AMX's tiles.

Tiles are in registers that the program names: none is ever spilled.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, the pages of
``VPDPBUSD``, ``VDPBF16PS`` and ``PMADDWD``.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import frozen

from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.lower.emitter import Emitter, Value
from autotune.lower.instructions.call import Call, Operand, known
from autotune.lower.linear import Linear
from autotune.lower.memory import load, store
from autotune.lower.places import Place
from autotune.lower.state import State
from autotune.nest.corrections import SHIFT
from autotune.sketches.intrinsics import Intrinsic
from autotune.sketches.intrinsics.tile_registers import (
    LEFT,
    RIGHT,
    ROW_BYTES,
    ROWS,
    TileCall,
    configuration,
)


class Instruction(ABC):
    """The implementation of a declared instruction."""

    @property
    def tile_rows(self) -> int:
        """Rows of the tile registers that it takes configured; 0: it takes none."""
        return 0

    @abstractmethod
    def print(self, state: State, call: Call) -> None:
        """Print a call where the loops around it are."""

    @abstractmethod
    def begin(self, state: State, call: Call) -> None:
        """Print what comes before calls that add to the same sums."""

    @abstractmethod
    def finish(self, state: State, call: Call) -> None:
        """Print what comes after calls that add to the same sums."""


def instruction_of(intrinsic: Intrinsic) -> Instruction:
    """The implementation of a declaration: an instruction, or what makes one of the declaration.

    Raises:
        InvalidValueError: it has none that is printed.
    """
    made = intrinsic.implementation("native")
    found = made(intrinsic) if callable(made) else made
    if not isinstance(found, Instruction):
        raise InvalidValueError(f"intrinsic {intrinsic.name!r} is implemented by {found!r}")
    return found


__all__ = [
    "DotProduct",
    "PairProducts",
    "Instruction",
    "TileProduct",
    "bfloat16_256",
    "bfloat16_512",
    "pairs_256",
    "pairs_512",
    "configured",
    "instruction_of",
    "vnni_256",
    "vnni_512",
]

_SIGNS = -0x7F7F7F80  # the highest bits of four bytes


@frozen
class DotProduct(Instruction):
    """An instruction that adds to each lane the sum of the products of a group of 32 bits.

    Attributes:
        function: LLVM's name for it. It takes sums, left factors and right factors.
        dtype: What it takes left factors for. Where that is ``uint8`` and they are signed,
            ``SHIFT`` is added to them, and ``SHIFT`` times the right factors is then too much.
    """

    function: str
    dtype: str

    def begin(self, state: State, call: Call) -> None:
        """Nothing: sums are vectors, as those of other statements."""

    def finish(self, state: State, call: Call) -> None:
        """Nothing, as :meth:`begin`."""

    def print(self, state: State, call: Call) -> None:
        """Print the call where the loops around it are."""
        digits, counter = state.digits, call.counters[call.intrinsic.spatial_axes[-1].name]
        lanes = call.intrinsic.spatial_axes[-1].extent
        with call.at(digits):
            del digits.fixed[counter]
            with state.in_lanes((counter, lanes)):
                sums = load(state, call.sums.place, call.sums.index)
                total = self._add(state, call, sums)
                store(state, call.sums.place, call.sums.index, total, None, stream=False)
            digits.fixed[counter] = 0

    def _add(self, state: State, call: Call, sums: Value) -> Value:
        emitter, weights = state.emitter, self._weights(state, call)
        if call.left is None:
            return self._call(state, sums, self._shifts(state, weights.lanes), weights)
        if call.is_shifted or call.intrinsic.left.dtype == self.dtype:
            return self._call(state, sums, self._data(state, call, weights.lanes), weights)
        total = self._call(state, sums, self._data(state, call, weights.lanes), weights)
        at = call.address(call.right, state.digits)
        key = (call.right.place.name, at, "excess")
        if key not in state.loaded:
            none = emitter.wide(emitter.constant(0, sums.dtype), sums.lanes)
            shifts = self._shifts(state, weights.lanes)
            state.loaded[key] = self._call(state, none, shifts, weights)
        return emitter.binary("sub", total, state.loaded[key])

    def _weights(self, state: State, call: Call) -> Value:
        at = call.address(call.right, state.digits)
        return known(state, call.right.place, at, call.intrinsic.right.elements)

    def _data(self, state: State, call: Call, lanes: int) -> Value:
        """A group of left factors in every lane."""
        assert call.left is not None
        at = call.address(call.left, state.digits)
        key = (call.left.place.name, at, "groups")
        if key not in state.loaded:
            state.loaded[key] = self._made(state, call, at, lanes)
        return state.loaded[key]

    def _made(self, state: State, call: Call, at: Linear, lanes: int) -> Value:
        assert call.left is not None
        emitter, dtype = state.emitter, call.left.place.dtype
        size = call.intrinsic.left.elements
        group = emitter.bitcast(emitter.load(call.left.place, at, size), "int32", 1)
        data = emitter.bitcast(emitter.wide(group, lanes // size), dtype, lanes)
        if dtype != self.dtype:
            data = emitter.binary("add", data, self._hidden_shifts(state, call, lanes))
            data = emitter.bitcast(data, self.dtype, lanes)
        return data

    def _hidden_shifts(self, state: State, call: Call, lanes: int) -> Value:
        """``SHIFT`` in signed bytes, behind zero products more that LLVM does not look through.

        It would make an operation on scalars of the addition of a known number, and a move
        between registers of a broadcast from memory.
        """
        emitter, sums = state.emitter, call.intrinsic.result
        none = emitter.wide(emitter.constant(0, self.dtype), lanes)
        nothing = emitter.bitcast(none, call.right.place.dtype, lanes)
        signs = emitter.wide(emitter.constant(_SIGNS, sums.dtype), sums.elements)
        hidden = self._call(state, signs, none, nothing)
        return emitter.bitcast(hidden, call.intrinsic.left.dtype, lanes)

    def _shifts(self, state: State, lanes: int) -> Value:
        return state.emitter.wide(state.emitter.constant(SHIFT, self.dtype), lanes)

    def _call(self, state: State, sums: Value, data: Value, weights: Value) -> Value:
        arguments = [sums, data, weights]
        return state.emitter.intrinsic(self.function, sums.dtype, sums.lanes, arguments)


@frozen
class PairProducts(DotProduct):
    """Four products of bytes in each lane, of words of 16 bits that are made of them.

    The even bytes of both factors are multiplied and added in pairs, and so are the odd ones:
    sums are exact for bytes of either kind.
    """

    def _add(self, state: State, call: Call, sums: Value) -> Value:
        emitter = state.emitter
        assert call.left is not None
        if not emitter.has_instructions:
            return self._in_loops(state, call, sums)
        weights = self._weights(state, call)
        at = call.address(call.left, state.digits)
        data = self._words(state, call.left.place.name, at, self._data(state, call, weights.lanes))
        at = call.address(call.right, state.digits)
        pairs = zip(data, self._words(state, call.right.place.name, at, weights), strict=True)
        for left, right in pairs:
            product = emitter.intrinsic(self.function, sums.dtype, sums.lanes, [left, right])
            sums = emitter.binary("add", sums, product)
        return sums

    def _in_loops(self, state: State, call: Call, sums: Value) -> Value:
        """The same, one product of each lane after the other."""
        emitter, group = state.emitter, call.intrinsic.left.elements
        assert call.left is not None
        left, right = (call.address(it, state.digits) for it in (call.left, call.right))
        for at in range(group):
            column = emitter.load_strided(call.right.place, right + at, group, sums.lanes)
            number = emitter.cast(emitter.load(call.left.place, left + at, 1), sums.dtype)
            factors = emitter.wide(number, sums.lanes), emitter.cast(column, sums.dtype)
            sums = emitter.binary("add", sums, emitter.binary("mul", *factors))
        return sums

    def _words(self, state: State, name: str, at: Linear, group: Value) -> list[Value]:
        """The even and the odd bytes of a vector, each in 16 bits."""
        keys = [(name, at, f"words {odd}") for odd in range(2)]
        if keys[0] not in state.loaded:
            for odd, key in enumerate(keys):
                state.loaded[key] = self._extended(state, group, odd)
        return [state.loaded[key] for key in keys]

    def _extended(self, state: State, group: Value, odd: int) -> Value:
        """Every other byte, extended by zeros; signed ones by their sign.

        Those are 128 more before, which makes them unsigned, and less again behind.
        """
        emitter, lanes, is_signed = state.emitter, group.lanes, group.dtype == "int8"
        if is_signed:
            signs = emitter.wide(emitter.constant(-SHIFT, "int8"), lanes)
            group = emitter.binary("add", group, signs)
        group = emitter.bitcast(group, "uint8", lanes)
        none = emitter.wide(emitter.constant(0, "uint8"), lanes)
        kept = [it + odd if it % 2 == 0 else lanes for it in range(lanes)]
        words = emitter.bitcast(emitter.shuffled(group, none, kept), "int16", lanes // 2)
        if is_signed:
            by = emitter.wide(emitter.constant(SHIFT, "int16"), words.lanes)
            words = emitter.binary("sub", words, by)
        return words


def pairs_512(intrinsic: Intrinsic) -> PairProducts:
    """``vpmaddwd`` on 512 bits."""
    return PairProducts("llvm.x86.avx512.pmaddw.d.512", intrinsic.left.dtype)


def pairs_256(intrinsic: Intrinsic) -> PairProducts:
    """``vpmaddwd`` on 256 bits."""
    return PairProducts("llvm.x86.avx2.pmadd.wd", intrinsic.left.dtype)


# Unsigned by signed bytes; LLVM's name of the one on 256 bits is the same with AVX-VNNI.
vnni_512 = DotProduct("llvm.x86.avx512.vpdpbusd.512", "uint8")
vnni_256 = DotProduct("llvm.x86.avx512.vpdpbusd.256", "uint8")
bfloat16_512 = DotProduct("llvm.x86.avx512bf16.dpbf16ps.512", "bfloat16")
bfloat16_256 = DotProduct("llvm.x86.avx512bf16.dpbf16ps.256", "bfloat16")

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
