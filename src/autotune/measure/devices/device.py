"""A CUDA device that this process owns: its context, stream and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from attrs import define, field
from numpy.typing import NDArray

from autotune.errors import UnsupportedTarget
from autotune.targets import (
    CudaDevice,
    CudaDriver,
    CudaError,
    Target,
    load_driver,
    matching_device,
)

__all__ = ["BUSY_VARIABLE", "GUARD", "GUARD_BYTES", "Block", "Device", "open_device"]

BUSY_VARIABLE = "AUTOTUNE_ALLOW_BUSY_GPU"
"""Environment variable that, set to 1, allows a device that others use."""

GUARD, GUARD_BYTES = 0xA7, 4096
"""What lies before and after every array, to notice that it was written to."""

# A context, with what drivers and displays keep, takes less than that.
_IDLE_BYTES = 3 << 29
_OUT_OF_MEMORY, _UNAVAILABLE = 2, 46
_GIB = 1 << 30
_POLL_SECONDS = 0.1


@define(eq=False)
class Block:
    """An array on the device, between two guard zones.

    Attributes:
        name: What it is called in messages.
        pointer: Where it begins; a multiple of 256.
        bytes: Its size.
        base: What was allocated.
    """

    name: str
    pointer: int
    bytes: int
    base: int


@define(eq=False)
class Device:
    """A device with a context.

    Attributes:
        driver: The driver.
        device: What it is.
        stream: Where everything is launched.
        events: Two, to take times with.
    """

    driver: CudaDriver
    device: CudaDevice
    stream: int
    events: tuple[int, int]
    _zone: NDArray[Any] = field(factory=lambda: np.empty(GUARD_BYTES, np.uint8), init=False)

    def allocate(self, name: str, size: int) -> Block:
        """Memory with guard zones around it.

        Raises:
            CudaError: there is not enough; the message names the array.
        """
        padded = -(-size // 256) * 256
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
        block = Block(name, base + GUARD_BYTES, size, base)
        self.driver.fill(base, GUARD, GUARD_BYTES)
        # What lies between the end of the array and the next multiple of 256 is guarded, too.
        self.driver.fill(block.pointer + size, GUARD, padded - size + GUARD_BYTES)
        return block

    def free(self, block: Block) -> None:
        """Free it."""
        self.driver.free(block.base)

    def written_beside(self, block: Block) -> bool:
        """Return whether a guard zone of an array was written to."""
        for begin in (block.base, block.pointer + block.bytes):
            self.driver.download(self._zone, begin)
            if not (self._zone == GUARD).all():
                return True
        return False

    def upload(self, block: Block, array: NDArray[Any]) -> None:
        """Copy an array of the host to the device."""
        self.driver.upload(block.pointer, np.ascontiguousarray(array))

    def download(self, block: Block, like: NDArray[Any]) -> NDArray[Any]:
        """A copy on the host, of the shape and type of another array."""
        copy = np.empty(like.shape, like.dtype)
        self.driver.download(copy, block.pointer)
        return copy

    def synchronize(self) -> None:
        """Wait for what was launched; raises what went wrong in it."""
        self.driver.synchronize(self.stream)


def open_device(
    target: Target,
    driver: CudaDriver | None = None,
    *,
    held: Mapping[int, int] = MappingProxyType({}),
    patience: float = 0.0,
) -> Device:
    """Make a context on the device that a target describes.

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
    while busy := _busy(driver, found, held.get(found.index, 0)):
        if time.monotonic() > end:
            raise UnsupportedTarget(f"cuda:{found.index} ({found.name}) is busy: {busy}")
        time.sleep(_POLL_SECONDS)
    events = driver.create_event(), driver.create_event()
    return Device(driver, found, driver.create_stream(), events)


def _busy(driver: CudaDriver, found: CudaDevice, held: int) -> str:
    """Make a context current, or say why the device is not to be had."""
    handle = driver.device(found.index)
    try:
        driver.retain_context(handle)
    except CudaError as error:
        why = {
            _UNAVAILABLE: "another process has it for itself (compute mode 'exclusive process')",
            _OUT_OF_MEMORY: "its memory is in use",
        }.get(error.code, str(error))
        return f"{why}; cuda:N names another device"
    free, total = driver.memory()
    used = total - free
    if used <= _IDLE_BYTES + held or os.environ.get(BUSY_VARIABLE) == "1":
        return ""
    driver.release_context(handle)
    own = f", {held / _GIB:.1f} of them by this process" if held else ""
    return (
        f"{used / _GIB:.1f} GiB of its {total / _GIB:.1f} GiB are in use{own}; cuda:N names "
        f"another device, {BUSY_VARIABLE}=1 times beside others all the same"
    )
