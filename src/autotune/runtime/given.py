"""Callers of what runs on a device: their tensors, and the stream that their work is on.

Torch as the caller has its own stream and memory. What is begun on torch's current stream is to
torch like an operator of its own: it comes after what torch has begun there, what torch begins
there next comes after it, and memory of tensors that go away meanwhile is given to nothing that
comes before. The host waits for none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.backends import dlpack, host_array
from autotune.errors import InvalidValueError
from autotune.runtime.device import Device, DeviceArray, stored_type
from autotune.targets import CudaDriver

__all__ = ["Caller", "Given", "converted", "is_readable"]

Array = NDArray[Any]

# Kernels read vectors of up to so many bytes.
_WIDEST_ACCESS = 16


def is_readable(pointer: int) -> bool:
    """Return whether kernels can read and write an array that begins at an address."""
    return pointer != 0 and pointer % _WIDEST_ACCESS == 0


@frozen(eq=False)
class Given:
    """Tensor that a caller gave, checked.

    Attributes:
        name: Of the tensor.
        shape: Its extents.
        dtype: Its element type.
        view: Where it lies, if on the device.
        array: It on the host, otherwise.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    view: dlpack.TensorView | None = None
    array: Array | None = None

    @property
    def address(self) -> int:
        """Address on the device; 0 on the host."""
        return 0 if self.view is None else self.view.pointer

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * stored_type(self.dtype).itemsize

    def copy_to(self, driver: CudaDriver, pointer: int, stream: int) -> None:
        """Copy it to an address of the device when a stream has come here."""
        if self.view is not None and self.bytes:
            driver.begin_copy(pointer, self.view.pointer, self.bytes, stream)
        elif self.array is not None and self.array.nbytes:
            driver.begin_upload(pointer, self.array, stream)


@frozen(eq=False)
class Caller:
    """Caller of what is on a device.

    Attributes:
        device: The device.
        stream: Where it is run: torch's current stream where torch calls, else the device's.
    """

    device: Device
    stream: int
    _torch: Any = field(default=None, repr=False)

    @staticmethod
    def of(device: Device, values: Iterable[Any] = ()) -> Caller:
        """Torch, where one of the values is a tensor of it on a CUDA device; else anybody."""
        torch = sys.modules.get("torch")
        if torch is None or not any(_is_on_device(torch, value) for value in values):
            return Caller(device, device.stream)
        stream = torch.cuda.current_stream(device.device.index).cuda_stream
        return Caller(device, int(stream), torch)

    @property
    def is_recording(self) -> bool:
        """True if what torch begins on the stream becomes part of a CUDA graph."""
        return self._torch is not None and self.device.driver.is_capturing(self.stream)

    def has(self, value: object) -> bool:
        """Return whether a value is a tensor of torch on a CUDA device, and torch calls."""
        return self._torch is not None and _is_on_device(self._torch, value)

    def read(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        """Read a tensor: on the device where it lies, or anything that numpy takes.

        The stream waits for what others have begun on it. One that is not in row-major order is
        copied there, if its package does so.

        Raises:
            InvalidValueError: it is of another shape or type, or on another device.
        """
        if self.has(value):
            return self._read_of_torch(name, shape, dtype, value)
        if hasattr(value, "detach"):
            value = value.detach()
        where = dlpack.device_of(value)
        if where is None or where[0] == dlpack.CPU:
            array = host_array(value)
            _check(name, shape, str(stored_type(dtype)), array.shape, str(array.dtype))
            return Given(name, shape, dtype, array=np.ascontiguousarray(array))
        here = self.device.device.index
        if where[0] not in (dlpack.CUDA, dlpack.CUDA_MANAGED) or where[1] != here:
            kind = "cuda" if where[0] == dlpack.CUDA else f"DLPack's device type {where[0]}"
            raise _elsewhere(name, f"{kind}:{where[1]}", here)
        view = self._view(value)
        if not view.contiguous and hasattr(value, "contiguous"):
            view = self._view(value.contiguous())
        _check(name, shape, dtype, view.shape, view.dtype)
        if not view.contiguous:
            raise InvalidValueError(
                f"{name!r} does not lie in row-major order without gaps on the device; copy it so"
            )
        return Given(name, shape, dtype, view)

    def _read_of_torch(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        here = self.device.device.index
        if value.get_device() != here:
            raise _elsewhere(name, f"cuda:{value.get_device()}", here)
        if value.shape != shape or value.dtype is not getattr(self._torch, dtype, None):
            found = str(value.dtype).removeprefix("torch.")
            raise _wrong(name, shape, dtype, value.shape, found)
        try:
            if value.is_neg() or not value.is_contiguous():
                value = value.detach().resolve_neg().contiguous()
            pointer = int(value.data_ptr())
        except RuntimeError as error:  # a sparse one, or one without memory
            raise InvalidValueError(f"{name!r} has no address: {error}") from error
        view = dlpack.TensorView(pointer, shape, dtype, (dlpack.CUDA, here), True, value)
        return Given(name, shape, dtype, view)

    def written(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        """Read a tensor that is written to where it lies: what the caller holds, and no copy.

        Raises:
            InvalidValueError: it is of another shape or type, on another device, not in row-major
                order, or cannot be written to.
        """
        if self.has(value):
            is_in_order = value.is_contiguous() and not value.is_neg()
        else:
            where = dlpack.device_of(value)
            is_on_host = where is None or where[0] == dlpack.CPU
            is_in_order = is_on_host or self._view(value).contiguous
            if is_on_host and not (isinstance(value, np.ndarray) and value.flags.writeable):
                raise InvalidValueError(f"the array of out for {name!r} cannot be written to")
        if not is_in_order:
            raise InvalidValueError(f"the array of out for {name!r} is not contiguous")
        return self.read(name, shape, dtype, value)

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """A new tensor of torch on the device, of unspecified content.

        Raises:
            InvalidValueError: torch has no such type.
        """
        kind = getattr(self._torch, dtype, None)
        if kind is None:
            raise InvalidValueError(f"torch has no tensors of type {dtype}")
        device = self._torch.device("cuda", self.device.device.index)
        return self._torch.empty(shape, dtype=kind, device=device)

    def _view(self, value: Any) -> dlpack.TensorView:
        """Place of a tensor of a device, once the stream waits for what was begun on it.

        Torch exports tensors of its current device only.
        """
        # The default stream has a number of its own there.
        waiting = self.stream or dlpack.DEFAULT_STREAM
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return dlpack.view_of(value, waiting)
        with torch.cuda.device(self.device.device.index):
            return dlpack.view_of(value, waiting)


def _is_on_device(torch: Any, value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def _elsewhere(name: str, where: str, here: int) -> InvalidValueError:
    return InvalidValueError(
        f"{name!r} is on {where}, and the program on cuda:{here}; move it there"
    )


def _check(name: str, shape: tuple[int, ...], dtype: str, found: Any, kind: str) -> None:
    if tuple(found) != shape or kind != dtype:
        raise _wrong(name, shape, dtype, found, kind)


def _wrong(
    name: str, shape: tuple[int, ...], dtype: str, found: Any, kind: str
) -> InvalidValueError:
    return InvalidValueError(
        f"{name!r} must be {dtype} of shape {list(shape)}, got {kind} of shape {list(found)}"
    )


def converted(array: DeviceArray, like: Any) -> Any:
    """An array as a tensor of the package that another one is of, which shares its memory."""
    package = sys.modules.get(type(like).__module__.split(".")[0])
    converter = getattr(package, "from_dlpack", None)
    return array if isinstance(like, DeviceArray) or converter is None else converter(array)
