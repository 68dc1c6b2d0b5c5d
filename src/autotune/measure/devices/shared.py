"""A CUDA device that tuned programs run on in the caller's own process, beside its other code.

The context is the primary one, which torch and others use, too. What runs has a stream of its own:
it waits for what others have begun on a tensor, and has ended when a call returns.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from autotune.backends import dlpack, host_array
from autotune.errors import AutotuneError, InvalidValueError
from autotune.ir.element_types import ELEMENT_TYPES
from autotune.targets import (
    CudaDevice,
    CudaDriver,
    CudaError,
    Target,
    load_driver,
    matching_device,
)
from autotune.targets.cuda_driver import DRIVER_VARIABLE

__all__ = [
    "DEFAULT_STREAM",
    "DeviceArray",
    "DeviceFailed",
    "Given",
    "SharedDevice",
    "converted",
    "held_bytes",
    "kept_bytes",
    "numpy_type",
    "read_given",
    "release_unused",
    "shared_device",
    "view_on",
]

Array = NDArray[Any]

DEFAULT_STREAM = 0
"""Where copies and fills are made."""

_OUT_OF_MEMORY = 2
# Kernels read vectors of up to so many bytes.
_WIDEST_ACCESS = 16


def numpy_type(dtype: str) -> np.dtype[Any]:
    """The numpy type of an array on the host whose elements are of a type by name."""
    known = ELEMENT_TYPES.get(dtype)
    return np.dtype(dtype) if known is None else known.dtype


class DeviceFailed(AutotuneError):
    """A CUDA device refused something, or a program failed on it."""


@define(eq=False)
class SharedDevice:
    """A device that this process may use for other things, too.

    Attributes:
        driver: The driver.
        device: What it is.
        context: The primary context.
        stream: Where everything is launched.
        recorder: A stream on which graphs are recorded, whatever others do meanwhile.
        events: Two, to take times with.
        users: What is on it: arrays, and programs that are loaded.
    """

    driver: CudaDriver
    device: CudaDevice
    context: int
    stream: int
    recorder: int
    events: tuple[int, int]
    users: weakref.WeakSet[Any] = field(factory=weakref.WeakSet, init=False)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)

    @contextmanager
    def current(self) -> Iterator[CudaDriver]:
        """Inside, this thread alone uses the device through here.

        Raises:
            DeviceFailed: a call of the driver failed.
        """
        try:
            with self._lock, self.driver.current(self.context):
                yield self.driver
        except CudaError as error:
            then = "; nothing runs on it in this process any more" if error.loses_context else ""
            raise DeviceFailed(f"cuda:{self.device.index}: {error}{then}") from error

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """A new array of unspecified content.

        Where there is too little memory, torch gives back what it keeps for later tensors.

        Raises:
            DeviceFailed: there is too little memory.
        """
        size = max(1, prod(shape) * numpy_type(dtype).itemsize)
        with self.current() as driver:
            try:
                pointer = driver.allocate(size)
            except CudaError as error:
                if error.code != _OUT_OF_MEMORY or not _emptied_cache_of_torch():
                    raise
                pointer = driver.allocate(size)
            return DeviceArray(self, pointer, shape, dtype)

    def synchronize(self) -> None:
        """Wait for what was launched; raises what went wrong in it."""
        self.driver.synchronize(self.stream)


def _emptied_cache_of_torch() -> bool:
    """Return whether torch is in use here, which then has given back memory that no tensor has."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    torch.cuda.empty_cache()
    return True


class DeviceArray:
    """An array on a device, in row-major order. Its memory is freed with it.

    Packages take it by ``from_dlpack`` without a copy (torch, cupy, jax) and by
    ``__cuda_array_interface__`` (numba); ``numpy()`` copies it to the host.

    Attributes:
        device: Where it is.
        pointer: Of its first element.
        shape: Its extents.
        dtype: The name of its element type.
    """

    def __init__(
        self, device: SharedDevice, pointer: int, shape: tuple[int, ...], dtype: str
    ) -> None:
        self.device = device
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        device.users.add(self)
        weakref.finalize(self, _free, device, pointer).atexit = False

    def __repr__(self) -> str:
        where = f"cuda:{self.device.device.index}"
        return f"<{self.dtype}[{', '.join(map(str, self.shape))}] on {where}>"

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * numpy_type(self.dtype).itemsize

    def numpy(self) -> Array:
        """A copy on the host; bfloat16 as the leading bits of float32, as everywhere here.

        Raises:
            DeviceFailed: the device has failed before.
        """
        copy = np.empty(self.shape, numpy_type(self.dtype))
        if copy.nbytes:
            with self.device.current() as driver:
                driver.download(copy, self.pointer)
        return copy

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.device.device.index

    def __dlpack__(self, *, stream: int | None = None, **_: object) -> Any:
        """A capsule; what is written here has ended, so that no stream has to wait."""
        where = self.__dlpack_device__()
        return dlpack.capsule_of(self.pointer, self.shape, self.dtype, where, self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        kind = numpy_type(self.dtype).str
        return {"shape": self.shape, "typestr": kind, "data": (self.pointer, False), "version": 3}


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
    def is_usable(self) -> bool:
        """True if kernels can read it where it is."""
        return self.view is not None and self.view.pointer % _WIDEST_ACCESS == 0

    @property
    def address(self) -> int:
        """Address on the device.

        Raises:
            RuntimeError: it is on the host.
        """
        if self.view is None:
            raise RuntimeError(f"{self.name} has no address on a device")
        return self.view.pointer

    def copy_to(self, driver: CudaDriver, pointer: int, stream: int) -> None:
        """Copy it to an address of the device when a stream has come here."""
        if self.view is not None:
            size = prod(self.shape) * numpy_type(self.dtype).itemsize
            if size:
                driver.begin_copy(pointer, self.view.pointer, size, stream)
        elif self.array is not None and self.array.nbytes:
            driver.begin_upload(pointer, self.array, stream)


def read_given(
    device: SharedDevice,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    value: Any,
    stream: int | None = None,
) -> Given:
    """Read a caller's tensor: on the device, or anything that numpy takes.

    Args:
        device: Where the tensor is used.
        name: Of the tensor.
        shape: Its extents.
        dtype: Its element type.
        value: What was given.
        stream: Which waits for what was begun on it; by default that of the device.

    Raises:
        InvalidValueError: it is of another shape or type, or on another device.
    """
    if hasattr(value, "detach"):
        value = value.detach()
    where = dlpack.device_of(value)
    if where is None or where[0] == dlpack.CPU:
        array = host_array(value)
        wanted = numpy_type(dtype)
        _check(name, shape, str(wanted), array.shape, str(array.dtype))
        return Given(name, shape, dtype, array=np.ascontiguousarray(array))
    here = device.device.index
    if where[0] not in (dlpack.CUDA, dlpack.CUDA_MANAGED) or where[1] != here:
        kind = "cuda" if where[0] == dlpack.CUDA else f"DLPack's device type {where[0]}"
        raise InvalidValueError(
            f"{name!r} is on {kind}:{where[1]}, and the program on cuda:{here}; move it there"
        )
    view = view_on(device, value, stream)
    if not view.contiguous and hasattr(value, "contiguous"):
        view = view_on(device, value.contiguous(), stream)
    _check(name, shape, dtype, view.shape, view.dtype)
    if not view.contiguous:
        raise InvalidValueError(
            f"{name!r} does not lie in row-major order without gaps on the device; copy it so"
        )
    return Given(name, shape, dtype, view)


def view_on(device: SharedDevice, value: Any, stream: int | None = None) -> dlpack.TensorView:
    """Place of a tensor of a device, once a stream waits for what was begun on it.

    Torch exports tensors of its current device only. The stream is the device's unless given.

    Raises:
        InvalidValueError: it cannot be exchanged, or its elements are of no known type.
    """
    # The default stream has a number of its own there.
    waiting = device.stream if stream is None else stream or dlpack.DEFAULT_STREAM
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return dlpack.view_of(value, waiting)
    with torch.cuda.device(device.device.index):
        return dlpack.view_of(value, waiting)


def _check(name: str, shape: tuple[int, ...], dtype: str, found: Any, kind: str) -> None:
    if tuple(found) != shape or kind != dtype:
        raise InvalidValueError(
            f"{name!r} must be {dtype} of shape {list(shape)}, got {kind} of shape {list(found)}"
        )


def converted(array: DeviceArray, like: Any) -> Any:
    """An array as a tensor of the package that another one is of, which shares its memory."""
    package = sys.modules.get(type(like).__module__.split(".")[0])
    converter = getattr(package, "from_dlpack", None)
    return array if isinstance(like, DeviceArray) or converter is None else converter(array)


_shared: dict[tuple[str, int], SharedDevice] = {}
_opening = threading.Lock()


def shared_device(target: Target) -> SharedDevice:
    """The device that a target describes, opened on first use; others may use it, too.

    Raises:
        UnsupportedTarget: there is no such device.
        DeviceFailed: no context can be made on it.
    """
    driver = load_driver()
    found = matching_device(target, driver)
    key = _driver_path(), found.index
    with _opening:
        if key not in _shared:
            try:
                context = driver.primary_context(driver.device(found.index))
                with driver.current(context):
                    events = driver.create_event(), driver.create_event()
                    stream = driver.create_stream()
                    recorder = driver.create_stream(waits=False)
            except CudaError as error:
                raise DeviceFailed(f"cuda:{found.index} ({found.name}): {error}") from error
            _shared[key] = SharedDevice(driver, found, context, stream, recorder, events)
        return _shared[key]


def _driver_path() -> str:
    """Which driver was asked for; "" is that of this machine."""
    return os.environ.get(DRIVER_VARIABLE, "")


def kept_bytes() -> dict[int, int]:
    """Bytes of the arrays on each device of the driver that is open here, by its number."""
    with _opening:
        return {
            index: sum(it.bytes for it in list(device.users) if isinstance(it, DeviceArray))
            for (path, index), device in _shared.items()
            if path == _driver_path()
        }


def release_unused() -> None:
    """Give back every device that nothing is on any more: a context alone takes memory there."""
    gc.collect()
    with _opening:
        for key, device in list(_shared.items()):
            if not device.users:
                del _shared[key]
                with suppress(CudaError):
                    _close(device)


def _close(device: SharedDevice) -> None:
    """Give a device back; what is left of the context, where others use it, is theirs."""
    driver = device.driver
    with driver.current(device.context):
        for event in device.events:
            driver.destroy_event(event)
        for stream in (device.stream, device.recorder):
            driver.destroy_stream(stream)
    driver.release_primary_context(driver.device(device.device.index))


def _free(device: SharedDevice, pointer: int) -> None:
    # After a lost context there is nothing to free.
    with suppress(DeviceFailed), device.current() as driver:
        driver.free(pointer)


# A context, with the code of libraries that is loaded into it.
_CONTEXT_BYTES = 1 << 30


def held_bytes() -> dict[int, int]:
    """Bytes of each device that torch and tuned programs keep in this process, by its number.

    Of torch, which is not imported here, that is what its allocator has reserved.
    """
    found = kept_bytes()
    for index, size in _reserved_by_torch(sys.modules.get("torch")).items():
        found[index] = found.get(index, 0) + size
    return {index: size + _CONTEXT_BYTES for index, size in found.items()}


def _reserved_by_torch(torch: Any) -> dict[int, int]:
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return {}
    reserved = {index: cuda.memory_reserved(index) for index in range(cuda.device_count())}
    current = cuda.current_device()
    return {index: size for index, size in reserved.items() if size or index == current}
