"""A CUDA device of this process: its context, streams, arrays, graphs and times.

A process that measures has the device to itself (:func:`open_device`). Elsewhere the context is
the primary one, which torch and others use, too (:func:`shared_device`).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.backends import dlpack
from autotune.errors import AutotuneError, UnsupportedTarget
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
    "BUSY_VARIABLE",
    "DEFAULT_STREAM",
    "GUARD",
    "GUARD_BYTES",
    "Device",
    "DeviceArray",
    "DeviceFailed",
    "GuardedArray",
    "held_bytes",
    "open_device",
    "release_unused",
    "shared_device",
    "stored_type",
]

Array = NDArray[Any]

BUSY_VARIABLE = "AUTOTUNE_ALLOW_BUSY_GPU"
"""Environment variable that, set to 1, allows a device that others use."""

DEFAULT_STREAM = 0
"""Stream of copies and fills."""

GUARD, GUARD_BYTES = 0xA7, 4096
"""Bytes before and after a guarded array, to notice that it was written to."""

_ALIGNMENT = 256
# A context, with what drivers and displays keep, takes less than that.
_IDLE_BYTES = 3 << 29
# A context, with the code of libraries that is loaded into it.
_CONTEXT_BYTES = 1 << 30
_OUT_OF_MEMORY, _UNAVAILABLE = 2, 46
_GIB = 1 << 30
_POLL_SECONDS = 0.1


def stored_type(dtype: str) -> np.dtype[Any]:
    """The numpy type of an array on the host as programs have it; bfloat16 as its bits."""
    known = ELEMENT_TYPES.get(dtype)
    return np.dtype(dtype) if known is None else known.dtype


class DeviceFailed(AutotuneError):
    """A CUDA device refused something, or a program failed on it."""


@define(eq=False)
class Device:
    """A device with a context, which this process may use for other things, too.

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

    @staticmethod
    def with_context(driver: CudaDriver, device: CudaDevice, context: int) -> Device:
        """A device whose primary context was retained, and is current."""
        events = driver.create_event(), driver.create_event()
        streams = driver.create_stream(), driver.create_stream(waits=False)
        return Device(driver, device, context, *streams, events)

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
        size = max(1, prod(shape) * stored_type(dtype).itemsize)
        with self.current() as driver:
            try:
                pointer = driver.allocate(size)
            except CudaError as error:
                if error.code != _OUT_OF_MEMORY or not _emptied_cache_of_torch():
                    raise
                pointer = driver.allocate(size)
            return DeviceArray(self, pointer, shape, dtype)

    def guarded(self, name: str, size: int) -> GuardedArray:
        """Memory with guard zones around it; the context is current.

        Raises:
            CudaError: there is not enough; the message names the array.
        """
        padded = -(-size // _ALIGNMENT) * _ALIGNMENT
        try:
            base = self.driver.allocate(padded + 2 * GUARD_BYTES)
        except CudaError as error:
            if error.code != _OUT_OF_MEMORY:
                raise
            free, total = self.driver.memory()
            raise CudaError(
                f"allocating {size} bytes for {name!r} on a device with {free} of {total} free",
                error.code,
                "out of memory",
            ) from error
        self.driver.fill(base, GUARD, GUARD_BYTES)
        # What lies between the end of the array and the next multiple of 256 is guarded, too.
        self.driver.fill(base + GUARD_BYTES + size, GUARD, padded - size + GUARD_BYTES)
        return GuardedArray(self, name, base, size)

    def graph_of(self, launch: Callable[[int], None]) -> int:
        """An executable graph of what ``launch`` begins on the stream that it is given.

        Kernels that are loaded when they are first launched have been launched before.
        """
        driver, stream = self.driver, self.recorder
        driver.begin_capture(stream)
        try:
            launch(stream)
        except BaseException:
            # The stream would go on recording.
            with suppress(CudaError):
                driver.destroy_graph(driver.end_capture(stream))
            raise
        return driver.end_capture(stream)

    def seconds(self, launch: Callable[[int], None]) -> float:
        """Seconds that the device takes for what ``launch`` begins on the stream."""
        begin, end = self.events
        self.driver.record(begin, self.stream)
        launch(self.stream)
        self.driver.record(end, self.stream)
        return self.driver.seconds_between(begin, end)

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

    def __init__(self, device: Device, pointer: int, shape: tuple[int, ...], dtype: str) -> None:
        self.device = device
        self.pointer = pointer
        self.shape = shape
        self.dtype = dtype
        self.free = _freeing(self, device, pointer)

    def __repr__(self) -> str:
        where = f"cuda:{self.device.device.index}"
        return f"<{self.dtype}[{', '.join(map(str, self.shape))}] on {where}>"

    @property
    def bytes(self) -> int:
        """Its size."""
        return prod(self.shape) * stored_type(self.dtype).itemsize

    def numpy(self) -> Array:
        """A copy on the host; bfloat16 as the leading bits of float32, as everywhere here.

        Raises:
            DeviceFailed: the device has failed before.
        """
        copy = np.empty(self.shape, stored_type(self.dtype))
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
        kind = stored_type(self.dtype).str
        return {"shape": self.shape, "typestr": kind, "data": (self.pointer, False), "version": 3}


class GuardedArray:
    """Bytes on a device between two guard zones. They are freed with it, or by :meth:`free`.

    Attributes:
        device: Where they are.
        name: What they are called in messages.
        pointer: Where they begin; a multiple of 256.
        bytes: How many they are.
    """

    def __init__(self, device: Device, name: str, base: int, size: int) -> None:
        self.device = device
        self.name = name
        self.pointer = base + GUARD_BYTES
        self.bytes = size
        self.free = _freeing(self, device, base)

    @property
    def is_damaged(self) -> bool:
        """True if a guard zone was written to."""
        zone = np.empty(GUARD_BYTES, np.uint8)
        for begin in (self.pointer - GUARD_BYTES, self.pointer + self.bytes):
            self.device.driver.download(zone, begin)
            if not (zone == GUARD).all():
                return True
        return False

    def fill(self, byte: int) -> None:
        """Set all of them."""
        self.device.driver.fill(self.pointer, byte, self.bytes)

    def upload(self, array: Array) -> None:
        """Copy an array of the host to the device."""
        self.device.driver.upload(self.pointer, np.ascontiguousarray(array))

    def download(self, like: Array) -> Array:
        """A copy on the host, of the shape and type of another array."""
        copy = np.empty(like.shape, like.dtype)
        self.device.driver.download(copy, self.pointer)
        return copy


def _freeing(owner: object, device: Device, pointer: int) -> Callable[[], object]:
    """Have memory freed once with what has it, or when the result is called."""
    device.users.add(owner)
    made = weakref.finalize(owner, _free, device, pointer)
    made.atexit = False
    return made


def _free(device: Device, pointer: int) -> None:
    # After a lost context there is nothing to free.
    with suppress(DeviceFailed), device.current() as driver:
        driver.free(pointer)


def open_device(
    target: Target,
    driver: CudaDriver | None = None,
    *,
    held: Mapping[int, int] = MappingProxyType({}),
    patience: float = 0.0,
) -> Device:
    """Have the device that a target describes for this thread alone: its context stays current.

    Args:
        target: As ``cuda``, ``cuda:N`` or a preset give it.
        driver: The driver; that of this machine unless given.
        held: Bytes of devices, by their numbers, that are in use without making them busy.
        patience: Seconds to wait for a device that others use.

    Raises:
        UnsupportedTarget: there is no such device, or others use it; says which.
    """
    driver = driver or load_driver()
    found = matching_device(target, driver)
    end = time.monotonic() + patience
    while isinstance(context := _entered(driver, found, held.get(found.index, 0)), str):
        if time.monotonic() > end:
            raise UnsupportedTarget(f"cuda:{found.index} ({found.name}) is busy: {context}")
        time.sleep(_POLL_SECONDS)
    return Device.with_context(driver, found, context)


def _entered(driver: CudaDriver, found: CudaDevice, held: int) -> int | str:
    """The context, now current; or why the device is not to be had."""
    handle = driver.device(found.index)
    try:
        context = driver.retain_context(handle)
    except CudaError as error:
        why = {
            _UNAVAILABLE: "another process has it for itself (compute mode 'exclusive process')",
            _OUT_OF_MEMORY: "its memory is in use",
        }.get(error.code, str(error))
        return f"{why}; cuda:N names another device"
    free, total = driver.memory()
    used = total - free
    if used <= _IDLE_BYTES + held or os.environ.get(BUSY_VARIABLE) == "1":
        return context
    driver.release_context(handle)
    own = f", {held / _GIB:.1f} of them by this process" if held else ""
    return (
        f"{used / _GIB:.1f} GiB of its {total / _GIB:.1f} GiB are in use{own}; cuda:N names "
        f"another device, {BUSY_VARIABLE}=1 times beside others all the same"
    )


_shared: dict[tuple[str, int], Device] = {}
_opening = threading.Lock()


def shared_device(target: Target) -> Device:
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
                    _shared[key] = Device.with_context(driver, found, context)
            except CudaError as error:
                raise DeviceFailed(f"cuda:{found.index} ({found.name}): {error}") from error
        return _shared[key]


def _driver_path() -> str:
    """Return the driver that was asked for; "" is that of this machine."""
    return os.environ.get(DRIVER_VARIABLE, "")


def release_unused() -> None:
    """Give back every device that nothing is on any more: a context alone takes memory there."""
    gc.collect()
    with _opening:
        for key, device in list(_shared.items()):
            if not device.users:
                del _shared[key]
                with suppress(CudaError):
                    _close(device)


def _close(device: Device) -> None:
    """Give a device back; what is left of the context, where others use it, is theirs."""
    driver = device.driver
    with driver.current(device.context):
        for event in device.events:
            driver.destroy_event(event)
        for stream in (device.stream, device.recorder):
            driver.destroy_stream(stream)
    driver.release_primary_context(driver.device(device.device.index))


def held_bytes() -> dict[int, int]:
    """Bytes of each device that torch and tuned programs keep in this process, by its number.

    Of torch, which is not imported here, that is what its allocator has reserved.
    """
    with _opening:
        found = {
            index: sum(it.bytes for it in list(device.users) if isinstance(it, DeviceArray))
            for (path, index), device in _shared.items()
            if path == _driver_path()
        }
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
