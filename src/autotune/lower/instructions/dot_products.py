"""Dot products of 32 bits in each lane of a vector: VNNI, AVX-VNNI and AVX512-BF16.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, the pages of
``VPDPBUSD`` and ``VDPBF16PS``.
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

__all__ = ["DotProduct", "bfloat16_256", "bfloat16_512", "vnni_256", "vnni_512"]

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
        weights = known(
            state,
            call.right.place,
            call.address(call.right, digits),
            call.intrinsic.right.elements,
        )
        with call.at(digits):
            del digits.fixed[counter]
            with state.in_lanes((counter, lanes)):
                sums = load(state, call.sums.place, call.sums.index)
                total = self._add(state, call, sums, weights)
                store(state, call.sums.place, call.sums.index, total, None, stream=False)
            digits.fixed[counter] = 0

    def _add(self, state: State, call: Call, sums: Value, weights: Value) -> Value:
        emitter = state.emitter
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
