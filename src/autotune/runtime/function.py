"""Tuned programs as Python callables: on numpy arrays, and on tensors of a CUDA device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import (
    ALIGNMENT,
    CudaExecutable,
    Executable,
    aligned_empty,
    host_array,
)
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Tensor, Workload
from autotune.runtime.arrays import NetworkTensor
from autotune.runtime.calling import DeviceCalls
from autotune.runtime.loaded import DeviceProgram
from autotune.runtime.plan import Call, Place, Plan
from autotune.targets import Target

__all__ = ["DeviceFunction", "TunedFunction"]

Array = NDArray[Any]


class TunedFunction:
    """A compiled program. Call it with the workload's inputs, in order or by name.

    Returns the output array, or a tuple of arrays when the workload has several outputs. Inputs
    are numpy arrays (or what ``numpy.asarray`` takes without changing the type, or tensors of
    torch) of exactly the workload's shapes and types. They are never changed; those that are
    contiguous, in this machine's byte order and begin at a multiple of
    ``autotune.backends.ALIGNMENT`` bytes are read where they lie, and others copied.
    Several threads may call it at once.
    """

    def __init__(self, workload: Workload, executable: Executable) -> None:
        self.workload = workload
        self.executable = executable
        # Copies of inputs are kept by each thread: to touch new memory takes longer than to copy.
        self._local = threading.local()

    def __repr__(self) -> str:
        inputs = ", ".join(map(_signature, self.workload.inputs))
        tensors = self.workload.tensors
        outputs = ", ".join(_signature(tensors[name]) for name in self.workload.outputs)
        return f"<tuned {self.workload.name}({inputs}) -> {outputs}>"

    def __call__(
        self, *arrays: Array, out: Array | Sequence[Array] | None = None, **named: Array
    ) -> Array | tuple[Array, ...]:
        """Run once.

        Args:
            arrays: Inputs in the workload's order.
            out: Where to write the output, or the outputs in order: aligned arrays, such as an
                earlier call returned. New ones where it is absent.
            named: Inputs by name.

        Raises:
            InvalidValueError: an array is missing, unknown, of the wrong shape or type, or cannot
                be written to.
        """
        given = zip(self.workload.inputs, self._arguments(arrays, named), strict=True)
        inputs = [_checked(tensor, value) for tensor, value in given]
        outputs = self._outputs(out)
        if any(np.may_share_memory(array, output) for array in inputs for output in outputs):
            raise InvalidValueError("an array of out shares memory with an input")
        placed = [self._placed(*pair) for pair in zip(self.workload.inputs, inputs, strict=True)]
        self.executable.bind(placed, outputs).run()
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _outputs(self, out: Array | Sequence[Array] | None) -> list[Array]:
        if out is not None:
            return [out] if isinstance(out, np.ndarray) else list(out)
        tensors = (self.workload.tensors[name] for name in self.workload.outputs)
        return [aligned_empty(tensor.shape, tensor.element.dtype) for tensor in tensors]

    def _placed(self, tensor: Tensor, array: Array) -> Array:
        """An input where programs can read it: where it is, or in this thread's copy."""
        if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
            return array
        copies: dict[str, Array] = self._local.__dict__.setdefault("copies", {})
        if tensor.name not in copies:
            copies[tensor.name] = aligned_empty(tensor.shape, tensor.element.dtype)
        np.copyto(copies[tensor.name], array)
        return copies[tensor.name]

    def _arguments(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Arguments for each input, in the workload's order."""
        inputs = self.workload.inputs
        expected = ", ".join(map(_signature, inputs))
        if len(arrays) > len(inputs):
            raise InvalidValueError(
                f"{self.workload.name} takes {len(inputs)} arrays ({expected}), got {len(arrays)}"
            )
        given = dict(zip((tensor.name for tensor in inputs), arrays, strict=False))
        for name, array in named.items():
            if name in given or name not in {tensor.name for tensor in inputs}:
                problem = "is given twice" if name in given else "is not an input"
                raise InvalidValueError(f"{name!r} {problem}; the inputs are {expected}")
            given[name] = array
        missing = [tensor.name for tensor in inputs if tensor.name not in given]
        if missing:
            raise InvalidValueError(
                f"{self.workload.name} lacks {', '.join(missing)}; the inputs are {expected}"
            )
        return [given[tensor.name] for tensor in inputs]


def _checked(tensor: Tensor, value: Any) -> Array:
    array = host_array(value)
    if array.shape != tensor.shape or array.dtype != tensor.element.dtype:
        raise InvalidValueError(
            f"input {tensor.name!r} must be {tensor.dtype} of shape {list(tensor.shape)}, "
            f"got {array.dtype.name} of shape {list(array.shape)}"
        )
    return array


def _signature(tensor: Tensor) -> str:
    return f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


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
        self._calls = DeviceCalls(_plan_of(workload, executable), target, "program")

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
        given = () if out is None else tuple(out) if isinstance(out, (list, tuple)) else (out,)
        if out is not None and len(given) != len(self.workload.outputs):
            raise InvalidValueError(
                f"out has {len(given)} arrays; the outputs of {self.workload.name} are "
                f"{', '.join(self.workload.outputs)}"
            )
        found = self._calls(values, given)
        return found[0] if len(found) == 1 else tuple(found)


def _plan_of(workload: Workload, executable: CudaExecutable) -> Plan[DeviceProgram]:
    """A network of one call."""
    tensors = workload.tensors
    given = [NetworkTensor(it.name, tuple(it.shape), it.dtype) for it in workload.inputs]
    made = [
        NetworkTensor(name, tuple(tensors[name].shape), tensors[name].dtype)
        for name in workload.outputs
    ]
    places = [
        *(Place("input", number) for number in range(len(given))),
        *(Place("output", number) for number in range(len(made))),
    ]
    program = DeviceProgram(executable.program, tuple(it.name for it in (*given, *made)))
    return Plan(
        {workload.name: program},
        {workload.name: workload.name},
        (Call(workload.name, tuple(places)),),
        constants=(),
        packings=(),
        arena_bytes=0,
        inputs=tuple(given),
        outputs=tuple(made),
    )
