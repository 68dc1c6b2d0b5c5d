"""Networks on a CUDA device: what is called, saved, and opened again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autotune.backends import dlpack
from autotune.errors import UnsupportedTarget
from autotune.runtime.arrays import (
    NetworkTensor,
    as_numpy,
    handed_back,
    stored_array,
)
from autotune.runtime.calling import DeviceCalls, DeviceCheck
from autotune.runtime.file import read_file, write_file
from autotune.runtime.given import Caller
from autotune.runtime.interface import CompiledNetwork
from autotune.runtime.loaded import DeviceProgram, LoadedPlan, device_steps
from autotune.runtime.plan import Plan
from autotune.targets import CudaError, Target, load_driver, matching_device

__all__ = ["CudaNetwork", "open_cuda_network"]

_PROFILED = 9
_BFLOAT16 = "bfloat16"
_REMARK = (
    "it runs on {target} with the driver alone: autotune.runtime.network.open_cuda_network(PATH)"
)


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
        checks: Conditions on the last outputs of the plan, which callers are not given.

    Raises:
        UnsupportedWorkload: a step cannot be made on a device; names it.
    """

    def __init__(
        self, plan: Plan[DeviceProgram], target: Target, checks: Sequence[DeviceCheck] = ()
    ) -> None:
        device_steps(plan)
        self._calls = DeviceCalls(
            plan, target, "network", "input ", is_graph=True, checks=tuple(checks)
        )

    @property
    def plan(self) -> Plan[DeviceProgram]:
        """The plan that calls carry out."""
        return self._calls.plan

    @property
    def checks(self) -> tuple[DeviceCheck, ...]:
        """Conditions on the last outputs of the plan, which callers are not given."""
        return self._calls.checks

    @property
    def outputs(self) -> tuple[NetworkTensor, ...]:
        """Outputs that a call returns."""
        return self._calls.outputs

    @property
    def lacks(self) -> str:
        """Reason for which it cannot be called: no driver, or no such device; "" where it can."""
        try:
            matching_device(self._calls.target, load_driver())
        except UnsupportedTarget as error:
            return str(error)
        return ""

    @property
    def device_index(self) -> int:
        """Number of the device that it runs on.

        Raises:
            UnsupportedTarget: there is no such device here.
        """
        return matching_device(self._calls.target, load_driver()).index

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Raises:
            InvalidValueError: an input is missing, of another shape or type, or on another device;
                or it holds what leads to a division by zero or an index out of range.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the network failed on the device.
        """
        like = inputs[0] if inputs else None
        return tuple(
            handed_back(value, tensor.dtype, like) if isinstance(value, np.ndarray) else value
            for tensor, value in zip(self.outputs, self._calls(self._plain(inputs)), strict=True)
        )

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write machine code and weights as one file, which needs no compiler to run.

        There need not be a device here.

        Raises:
            InvalidValueError: the file cannot be written.
        """
        write_file(self.plan, self._calls.target, self.checks, Path(path))
        return (_REMARK.format(target=self._calls.target.name),)

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds that the device takes for each of ``repeats`` calls, after one not counted.

        Inputs are in place: what it takes to copy them and the outputs is no part of it.
        """
        loaded = self._calls.on_device()
        with loaded.device.current():
            self._place(loaded, inputs)
            return tuple(loaded.timed() for _ in range(repeats))

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task.

        The calls of a task are launched as a graph of their own; of several times the median
        counts. Their operands are what the last inference left, in a warm cache where they fit.
        """
        loaded = self._calls.on_device()
        with loaded.device.current() as driver:
            self._place(loaded, inputs)
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

    def _place(self, loaded: LoadedPlan, inputs: Sequence[Any]) -> None:
        caller = Caller(loaded.device, loaded.device.stream)
        loaded.place(self._calls.read(caller, self._plain(inputs)))

    def _plain(self, inputs: Sequence[Any]) -> list[Any]:
        """Read the arrays of a caller, bfloat16 on the host as the bits that a device is given."""
        found = list(inputs)
        for number, tensor in enumerate(self.plan.inputs[: len(found)]):
            where = dlpack.device_of(found[number]) if tensor.dtype == _BFLOAT16 else None
            if tensor.dtype == _BFLOAT16 and (where is None or where[0] == dlpack.CPU):
                found[number] = stored_array(as_numpy(found[number]), _BFLOAT16)
        return found


def open_cuda_network(path: Path | str) -> CudaNetwork:
    """A network that :meth:`CudaNetwork.save` wrote; the device is opened by the first call.

    Raises:
        InvalidValueError: the file cannot be read, is something else, or of another version.
    """
    return CudaNetwork(*read_file(Path(path)))
