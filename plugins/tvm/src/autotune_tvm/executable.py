"""Compiled programs, bound to arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen
from numpy.typing import NDArray

from autotune.backends import (
    BoundCall,
    Executable,
    NativeBoundCall,
    PackedConstants,
    check_arguments,
    time_native_call,
)
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune_tvm import runtime
from autotune_tvm.native import native_call

__all__ = ["PackedArray", "PackedOperand", "TVMExecutable", "packer_name"]

Array = NDArray[Any]


@frozen
class PackedArray:
    """An array that is packed of a constant.

    Attributes:
        shape: Its extents.
        dtype: Its element type.
    """

    shape: tuple[int, ...]
    dtype: str


@frozen
class PackedOperand:
    """A constant in the place of which a function takes what is packed of it.

    Attributes:
        position: Of the constant among the tensors of the workload.
        arrays: What the function takes there.
    """

    position: int
    arrays: tuple[PackedArray, ...]


def packer_name(position: int) -> str:
    """Name of the function that packs the parameter at a position."""
    return f"pack_{position}"


class TVMExecutable(Executable):
    """A compiled module.

    Args:
        module: The runtime module with the function ``main``, and with those that pack.
        workload: Its inputs and outputs.
        arguments: Names of the tensors in the function's own order.
        threads: Threads that its parallel loops use.
        digest: Of its code.
        packed: Constants that ``main`` takes packed.
    """

    def __init__(
        self,
        module: Any,
        workload: Workload,
        arguments: Sequence[str],
        threads: int,
        digest: str = "",
        packed: Sequence[PackedOperand] = (),
    ) -> None:
        self.digest = digest
        self._packed = {operand.position: operand for operand in packed}
        self._constants = PackedConstants()
        self._module = module
        self._workload = workload
        self._arguments = tuple(arguments)
        self._dtypes = [workload.tensors[name].dtype for name in self._arguments]
        self._threads = threads

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> BoundCall:
        """Run on these arrays, where they lie; constants that the program takes packed are packed.

        Raises:
            InvalidValueError: the arrays are not those of the workload, or not aligned.
            NativeCallFailed: what packs says that it failed.
        """
        check_arguments(self._workload, inputs, outputs)
        names = (*(tensor.name for tensor in self._workload.inputs), *self._workload.outputs)
        arrays = dict(zip(names, (*inputs, *outputs), strict=True))
        arguments: list[Array] = []
        dtypes: list[str] = []
        copies: list[Array] = []
        for position, (name, dtype) in enumerate(zip(self._arguments, self._dtypes, strict=True)):
            if position in self._packed:
                operand = self._packed[position]
                packed = self._pack(operand, arrays[name])
                arguments += packed
                dtypes += [array.dtype for array in operand.arrays]
                copies += packed
            else:
                arguments.append(arrays[name])
                dtypes.append(dtype)
        call = native_call(self._module["main"], arguments, dtypes)
        threads = partial(runtime.use_threads, self._threads)
        return NativeBoundCall(call, outputs, copies, prepare=threads)

    def export(self, path: Path) -> None:
        """Write it as :mod:`autotune_tvm.artefact` describes.

        Raises:
            BuildFailed: it cannot be linked.
        """
        from autotune_tvm.artefact import StoredProgram, write_program

        packed = tuple(self._packed.values())
        write_program(path, self._module, StoredProgram(self._arguments, self.digest, packed))

    def _pack(self, operand: PackedOperand, given: Array) -> list[Array]:
        def pack(made: list[Array]) -> None:
            runtime.use_threads(self._threads)
            packer = self._module[packer_name(operand.position)]
            dtypes = [self._dtypes[operand.position], *(it.dtype for it in operand.arrays)]
            time_native_call(native_call(packer, [given, *made], dtypes), 1)

        arrays = [(it.shape, element_type(it.dtype).dtype) for it in operand.arrays]
        return self._constants.packed(operand.position, given, arrays, pack)
