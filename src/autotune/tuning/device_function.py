"""A tuned program of CUDA kernels as a Python callable on tensors of the device."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
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
from autotune.measure.devices.torch_caller import TorchCaller
from autotune.targets import CudaDriver, CudaError, Target
from autotune.tuning.tuned_function import TunedFunction

__all__ = ["DeviceFunction"]


class DeviceFunction(TunedFunction):
    """A program for a CUDA device. Call it with the workload's inputs, in order or by name.

    Inputs are tensors on the device (of torch, or with DLPack, as those of cupy and jax have it),
    which are read where they lie, or arrays of the host, which are copied. Where an input is on
    the device, outputs are new tensors there, of that input's package; else numpy arrays. What
    others have begun on an input is waited for. The device is opened by the first call. Several
    threads may call it; its calls follow one another, on whatever streams they are begun.

    Given tensors of torch on the device alone, a call is to torch like an operator of its own: it
    is begun on torch's current stream, and the host does not wait for it. What goes wrong on the
    device is then the error of whatever waits next. Else the program has ended when a call
    returns.

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
                another device, or cannot be written to; or torch records a CUDA graph, and this
                was not called before, or not with tensors of torch on the device alone.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the program failed on the device.
        """
        values = self._arguments(arrays, named)
        given = self._given_out(out)
        device = shared_device(self._target) if self._loaded is None else self._loaded.device
        known = [value for value in (*values, *given) if value is not None]
        caller = TorchCaller.of(device, known)
        with device.current():
            is_of_torch = caller is not None and all(map(caller.has, known))
            is_recording = caller is not None and caller.is_recording
            if is_recording and (self._loaded is None or not is_of_torch):
                raise InvalidValueError(
                    "a program is recorded in a CUDA graph of torch when it has been called "
                    "before, and with tensors of the device only"
                )
            loaded = self._on_device()
            if caller is not None and is_of_torch:
                found = _begun(loaded, caller, values, given)
            else:
                found = _done(loaded, caller, values, given)
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
        done: An event: when the last call has ended.
    """

    device: SharedDevice
    workload: Workload
    kernels: LoadedKernels
    own: dict[str, DeviceArray]
    done: int

    @staticmethod
    def load(device: SharedDevice, workload: Workload, program: Any) -> _Loaded:
        driver = device.driver
        names = {it.name for it in program.intermediates}
        known = {*names, *(it.name for it in workload.inputs), *workload.outputs}
        kernels = LoadedKernels.load(driver, program, known)
        with ExitStack() as undo:
            undo.callback(kernels.unload)
            own = {it.name: device.empty((it.bytes,), "uint8") for it in program.intermediates}
            done = driver.create_event(timed=False)
            undo.pop_all()
        made = _Loaded(device, workload, kernels, own, done)
        device.users.add(made)
        weakref.finalize(made, _unload, device, kernels, own, done).atexit = False
        return made

    def staging(self, name: str) -> DeviceArray:
        """Memory for a tensor whose values come from the host, or go there."""
        if name not in self.own:
            tensor = self.workload.tensors[name]
            self.own[name] = self.device.empty(tuple(tensor.shape), tensor.dtype)
        return self.own[name]

    def pointer_of(self, given: Given, stream: int) -> int:
        """Address from which kernels read an input: its own, or that of a copy of it."""
        if given.view is not None and given.is_usable:
            return given.view.pointer
        copy = self.staging(given.name)
        given.copy_to(self.device.driver, copy.pointer, stream)
        return copy.pointer

    def launch(self, pointers: Mapping[str, int], stream: int) -> None:
        """Launch the kernels."""
        own = {name: array.pointer for name, array in self.own.items()}
        self.kernels.launch(self.kernels.parameters({**own, **pointers}), stream)

    @contextmanager
    def after_others(self, stream: int) -> Iterator[None]:
        """Order the work begun inside after earlier calls, and before those that follow."""
        driver = self.device.driver
        driver.wait(stream, self.done)
        try:
            yield
        finally:
            # Also where something is refused half way: what was begun goes on.
            with suppress(CudaError):
                driver.record(self.done, stream)


def _begun(
    loaded: _Loaded, caller: TorchCaller, values: Sequence[Any], given: Sequence[Any]
) -> list[Any]:
    """The outputs of a call as torch's tensors, which are written when its stream comes there.

    Where kernels cannot read or write a tensor they have a copy, whose memory torch gives to
    nothing that comes before.
    """
    driver, stream, tensors = loaded.device.driver, caller.stream, loaded.workload.tensors
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    inputs = {
        it.name: caller.read(it.name, shapes[it.name], it.dtype, value)
        for it, value in zip(loaded.workload.inputs, values, strict=True)
    }
    outputs, found = {}, []
    for name, value in zip(loaded.workload.outputs, given, strict=True):
        dtype = tensors[name].dtype
        if value is None:
            value = caller.empty(shapes[name], dtype)
        found.append(value)
        outputs[name] = caller.written(name, shapes[name], dtype, value)
    views = {name: it.address for name, it in {**inputs, **outputs}.items()}
    _check_overlaps(loaded.workload, views)
    copies = {
        name: caller.empty(shapes[name], it.dtype)
        for name, it in {**inputs, **outputs}.items()
        if not it.is_usable
    }
    pointers = {**views, **{name: int(copy.data_ptr()) for name, copy in copies.items()}}
    # In a graph that is recorded nothing can wait for what is not.
    with nullcontext() if caller.is_recording else loaded.after_others(stream):
        for name in copies.keys() & inputs.keys():
            inputs[name].copy_to(driver, pointers[name], stream)
        loaded.launch(pointers, stream)
        for name in copies.keys() & outputs.keys():
            driver.begin_copy(views[name], pointers[name], tensors[name].bytes, stream)
    return found


def _done(
    loaded: _Loaded, caller: TorchCaller | None, values: Sequence[Any], given: Sequence[Any]
) -> list[Any]:
    """The outputs of a call that has ended."""
    device, workload = loaded.device, loaded.workload
    stream = device.stream if caller is None else caller.stream
    inputs = [
        _read(device, caller, it.name, tuple(it.shape), it.dtype, value)
        for it, value in zip(workload.inputs, values, strict=True)
    ]
    like = next((v for v, it in zip(values, inputs, strict=True) if it.view), None)
    outputs = {
        name: _Output.of(loaded, caller, name, value, like is not None)
        for name, value in zip(workload.outputs, given, strict=True)
    }
    with loaded.after_others(stream):
        pointers = {it.name: loaded.pointer_of(it, stream) for it in inputs}
        pointers |= {name: output.pointer for name, output in outputs.items()}
        _check_overlaps(workload, pointers)
        loaded.launch(pointers, stream)
    device.driver.synchronize(stream)
    return [output.result(device.driver, like) for output in outputs.values()]


def _read(
    device: SharedDevice,
    caller: TorchCaller | None,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    value: Any,
) -> Given:
    """Read a caller's tensors, and the streams that others work on them with."""
    if caller is not None and caller.has(value):
        return caller.read(name, shape, dtype, value)
    return read_given(device, name, shape, dtype, value, None if caller is None else caller.stream)


@define(eq=False)
class _Output:
    """Place that an output is written to, and what the caller gets.

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
    def of(
        loaded: _Loaded, caller: TorchCaller | None, name: str, given: Any, on_device: bool
    ) -> _Output:
        tensor = loaded.workload.tensors[name]
        shape = tuple(tensor.shape)
        if given is None:
            if on_device:
                return _Output(loaded.device.empty(shape, tensor.dtype), None, None, False)
            return _Output(loaded.staging(name), None, None, True)
        view = _written(loaded.device, caller, name, shape, tensor.dtype, given)
        if view.is_usable:
            return _Output(None, given, view, False)
        if view.view is None and not _is_writeable(given):
            raise InvalidValueError(f"the array of out for {name!r} cannot be written to")
        return _Output(loaded.staging(name), given, view, True)

    @property
    def pointer(self) -> int:
        """Address that the kernels write to."""
        if self.array is not None:
            return self.array.pointer
        if self.view is None:
            raise RuntimeError("an output without memory")
        return self.view.address

    def result(self, driver: CudaDriver, like: Any) -> Any:
        """Result for the caller, once the kernels have ended."""
        if self.array is None:
            return self.given
        if not self.is_kept:
            return converted(self.array, like)
        if self.given is None:
            return self.array.numpy()
        if self.view is not None and self.view.view is not None:
            driver.copy(self.view.address, self.array.pointer, self.array.bytes)
            driver.synchronize(DEFAULT_STREAM)
        else:
            np.copyto(np.asarray(self.given), self.array.numpy())
        return self.given


def _written(
    device: SharedDevice,
    caller: TorchCaller | None,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    value: Any,
) -> Given:
    """Place that an output is to be written to, or would be copied to."""
    if caller is not None and caller.has(value):
        return caller.written(name, shape, dtype, value)
    stream = None if caller is None else caller.stream
    where = dlpack.device_of(value)
    # What is written to must be what the caller holds, and no contiguous copy of it.
    on_device = where is not None and where[0] != dlpack.CPU
    if on_device and not view_on(device, value, stream).contiguous:
        raise InvalidValueError(f"the array of out for {name!r} is not contiguous")
    return read_given(device, name, shape, dtype, value, stream)


def _unload(
    device: SharedDevice, kernels: LoadedKernels, own: dict[str, DeviceArray], done: int
) -> None:
    # After a lost context there is nothing to unload. Until the last call has ended its memory is
    # kept, too.
    with suppress(DeviceFailed), device.current() as driver:
        driver.await_event(done)
        driver.destroy_event(done)
        kernels.unload()
        own.clear()


def _is_writeable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.flags.writeable


def _check_overlaps(workload: Workload, addresses: Mapping[str, int]) -> None:
    """Refuse outputs that are written over other arrays of the call."""
    spans = [(addresses[it.name], workload.tensors[it.name].bytes) for it in workload.inputs]
    for name in workload.outputs:
        span = addresses[name], workload.tensors[name].bytes
        if any(_overlap(span, other) for other in spans):
            raise InvalidValueError(f"the array of out for {name!r} overlaps another one")
        spans.append(span)


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[0] + second[1] and second[0] < first[0] + first[1]
