"""Torch as the caller of what runs on a device: its tensors, its stream, its memory.

What is begun on torch's current stream is to torch like an operator of its own: it comes after
what torch has begun there, what torch begins there next comes after it, and memory of tensors that
go away meanwhile is given to nothing that comes before. The host waits for none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from attrs import field, frozen

from autotune.backends import dlpack
from autotune.errors import InvalidValueError
from autotune.measure.devices.shared import Given, SharedDevice

__all__ = ["TorchCaller"]


@frozen(eq=False)
class TorchCaller:
    """Torch on a device.

    Attributes:
        device: The device.
        stream: Torch's current stream there.
    """

    device: SharedDevice
    stream: int
    _torch: Any = field(repr=False)

    @staticmethod
    def of(device: SharedDevice, values: Iterable[Any]) -> TorchCaller | None:
        """Torch, where one of the values is a tensor of it on a CUDA device; else None."""
        torch = sys.modules.get("torch")
        if torch is None or not any(_is_on_device(torch, value) for value in values):
            return None
        stream = torch.cuda.current_stream(device.device.index).cuda_stream
        return TorchCaller(device, int(stream), torch)

    @property
    def is_recording(self) -> bool:
        """True if what is begun on the stream becomes part of a CUDA graph, and is not done."""
        return self.device.driver.is_capturing(self.stream)

    def has(self, value: object) -> bool:
        """Return whether a value is a tensor of torch on a CUDA device."""
        return _is_on_device(self._torch, value)

    def read(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        """A tensor of torch where it lies; one that is not in row-major order is copied there.

        Raises:
            InvalidValueError: it is of another shape or type, or on another device.
        """
        here = self.device.device.index
        if value.get_device() != here:
            raise InvalidValueError(
                f"{name!r} is on cuda:{value.get_device()}, and the program on cuda:{here}; move "
                "it there"
            )
        if value.shape != shape or value.dtype is not getattr(self._torch, dtype, None):
            found = str(value.dtype).removeprefix("torch.")
            raise InvalidValueError(
                f"{name!r} must be {dtype} of shape {list(shape)}, got {found} of shape "
                f"{list(value.shape)}"
            )
        try:
            if value.is_neg() or not value.is_contiguous():
                value = value.detach().resolve_neg().contiguous()
            pointer = int(value.data_ptr())
        except RuntimeError as error:  # a sparse one, or one without memory
            raise InvalidValueError(f"{name!r} has no address: {error}") from error
        view = dlpack.TensorView(pointer, shape, dtype, (dlpack.CUDA, here), True, value)
        return Given(name, shape, dtype, view)

    def written(self, name: str, shape: tuple[int, ...], dtype: str, value: Any) -> Given:
        """A tensor of torch that is written to where it lies.

        Raises:
            InvalidValueError: it is of another shape or type, on another device, or not in
                row-major order.
        """
        if value.is_neg() or not value.is_contiguous():
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


def _is_on_device(torch: Any, value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda
