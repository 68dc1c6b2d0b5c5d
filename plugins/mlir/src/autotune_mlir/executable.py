"""Compiled programs, bound to arrays and called."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.backends import (
    BoundCall,
    Executable,
    NativeCall,
    check_arguments,
    poison_array,
    time_native_call,
)
from autotune.ir.workloads import Workload
from autotune_mlir.compiler import Generated

__all__ = ["MLIRBoundCall", "MLIRExecutable"]

Array = NDArray[Any]


class MLIRExecutable(Executable):
    """A compiled program.

    Args:
        generated: Its machine code.
        workload: Its inputs and outputs, which are the arguments of its entry in this order.
    """

    def __init__(self, generated: Generated, workload: Workload) -> None:
        self.digest = generated.digest
        self._generated = generated
        self._workload = workload

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Run on these arrays, where they lie.

        Raises:
            InvalidValueError: the arrays are not those of the workload, or not aligned.
        """
        check_arguments(self._workload, inputs, outputs)
        return MLIRBoundCall(self._generated, inputs, outputs)


class MLIRBoundCall(BoundCall):
    """A compiled program with its arguments.

    Args:
        generated: Its machine code.
        inputs: Arrays that it reads.
        outputs: Arrays that it writes.
    """

    def __init__(
        self, generated: Generated, inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        self._outputs = tuple(outputs)
        arrays = (*inputs, *outputs)
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        self._call = NativeCall(
            address=generated.address,
            arguments=(ctypes.addressof(pointers),),
            keeps=(generated, arrays, pointers),
        )

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

    def poison(self) -> None:
        """Fill the outputs with NaN, or with the smallest integer."""
        for output in self._outputs:
            poison_array(output)
