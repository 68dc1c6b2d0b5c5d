"""A tuned program of CUDA kernels as a Python callable on tensors of the device."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from attrs import define

from autotune.backends import CudaExecutable, dlpack
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.measure.devices.kernels import LoadedKernels
from autotune.measure.devices.shared import (
    DEFAULT_STREAM,
    DeviceArray,
    DeviceFailed,
    Given,
    SharedDevice,
    converted,
    read_given,
    shared_device,
    view_on,
)
from autotune.targets import CudaDriver, Target
from autotune.tuning.tuned_function import TunedFunction

__all__ = ["DeviceFunction"]


class DeviceFunction(TunedFunction):
    """A program for a CUDA device. Call it with the workload's inputs, in order or by name.

    Inputs are tensors on the device that have DLPack (of torch, cupy, jax), which are read where
    they lie, or arrays of the host, which are copied. Where an input is on the device, outputs are
    new tensors there, of that input's package; else numpy arrays. What others have begun on an
    input is waited for, and the program has ended when the call returns. The device is opened by
    the first call. Several threads may call it; their calls follow one another.

    Args:
        workload: What it computes.
        executable: The program.
        target: The device that it is for.
    """

    def __init__(self, workload: Workload, executable: CudaExecutable, target: Target) -> None:
        super().__init__(workload, executable)
        self._program = executable.program
        self._target = target
        self._loaded: _Loaded | None = None

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run once.

        Args:
            arrays: Inputs in the workload's order.
            out: Where to write the output, or the outputs in order: contiguous tensors on the
                device, or numpy arrays. New ones where it is absent.
            named: Inputs by name.

        Raises:
            InvalidValueError: an array is missing, unknown, of the wrong shape or type, on
                another device, or cannot be written to.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the program failed on the device.
        """
        values = self._arguments(arrays, named)
        loaded = self._on_device()
        device, tensors = loaded.device, self.workload.tensors
        with device.current() as driver:
            inputs = [
                read_given(device, it.name, tuple(it.shape), it.dtype, value)
                for it, value in zip(self.workload.inputs, values, strict=True)
            ]
            like = next((v for v, it in zip(values, inputs, strict=True) if it.view), None)
            outputs = {
                name: _Output.of(loaded, name, given, like is not None)
                for name, given in zip(self.workload.outputs, self._given_out(out), strict=True)
            }
            pointers = {it.name: loaded.pointer_of(it) for it in inputs}
            spans = [(pointers[name], tensors[name].bytes) for name in pointers]
            for name, output in outputs.items():
                span = output.pointer, tensors[name].bytes
                if any(_overlap(span, other) for other in spans):
                    raise InvalidValueError(f"the array of out for {name!r} overlaps another one")
                spans.append(span)
                pointers[name] = output.pointer
            loaded.run(pointers)
            found = [output.result(driver, like) for output in outputs.values()]
        return found[0] if len(found) == 1 else tuple(found)

    def _given_out(self, out: Any) -> Sequence[Any]:
        wanted = len(self.workload.outputs)
        if out is None:
            return [None] * wanted
        given = list(out) if isinstance(out, (list, tuple)) else [out]
        if len(given) != wanted:
            raise InvalidValueError(
                f"out has {len(given)} arrays; the outputs of {self.workload.name} are "
                f"{', '.join(self.workload.outputs)}"
            )
        return given

    def _on_device(self) -> _Loaded:
        if self._loaded is None:
            device = shared_device(self._target)
            with device.current():
                # Another thread may have been first.
                if self._loaded is None:
                    self._loaded = _Loaded.load(device, self.workload, self._program)
        return self._loaded


@define(eq=False)
class _Loaded:
    """A program on a device, with the memory that it needs beside what it is called with.

    Attributes:
        device: The device.
        workload: What it computes.
        kernels: Its kernels.
        own: Intermediate arrays, and copies of tensors that were not on the device, by name.
    """

    device: SharedDevice
    workload: Workload
    kernels: LoadedKernels
    own: dict[str, DeviceArray]

    @staticmethod
    def load(device: SharedDevice, workload: Workload, program: Any) -> _Loaded:
        names = {it.name for it in program.intermediates}
        known = {*names, *(it.name for it in workload.inputs), *workload.outputs}
        kernels = LoadedKernels.load(device.driver, program, known)
        own = {it.name: device.empty((it.bytes,), "uint8") for it in program.intermediates}
        made = _Loaded(device, workload, kernels, own)
        device.users.add(made)
        weakref.finalize(made, _unload, device, kernels).atexit = False
        return made

    def staging(self, name: str) -> DeviceArray:
        """Memory for a tensor whose values come from the host, or go there."""
        if name not in self.own:
            tensor = self.workload.tensors[name]
            self.own[name] = self.device.empty(tuple(tensor.shape), tensor.dtype)
        return self.own[name]

    def pointer_of(self, given: Given) -> int:
        """Where kernels read an input: where it is, or a copy of it."""
        if given.view is not None and given.is_usable:
            return given.view.pointer
        copy = self.staging(given.name)
        given.copy_to(self.device.driver, copy.pointer, self.device.stream)
        return copy.pointer

    def run(self, pointers: Mapping[str, int]) -> None:
        """Launch the kernels, and wait until they have ended."""
        own = {name: array.pointer for name, array in self.own.items()}
        self.kernels.launch(self.kernels.parameters({**own, **pointers}), self.device.stream)
        self.device.synchronize()


@define(eq=False)
class _Output:
    """Where an output is written, and what the caller gets.

    Attributes:
        array: Memory of ours, if any.
        given: What the caller gave to be written to.
        view: Where that lies, if on the device.
        is_kept: Whether our memory is kept for the next call, and the caller gets a copy.
    """

    array: DeviceArray | None
    given: Any
    view: Given | None
    is_kept: bool

    @staticmethod
    def of(loaded: _Loaded, name: str, given: Any, on_device: bool) -> _Output:
        tensor = loaded.workload.tensors[name]
        shape = tuple(tensor.shape)
        if given is None:
            if on_device:
                return _Output(loaded.device.empty(shape, tensor.dtype), None, None, False)
            return _Output(loaded.staging(name), None, None, True)
        # What is written to must be what the caller holds, and no contiguous copy of it.
        where = dlpack.device_of(given)
        if where is not None and where[0] != dlpack.CPU:
            held = given.detach() if hasattr(given, "detach") else given
            if not view_on(loaded.device, held).contiguous:
                raise InvalidValueError(f"the array of out for {name!r} is not contiguous")
        view = read_given(loaded.device, name, shape, tensor.dtype, given)
        if view.is_usable:
            return _Output(None, given, view, False)
        if view.view is None and not _is_writeable(given):
            raise InvalidValueError(f"the array of out for {name!r} cannot be written to")
        return _Output(loaded.staging(name), given, view, True)

    @property
    def pointer(self) -> int:
        """Where the kernels write."""
        if self.array is not None:
            return self.array.pointer
        if self.view is None or self.view.view is None:
            raise RuntimeError("an output without memory")
        return self.view.view.pointer

    def result(self, driver: CudaDriver, like: Any) -> Any:
        """What the caller gets, once the kernels have ended."""
        if self.array is None:
            return self.given
        if not self.is_kept:
            return converted(self.array, like)
        if self.given is None:
            return self.array.numpy()
        if self.view is not None and self.view.view is not None:
            driver.copy(self.view.view.pointer, self.array.pointer, self.array.bytes)
            driver.synchronize(DEFAULT_STREAM)
        else:
            np.copyto(np.asarray(self.given), self.array.numpy())
        return self.given


def _unload(device: SharedDevice, kernels: LoadedKernels) -> None:
    # After a lost context there is nothing to unload.
    with suppress(DeviceFailed), device.current():
        kernels.unload()


def _is_writeable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.flags.writeable


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[0] + second[1] and second[0] < first[0] + first[1]
