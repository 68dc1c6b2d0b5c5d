"""Compiled functions of TVM as C functions, which are called without the interpreter.

The structures are those of TVM's FFI and of DLPack, which are made for being laid out by others:
``tvm/ffi/c_api.h`` and ``dlpack/dlpack.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.backends import NativeCall
from autotune_tvm import runtime

__all__ = ["latest_error", "native_call"]

Array = NDArray[Any]

_CPU = 1
# kDLInt, kDLUInt, kDLFloat and kDLBool, by numpy's letters.
_TYPE_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
# kDLBfloat, which numpy does not have, by the name of the element type.
_NAMED_CODES = {"bfloat16": 4}
_TENSOR_POINTER = 7


class _Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("type_lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


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
    names = [""] * len(arrays) if dtypes is None else dtypes
    tensors = tuple(_tensor(array, name) for array, name in zip(arrays, names, strict=True))
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


def _tensor(array: Array, dtype: str) -> _Tensor:
    dimensions = array.ndim
    shape = (ctypes.c_int64 * dimensions)(*array.shape)
    strides = (ctypes.c_int64 * dimensions)(*(step // array.itemsize for step in array.strides))
    return _Tensor(
        data=array.ctypes.data,
        device_type=_CPU,
        ndim=dimensions,
        type_code=_NAMED_CODES.get(dtype, _TYPE_CODES[array.dtype.kind]),
        type_bits=8 * array.itemsize,
        type_lanes=1,
        shape=shape,
        strides=strides,
    )
