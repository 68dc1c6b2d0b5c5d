"""Dot products of 32 bits in each lane of a vector: VNNI, AVX-VNNI, AVX512-BF16 and AVX2.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, the pages of
``VPDPBUSD``, ``VDPBF16PS`` and ``PMADDWD``.
"""

from __future__ import annotations

from attrs import frozen

from autotune.lower.emitter import Value
from autotune.lower.instructions.call import Call, known
from autotune.lower.instructions.instruction import Instruction
from autotune.lower.linear import Linear
from autotune.lower.memory import load, store
from autotune.lower.state import State
from autotune.nest.corrections import SHIFT
from autotune.sketches.intrinsics import Intrinsic

__all__ = [
    "DotProduct",
    "PairProducts",
    "bfloat16_256",
    "bfloat16_512",
    "pairs_256",
    "pairs_512",
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


def vnni_512(intrinsic: Intrinsic) -> DotProduct:
    """``vpdpbusd`` on 512 bits: unsigned by signed bytes."""
    return DotProduct("llvm.x86.avx512.vpdpbusd.512", "uint8")


def vnni_256(intrinsic: Intrinsic) -> DotProduct:
    """``vpdpbusd`` on 256 bits. LLVM's name is the same with AVX-VNNI."""
    return DotProduct("llvm.x86.avx512.vpdpbusd.256", "uint8")


def bfloat16_512(intrinsic: Intrinsic) -> DotProduct:
    """``vdpbf16ps`` on 512 bits."""
    return DotProduct("llvm.x86.avx512bf16.dpbf16ps.512", "bfloat16")


def bfloat16_256(intrinsic: Intrinsic) -> DotProduct:
    """``vdpbf16ps`` on 256 bits."""
    return DotProduct("llvm.x86.avx512bf16.dpbf16ps.256", "bfloat16")
