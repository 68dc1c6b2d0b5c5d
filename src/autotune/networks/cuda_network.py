"""Networks that run on a CUDA device: one CUDA graph of all kernels, over memory that stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autotune.backends import dlpack
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.measure.devices.shared import (
    Given,
    SharedDevice,
    converted,
    read_given,
    shared_device,
)
from autotune.measure.devices.torch_caller import TorchCaller
from autotune.networks.arrays import as_numpy, handed_back, stored_array
from autotune.networks.cuda_loaded import LoadedNetwork
from autotune.networks.cuda_plan import DeviceCheck, DeviceProgram
from autotune.networks.frontend import CompiledNetwork, NetworkTensor
from autotune.networks.plan.plan import Plan
from autotune.targets import CudaError, Target, load_driver, matching_device

__all__ = ["CudaNetwork"]

_PROFILED = 9
_BFLOAT16 = "bfloat16"

Save = Callable[[Path], tuple[str, ...]]


class CudaNetwork(CompiledNetwork):
    """A network on a CUDA device, which is opened by the first call.

    Inputs are tensors on the device that have DLPack (of torch, cupy, jax), or arrays of the host,
    which are copied. Outputs are new tensors of the first input's package, and on the device if
    that is. What others have begun on an input is waited for. Weights and intermediate values stay
    on the device.

    Given tensors of torch on the device alone, a call is to torch like an operator of its own: it
    is begun on torch's current stream, and the host does not wait for it. What goes wrong on the
    device is then the error of whatever waits next. Else the network has ended when a call
    returns. An index that is out of range is an error of the call, or where the host does not wait
    of the next one; nothing is read out of range meanwhile.

    Args:
        plan: What is computed.
        target: The device that it is for.
        save: Writes what runs elsewhere.
        checks: Conditions on the last outputs of the plan, which callers are not given.
    """

    def __init__(
        self,
        plan: Plan[DeviceProgram],
        target: Target,
        save: Save,
        checks: Sequence[DeviceCheck] = (),
    ) -> None:
        self.plan = plan
        self.checks = tuple(checks)
        self._target = target
        self._save = save
        self._loaded: LoadedNetwork | None = None
        self._unchecked = False

    @property
    def outputs(self) -> tuple[NetworkTensor, ...]:
        """Outputs that a call returns."""
        return self.plan.outputs[: min((it.output for it in self.checks), default=None)]

    @property
    def lacks(self) -> str:
        """Why it cannot be called here: no driver, or no such device; "" where it can."""
        try:
            matching_device(self._target, load_driver())
        except UnsupportedTarget as error:
            return str(error)
        return ""

    @property
    def device_index(self) -> int:
        """Number of the device that it runs on.

        Raises:
            UnsupportedTarget: there is no such device here.
        """
        return matching_device(self._target, load_driver()).index

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Raises:
            InvalidValueError: an input is missing, of another shape or type, or on another device;
                or it holds what leads to a division by zero or an index out of range.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the network failed on the device.
        """
        device = shared_device(self._target) if self._loaded is None else self._loaded.device
        caller = TorchCaller.of(device, inputs)
        with device.current():
            is_of_torch = caller is not None and all(map(caller.has, inputs))
            is_recording = caller is not None and caller.is_recording
            if is_recording and (self._loaded is None or not is_of_torch):
                raise InvalidValueError(
                    "a network is recorded in a CUDA graph of torch when it has been called "
                    "before, and with tensors of the device only"
                )
            loaded = self._on_device()
            given = self._read(device, inputs, caller)
            if not is_recording:
                self._check_last(loaded)
            if caller is not None and is_of_torch:
                return self._begun(loaded, given, caller, is_recording)
            stream = device.stream if caller is None else caller.stream
            found = [device.empty(it.shape, it.dtype) for it in self.outputs]
            loaded.call(given, [array.pointer for array in found], stream)
            self._unchecked = bool(self.checks)
            device.driver.synchronize(stream)
            self._check_last(loaded)
        like = inputs[0] if inputs else None
        if given and given[0].view is not None:
            return tuple(converted(array, like) for array in found)
        return tuple(handed_back(array.numpy(), array.dtype, like) for array in found)

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write machine code and weights as one file, which needs no compiler to run.

        There need not be a device here.

        Raises:
            InvalidValueError: the file cannot be written.
        """
        return self._save(Path(path))

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds that the device takes for each of ``repeats`` calls, after one not counted.

        Inputs are in place: what it takes to copy them and the outputs is no part of it.
        """
        loaded = self._on_device()
        with loaded.device.current():
            loaded.place(self._read(loaded.device, inputs))
            loaded.run()
            return tuple(loaded.timed() for _ in range(repeats))

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task.

        The calls of a task are launched as a graph of their own; of several times the median
        counts. Their operands are what the last inference left, in a warm cache where they fit.
        """
        loaded = self._on_device()
        with loaded.device.current() as driver:
            loaded.place(self._read(loaded.device, inputs))
            loaded.run()
            found = {}
            for task in self.plan.task_names:
                graph = loaded.capture(loaded.steps_of(task))
                try:
                    loaded.timed(graph)
                    found[task] = median(loaded.timed(graph) for _ in range(_PROFILED))
                finally:
                    with suppress(CudaError):
                        driver.destroy_graph(graph)
            return found

    def _read(
        self, device: SharedDevice, inputs: Sequence[Any], caller: TorchCaller | None = None
    ) -> list[Given]:
        """The inputs, on whose stream those are that others have begun anything on."""
        wanted = self.plan.inputs
        if len(inputs) != len(wanted):
            names = ", ".join(repr(tensor.name) for tensor in wanted)
            raise InvalidValueError(f"{len(inputs)} inputs; the network takes {names}")
        found = []
        for tensor, value in zip(wanted, inputs, strict=True):
            name = f"input {tensor.name}"
            if caller is not None and caller.has(value):
                found.append(caller.read(name, tensor.shape, tensor.dtype, value))
            else:
                stream = None if caller is None else caller.stream
                held = _plain(tensor, value)
                found.append(read_given(device, name, tensor.shape, tensor.dtype, held, stream))
        return found

    def _begun(
        self,
        loaded: LoadedNetwork,
        given: Sequence[Given],
        caller: TorchCaller,
        is_recording: bool,
    ) -> tuple[Any, ...]:
        """The outputs of a call as torch's tensors, written when its stream comes there."""
        found = [caller.empty(it.shape, it.dtype) for it in self.outputs]
        begin = loaded.record if is_recording else loaded.call
        begin(given, [int(tensor.data_ptr()) for tensor in found], caller.stream)
        self._unchecked = bool(self.checks) and not is_recording
        return tuple(found)

    def _check_last(self, loaded: LoadedNetwork) -> None:
        """Look at what the last call found, if nobody has yet."""
        if not self._unchecked:
            return
        self._unchecked = False
        loaded.await_last()
        for check in self.checks:
            tensor = self.plan.outputs[check.output]
            array = np.empty(tensor.shape, tensor.dtype)
            loaded.device.driver.download(array, loaded.output(check.output))
            check.requirement.check(array, check.label)

    def _on_device(self) -> LoadedNetwork:
        if self._loaded is None:
            device = shared_device(self._target)
            with device.current():
                # Another thread may have been first.
                if self._loaded is None:
                    self._loaded = LoadedNetwork.load(device, self.plan)
        return self._loaded


def _plain(tensor: NetworkTensor, value: Any) -> Any:
    """Convert what a caller gave; bfloat16 on the host to the bits that the device is given."""
    where = dlpack.device_of(value)
    if tensor.dtype != _BFLOAT16 or (where is not None and where[0] != dlpack.CPU):
        return value
    return stored_array(as_numpy(value), _BFLOAT16)
