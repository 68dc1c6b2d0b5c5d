"""Compiled programs, bound to arrays and called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from attrs import frozen
from numpy.typing import NDArray

from autotune.backends import (
    BoundCall,
    Executable,
    NativeBoundCall,
    NativeCall,
    PackedConstants,
    check_arguments,
    time_native_call,
)
from autotune.ir.workloads import Workload
from autotune.sketches.intrinsics.tile_registers import REFUSED
from autotune_mlir.code_generation import Generated

__all__ = ["MLIRExecutable", "PackedOperand", "bound_call"]

Array = NDArray[Any]


@frozen(eq=False)
class PackedOperand:
    """A constant that a program takes packed.

    Attributes:
        position: Among the inputs of the workload.
        shape: Extents of what is packed.
        packer: What packs: its arguments are the constant and what is packed.
    """

    position: int
    shape: tuple[int, ...]
    packer: Generated


class MLIRExecutable(Executable):
    """A compiled program.

    Args:
        generated: Its machine code.
        workload: Its inputs and outputs, which are the arguments of its entry in this order.
        packed: Constants that it takes packed.
    """

    def __init__(
        self, generated: Generated, workload: Workload, packed: Sequence[PackedOperand] = ()
    ) -> None:
        self.digest = generated.digest
        self._generated = generated
        self._workload = workload
        self._packed = tuple(packed)
        self._constants = PackedConstants()

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Run on these arrays, where they lie; constants that the program takes packed are packed.

        Raises:
            InvalidValueError: the arrays are not those of the workload, or not aligned.
        """
        check_arguments(self._workload, inputs, outputs)
        given = list(inputs)
        for operand in self._packed:
            given[operand.position] = self._pack(operand, inputs[operand.position])
        copies = [given[operand.position] for operand in self._packed]
        return bound_call(self._generated, given, outputs, copies)

    def _pack(self, operand: PackedOperand, given: Array) -> Array:
        def pack(made: list[Array]) -> None:
            time_native_call(_call_of(operand.packer, [given, *made]), 1)

        arrays = [(operand.shape, given.dtype)]
        (found,) = self._constants.packed(operand.position, given, arrays, pack)
        return found


def bound_call(
    generated: Generated,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    copies: Sequence[Array] = (),
) -> NativeBoundCall:
    """A compiled program with its arguments.

    Args:
        generated: Its machine code.
        inputs: Arrays that it reads.
        outputs: Arrays that it writes.
        copies: Those that it reads which hold packed inputs.
    """
    return NativeBoundCall(_call_of(generated, (*inputs, *outputs)), outputs, copies)


def _call_of(generated: Generated, arrays: Sequence[Array]) -> NativeCall:
    """A run of a program on arrays."""
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    return NativeCall(
        address=generated.address,
        arguments=(ctypes.addressof(pointers),),
        keeps=(generated, tuple(arrays), pointers),
        explain=(lambda: REFUSED) if generated.asks_for_tiles else None,
    )
