"""Tensors of other packages, read where they lie, and memory of ours given to them: DLPack.

The structures are those of ``dlpack.h`` before version 1 (capsules named ``dltensor``), which
every package exchanges.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from math import prod
from typing import Any, NamedTuple

from autotune.errors import InvalidValueError

__all__ = [
    "CPU",
    "CUDA",
    "CUDA_MANAGED",
    "DEFAULT_STREAM",
    "TensorView",
    "capsule_of",
    "device_of",
    "tensor_of",
    "view_of",
]

CPU, CUDA, CUDA_MANAGED = 1, 2, 13
"""``DLDeviceType``: memory of the host, of a device, and what both see."""

DEFAULT_STREAM = 1
"""Number of CUDA's legacy default stream in ``__dlpack__``."""

_UNUSED = b"dltensor"
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_CODES = {name: code for code, name in _KINDS.items()}


class _Device(ctypes.Structure):
    _fields_ = (("kind", c_int32), ("index", c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _DataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", c_void_p), ("deleter", _Deleter))


def _function(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _function("PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, _Destructor)
_pointer = _function("PyCapsule_GetPointer", c_void_p, ctypes.py_object, c_char_p)
# A capsule that is being destroyed must not be referred to again, as `py_object` would.
_is_unused = _function("PyCapsule_IsValid", ctypes.c_int, c_void_p, c_char_p)
_pointer_in = _function("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)

_given: dict[int, tuple[Any, ...]] = {}
"""Objects that are kept alive for others, by the address of their structure."""


class TensorView(NamedTuple):
    """Memory of another package's tensor.

    Attributes:
        pointer: Of its first element.
        shape: Its extents.
        dtype: Its element type: ``float32``, ``bfloat16``, ...
        device: ``DLDeviceType`` and the number of the device.
        contiguous: Whether elements lie in row-major order without gaps.
        owner: Keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: str
    device: tuple[int, int]
    contiguous: bool
    owner: Any


def device_of(value: object) -> tuple[int, int] | None:
    """``DLDeviceType`` and number of where a tensor lies; None for what has no DLPack."""
    ask = getattr(value, "__dlpack_device__", None)
    if ask is None:
        return None
    kind, index = ask()
    return int(kind), int(index)


def view_of(value: Any, stream: int | None = None) -> TensorView:
    """The device of a tensor.

    Args:
        value: Has ``__dlpack__``. One of torch that needs gradients is detached by the caller.
        stream: Of a device: where its memory is used, which waits for what its owner has begun.

    Raises:
        InvalidValueError: it cannot be exchanged, or its elements are of no known type.
    """
    try:
        capsule = value.__dlpack__() if stream is None else value.__dlpack__(stream=stream)
        managed = ctypes.cast(_pointer(capsule, _UNUSED), POINTER(_Managed)).contents
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidValueError(
            f"an array of type {type(value).__name__} cannot be read by DLPack: {error}"
        ) from error
    tensor = managed.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else ()
    return TensorView(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        _name_of(tensor.dtype),
        (tensor.device.kind, tensor.device.index),
        not strides or _is_contiguous(shape, strides),
        (capsule, value),
    )


def capsule_of(
    pointer: int, shape: Sequence[int], dtype: str, device: tuple[int, int], owner: object
) -> Any:
    """A capsule for ``from_dlpack`` of other packages.

    Args:
        pointer: Of the first of the elements, which lie in row-major order without gaps.
        shape: Extents.
        dtype: Element type: ``float32``, ``bfloat16``, ...
        device: ``DLDeviceType`` and the number of the device.
        owner: Kept alive until the other package is done.
    """
    managed = _Managed(tensor_of(pointer, shape, dtype, device), None, _DELETE)
    address = ctypes.addressof(managed)
    _given[address] = managed, owner
    return _new(address, _UNUSED, _DESTROY)


def tensor_of(
    pointer: int,
    shape: Sequence[int],
    dtype: str,
    device: tuple[int, int],
    strides: Sequence[int] | None = None,
) -> ctypes.Structure:
    """A ``DLTensor``, which keeps its extents alive.

    Args:
        pointer: As of :func:`capsule_of`, like the next three.
        shape: See there.
        dtype: See there.
        device: See there.
        strides: Elements from one to the next, where they may not lie in row-major order.
    """
    kind = dtype.rstrip("0123456789")
    bits = int(dtype[len(kind) :] or 8)
    numbers = c_int64 * max(1, len(shape))
    return _Tensor(
        data=pointer,
        device=_Device(*device),
        ndim=len(shape),
        dtype=_DataType(_CODES[kind], bits, 1),
        shape=numbers(*shape),
        strides=None if strides is None else numbers(*strides),
    )


def _delete(address: int) -> None:
    """Release a tensor: another package calls this when it is done."""
    _given.pop(address, None)


def _destroy(capsule: int) -> None:
    """Release a capsule that goes away, which nobody may have taken the tensor from."""
    if _is_unused(capsule, _UNUSED):
        _given.pop(_pointer_in(capsule, _UNUSED), None)


_DELETE, _DESTROY = _Deleter(_delete), _Destructor(_destroy)


def _name_of(dtype: _DataType) -> str:
    kind = _KINDS.get(dtype.code)
    if kind is None or dtype.lanes != 1:
        raise InvalidValueError(
            f"an array has elements of DLPack's type code {dtype.code} with {dtype.lanes} lanes; "
            f"known are: {', '.join(_CODES)}"
        )
    return kind if kind == "bool" else f"{kind}{dtype.bits}"


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return 0 in shape or all(
        extent == 1 or stride == wanted
        for extent, stride, wanted in zip(shape, strides, expected, strict=True)
    )
