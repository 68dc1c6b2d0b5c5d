"""Arrays as programs want them: aligned, contiguous, of the shapes and types of a workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from autotune.errors import InvalidValueError

if TYPE_CHECKING:
    from autotune.backends.backend import BoundCall, Executable
    from autotune.ir.workloads import Tensor, Workload

__all__ = [
    "ALIGNMENT",
    "aligned_copy",
    "aligned_empty",
    "bind_copies",
    "check_arguments",
    "host_array",
    "poison_array",
]

Array = NDArray[Any]

ALIGNMENT = 64
"""Bytes: the first element of every bound array lies at a multiple, where a cache line begins."""


def aligned_empty(shape: Sequence[int], dtype: DTypeLike) -> Array:
    """An aligned array with undefined elements, in row-major order."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return memory[begin : begin + size].view(kind).reshape(tuple(shape))


def aligned_copy(array: Array) -> Array:
    """An aligned copy in row-major order; it may be written to."""
    copy = aligned_empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def host_array(value: Any) -> Array:
    """Take what a caller gave as an array in the byte order of this machine, in place if possible.

    Gradients are not recorded: a tensor that asks for them is taken as its numbers.
    """
    array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def bind_copies(executable: Executable, workload: Workload, inputs: Sequence[Array]) -> BoundCall:
    """Bind a program to aligned copies of ``inputs`` and to outputs of its own.

    For callers without memory of their own to run in; ``inputs`` may lie anywhere and are neither
    changed nor kept.

    Raises:
        InvalidValueError: an input is missing or has another shape or type.
    """
    tensors = workload.tensors
    outputs = [
        aligned_empty(tensors[name].shape, tensors[name].element.dtype)
        for name in workload.outputs
    ]
    return executable.bind([aligned_copy(array) for array in inputs], outputs)


def check_arguments(workload: Workload, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Refuse arrays that a program for ``workload`` cannot be bound to.

    Raises:
        InvalidValueError: one is missing, has another shape or type, is not contiguous or not
            aligned, or is an output that cannot be written to.
    """
    wanted = [workload.tensors[name] for name in workload.outputs]
    groups = (("input", workload.inputs, inputs), ("output", wanted, outputs))
    for role, tensors, arrays in groups:
        if len(tensors) != len(arrays):
            raise InvalidValueError(
                f"workload {workload.name!r} has {len(tensors)} {role}s, got {len(arrays)}"
            )
        for tensor, array in zip(tensors, arrays, strict=True):
            _check_array(role, tensor, array)
    for name, array in zip(workload.outputs, outputs, strict=True):
        if not array.flags.writeable:
            raise InvalidValueError(f"output {name!r} cannot be written to")


def poison_array(array: Array) -> None:
    """Fill an array with what no right program computes.

    NaN; of integers the smallest with a sign and the largest without; True.
    """
    kind = array.dtype.kind
    if kind == "f":
        array.fill(np.nan)
    elif kind == "b":
        array.fill(True)
    else:
        limits = np.iinfo(array.dtype)
        array.fill(limits.min if kind == "i" else limits.max)


def _check_array(role: str, tensor: Tensor, array: Array) -> None:
    if tuple(array.shape) != tensor.shape or array.dtype != tensor.element.dtype:
        raise InvalidValueError(
            f"{role} {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}, "
            f"got {array.dtype} of shape {tuple(array.shape)}"
        )
    if not array.flags.c_contiguous:
        raise InvalidValueError(f"{role} {tensor.name!r} is not contiguous in row-major order")
    if array.ctypes.data % ALIGNMENT:
        raise InvalidValueError(
            f"{role} {tensor.name!r} begins at address {array.ctypes.data:#x}, which is no "
            f"multiple of {ALIGNMENT}"
        )
