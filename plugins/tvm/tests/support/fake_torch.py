"""The parts of torch that a network asks as its caller, over the memory of the fake device."""

from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import define

from autotune.runtime.device import Device, DeviceArray, stored_type

__all__ = ["WAITING", "FakeTensor", "FakeTorch"]

WAITING = ("cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2")
"""Functions of the driver that wait for the device."""


@define(eq=False)
class FakeTensor:
    """A tensor; ``order`` is False where its elements do not lie in row-major order.

    ``owner`` is a tensor that has its memory, if another one does.
    """

    array: DeviceArray
    dtype: Any
    order: bool = True
    owner: FakeTensor | None = None
    is_cuda = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def get_device(self) -> int:
        return self.array.device.device.index

    def is_neg(self) -> bool:
        return False

    def is_contiguous(self) -> bool:
        return self.order

    def detach(self) -> FakeTensor:
        return self

    resolve_neg = detach

    def contiguous(self) -> FakeTensor:
        return self if self.order else FakeTensor(self.array, self.dtype)

    def data_ptr(self) -> int:
        return self.array.pointer


class FakeTorch:
    """Torch with a current stream, and memory of tensors that are gone for later ones of it."""

    def __init__(self, device: Device, patch: pytest.MonkeyPatch) -> None:
        self.device_there = device
        self.Tensor = FakeTensor
        self.stream = 0
        self.cuda = SimpleNamespace(
            current_stream=lambda index: SimpleNamespace(cuda_stream=self.stream),
            is_initialized=lambda: False,
        )
        self.float32, self.float16, self.int64 = object(), object(), object()
        self.unused: dict[tuple[Any, ...], list[DeviceArray]] = {}
        patch.setitem(sys.modules, "torch", self)

    def device(self, kind: str, index: int) -> tuple[str, int]:
        return kind, index

    def empty(self, shape: tuple[int, ...], *, dtype: Any, device: tuple[str, int]) -> FakeTensor:
        assert device == ("cuda", self.device_there.device.index)
        name = "float32" if dtype is self.float32 else "float16"
        unused = self._unused(shape, name)
        return self._tensor(
            unused.pop() if unused else self.device_there.empty(shape, name), dtype
        )

    def tensor(self, array: Any) -> FakeTensor:
        """A tensor on the device with these numbers, in memory that nothing on its way uses."""
        name = "int64" if array.dtype == np.int64 else "float32"
        made = self._tensor(self.device_there.empty(array.shape, name), getattr(self, name))
        self.write(made, array)
        return made

    def _tensor(self, array: DeviceArray, dtype: Any) -> FakeTensor:
        made = FakeTensor(array, dtype)
        # Nothing is freed, which would wait for what is on its way.
        unused = self._unused(array.shape, array.dtype)
        weakref.finalize(made, unused.append, array).atexit = False
        return made

    def _unused(self, shape: tuple[int, ...], dtype: str) -> list[DeviceArray]:
        return self.unused.setdefault((self.stream, shape, dtype), [])

    def write(self, tensor: FakeTensor, array: Any) -> None:
        """Change what is in a tensor, and wait for it."""
        with self.device_there.current() as driver:
            driver.upload(tensor.data_ptr(), np.ascontiguousarray(array))

    def read(self, tensor: FakeTensor) -> Any:
        """Read the memory now: writes on their way on streams of torch are not waited for."""
        return tensor.array.numpy().astype(stored_type(tensor.array.dtype))

    def read_done(self, tensor: FakeTensor) -> Any:
        """Read the memory once the current stream has come here."""
        with self.device_there.current() as driver:
            driver.synchronize(self.stream)
        return self.read(tensor)

    def part(self, tensor: FakeTensor, offset: int, shape: tuple[int, ...]) -> FakeTensor:
        """A tensor in the memory of another one, ``offset`` bytes behind its first element."""
        held = tensor.array
        made = DeviceArray.__new__(DeviceArray)
        made.device, made.pointer = held.device, held.pointer + offset
        made.shape, made.dtype = shape, held.dtype
        return FakeTensor(made, tensor.dtype, owner=tensor)

    def new_stream(self) -> int:
        """A stream that waits for other streams only where asked to, as those of torch."""
        with self.device_there.current() as driver:
            return driver.create_stream(waits=False)
