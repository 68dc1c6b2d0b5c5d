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
    NativeCall,
    PackedConstants,
    check_arguments,
    poison_array,
    time_native_call,
)
from autotune.ir.workloads import Workload
from autotune_mlir.compiler import Generated

__all__ = ["MLIRBoundCall", "MLIRExecutable", "PackedOperand"]

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
        return MLIRBoundCall(self._generated, given, outputs, copies)

    def _pack(self, operand: PackedOperand, given: Array) -> Array:
        def pack(made: list[Array]) -> None:
            time_native_call(_call_of(operand.packer, [given, *made]), 1)

        arrays = [(operand.shape, given.dtype)]
        (found,) = self._constants.packed(operand.position, given, arrays, pack)
        return found


def _call_of(generated: Generated, arrays: Sequence[Array]) -> NativeCall:
    """A run of a program on arrays."""
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    return NativeCall(
        address=generated.address,
        arguments=(ctypes.addressof(pointers),),
        keeps=(generated, tuple(arrays), pointers),
    )


class MLIRBoundCall(BoundCall):
    """A compiled program with its arguments.

    Args:
        generated: Its machine code.
        inputs: Arrays that it reads.
        outputs: Arrays that it writes.
        copies: Those that it reads which hold packed inputs.
    """

    def __init__(
        self,
        generated: Generated,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        copies: Sequence[Array] = (),
    ) -> None:
        self._copies = tuple(copies)
        self._outputs = tuple(outputs)
        self._call = _call_of(generated, (*inputs, *outputs))

    def native(self) -> NativeCall:
        """The program's entry with the addresses of the arrays."""
        return self._call

    def run(self) -> None:
        """Run once."""
        time_native_call(self._call, 1)

    def time(self, number: int) -> float:
        """Seconds per call, averaged over ``number`` calls."""
        return time_native_call(self._call, number)

    def outputs(self) -> list[Array]:
        """Copies of the outputs, in the workload's order."""
        return [output.copy() for output in self._outputs]

    def copies(self) -> list[Array]:
        """The packed constants that it reads."""
        return list(self._copies)

    def poison(self) -> None:
        """Fill the outputs with NaN, or with the smallest integer."""
        for output in self._outputs:
            poison_array(output)
