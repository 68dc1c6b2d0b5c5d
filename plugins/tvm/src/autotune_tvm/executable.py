"""Compiled programs, bound to arrays and called as C functions, without the interpreter.

The structures are those of TVM's FFI and of DLPack, which are made for being laid out by others:
``tvm/ffi/c_api.h`` and ``dlpack/dlpack.h``.
"""

from __future__ import annotations

import ctypes
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
    NativeCall,
    PackedConstants,
    check_arguments,
    time_native_call,
)
from autotune.backends.dlpack import CPU, tensor_of
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune_tvm import runtime

__all__ = [
    "PackedArray",
    "PackedOperand",
    "TVMExecutable",
    "latest_error",
    "native_call",
    "packer_name",
]

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


_TENSOR_POINTER = 7


class _Any(ctypes.Structure):
    """``TVMFFIAny``: a value with its type."""

    _fields_ = (
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("value", ctypes.c_void_p),
    )


class _Object(ctypes.Structure):
    """``TVMFFIObject``: what every object begins with."""

    _fields_ = (
        ("references", ctypes.c_uint64),
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("deleter", ctypes.c_void_p),
    )


class _Function(ctypes.Structure):
    """A function object: ``TVMFFIObject`` and ``TVMFFIFunctionCell``."""

    _fields_ = (("header", _Object), ("safe_call", ctypes.c_void_p), ("cpp_call", ctypes.c_void_p))


class _Bytes(ctypes.Structure):
    """``TVMFFIByteArray``."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))

    def text(self) -> str:
        """Decoded."""
        return ctypes.string_at(self.data, self.size).decode(errors="replace")


class _Error(ctypes.Structure):
    """An error object: ``TVMFFIObject`` and the beginning of ``TVMFFIErrorCell``."""

    _fields_ = (("header", _Object), ("kind", _Bytes), ("message", _Bytes))


def native_call(
    function: Any, arrays: Sequence[Array], dtypes: Sequence[str] | None = None
) -> NativeCall:
    """A call of a compiled function on ``arrays``, where they lie.

    Args:
        function: TVM's function object, of a program for the CPU.
        arrays: Contiguous, one for every parameter in order; read-only ones are trusted to be
            read only.
        dtypes: Their element types, where numpy does not have all of them.
    """
    names = [str(array.dtype) for array in arrays] if dtypes is None else dtypes
    tensors = tuple(
        tensor_of(it.ctypes.data, it.shape, name, (CPU, 0), _steps(it))
        for it, name in zip(arrays, names, strict=True)
    )
    arguments = (_Any * len(tensors))()
    for argument, tensor in zip(arguments, tensors, strict=True):
        argument.type_index = _TENSOR_POINTER
        argument.value = ctypes.addressof(tensor)
    result = _Any()
    handle = int(function.__chandle__())
    return NativeCall(
        address=int(_Function.from_address(handle).safe_call),
        arguments=(handle, ctypes.addressof(arguments), len(tensors), ctypes.addressof(result)),
        keeps=(function, tuple(arrays), tensors, arguments, result),
        explain=latest_error,
    )


def latest_error() -> str:
    """TVM's message of the latest failure on this thread, which is cleared."""
    library = _library()
    handle = ctypes.c_void_p()
    library.TVMFFIErrorMoveFromRaised(ctypes.byref(handle))
    if handle.value is None:
        return "TVM gives no reason"
    error = _Error.from_address(handle.value)
    said = f"{error.kind.text()}: {error.message.text()}"
    library.TVMFFIObjectDecRef(handle)
    return said


def _library() -> Any:
    runtime.load()
    from tvm_ffi import libinfo

    library = ctypes.CDLL(libinfo.find_libtvm_ffi())
    library.TVMFFIErrorMoveFromRaised.restype = None
    return library


def _steps(array: Array) -> tuple[int, ...]:
    """Elements from one to the next, along each dimension."""
    return tuple(step // array.itemsize for step in array.strides)
