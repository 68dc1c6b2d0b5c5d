"""Calls of a plan on a CUDA device: from whose tensors, on whose stream, to which outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import define, field, frozen

from autotune.errors import InvalidValueError
from autotune.runtime.arrays import NetworkTensor
from autotune.runtime.device import shared_device, stored_type
from autotune.runtime.loaded import Caller, DeviceProgram, Given, LoadedPlan, converted
from autotune.runtime.plan import Plan, Requirement
from autotune.targets import Target

__all__ = ["DeviceCalls", "DeviceCheck"]


@frozen
class DeviceCheck:
    """A condition on the last outputs of a plan, which callers are not given.

    Attributes:
        output: Number of the output.
        requirement: What it must hold.
        label: What it is checked for, in messages.
    """

    output: int
    requirement: Requirement
    label: str


@frozen(eq=False)
class _Output:
    """Place that an output is written to.

    Attributes:
        result: What the caller has: a tensor on the device, or an array of numpy.
        pointer: Its address on the device; 0 on the host, to which it is copied in the end.
    """

    result: Any
    pointer: int


@define(eq=False)
class DeviceCalls:
    """A plan that callers run on a device, which is opened by the first call.

    Attributes:
        plan: What is computed.
        target: The device that it is for.
        noun: What the plan is called in messages: ``network``.
        label: What names of inputs are preceded by in messages.
        is_graph: Whether the kernels are launched as a graph on memory that stays, and not one by
            one on that of the caller.
        checks: Conditions on the last outputs of the plan, which callers are not given.
        loaded: It on the device; None before the first call.
    """

    plan: Plan[DeviceProgram]
    target: Target
    noun: str
    label: str = ""
    is_graph: bool = False
    checks: tuple[DeviceCheck, ...] = ()
    loaded: LoadedPlan | None = field(default=None, init=False)
    _unchecked: bool = field(default=False, init=False)

    @property
    def outputs(self) -> tuple[NetworkTensor, ...]:
        """Outputs that a call returns."""
        return self.plan.outputs[: min((it.output for it in self.checks), default=None)]

    def on_device(self) -> LoadedPlan:
        """The plan on the device, which is loaded by the first call.

        Raises:
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the device refuses it.
        """
        if self.loaded is None:
            device = shared_device(self.target)
            with device.current():
                # Another thread may have been first.
                if self.loaded is None:
                    self.loaded = LoadedPlan.load(device, self.plan)
        return self.loaded

    def read(self, caller: Caller, inputs: Sequence[Any]) -> list[Given]:
        """Read and check the inputs that a caller gave.

        Raises:
            InvalidValueError: one is missing, of another shape or type, or on another device.
        """
        wanted = self.plan.inputs
        if len(inputs) != len(wanted):
            names = ", ".join(repr(tensor.name) for tensor in wanted)
            raise InvalidValueError(f"{len(inputs)} inputs; the {self.noun} takes {names}")
        return [
            caller.read(f"{self.label}{tensor.name}", tensor.shape, tensor.dtype, value)
            for tensor, value in zip(wanted, inputs, strict=True)
        ]

    def __call__(self, inputs: Sequence[Any], out: Sequence[Any] = ()) -> list[Any]:
        """Run once.

        Given tensors of torch on the device alone, the call is begun on torch's current stream,
        and the host does not wait for it; else it has ended when this returns.

        Args:
            inputs: What the plan takes.
            out: Where to write each of the outputs; nothing for new ones.

        Returns:
            What was given for the outputs. New ones are tensors on the device where the first
            input is there (of a graph), or any of them (else), of that one's package; otherwise
            arrays of numpy as programs have them.

        Raises:
            InvalidValueError: an array is missing, of another shape or type, on another device,
                or cannot be written to; torch records, and this was not called before, or not
                with tensors of torch on the device alone; or a check does not hold.
            UnsupportedTarget: there is no such device here.
            DeviceFailed: the plan failed on the device.
        """
        device = shared_device(self.target) if self.loaded is None else self.loaded.device
        known = (*inputs, *out)
        caller = Caller.of(device, known)
        with device.current():
            is_begun = bool(known) and all(map(caller.has, known))
            is_recording = caller.is_recording
            if is_recording and (self.loaded is None or not is_begun):
                raise InvalidValueError(
                    f"a {self.noun} is recorded in a CUDA graph of torch when it has been called "
                    "before, and with tensors of the device only"
                )
            loaded = self.on_device()
            given = self.read(caller, inputs)
            like = self._like(given, inputs)
            if out:
                outputs = self._given_outputs(caller, given, out)
            else:
                outputs = [_new_output(it, caller, is_begun, like) for it in self.outputs]
            if not is_recording:
                self._check_last(loaded)
            pointers = [it.pointer for it in outputs]
            if self.is_graph and not is_recording:
                loaded.launch_graph(given, pointers, caller.stream)
            else:
                loaded.launch(given, pointers, caller.stream, is_recording=is_recording)
            self._unchecked = bool(self.checks) and not is_recording
            if not is_begun:
                device.driver.synchronize(caller.stream)
                self._check_last(loaded)
                for number, it in enumerate(outputs):
                    _fetch(loaded, number, it.result)
        is_converted = not (out or is_begun or like is None)
        return [converted(it.result, like) if is_converted else it.result for it in outputs]

    def _like(self, given: Sequence[Given], inputs: Sequence[Any]) -> Any:
        """The input that new outputs are like; None for arrays of numpy."""
        decisive = zip(given[:1] if self.is_graph else given, inputs, strict=False)
        return next((value for it, value in decisive if it.view is not None), None)

    def _given_outputs(
        self, caller: Caller, given: Sequence[Given], out: Sequence[Any]
    ) -> list[_Output]:
        """Outputs where the caller wants them, which overlap nothing of the call."""
        spans = [(it.address, it.bytes) for it in given if it.view is not None]
        found = []
        for tensor, value in zip(self.outputs, out, strict=True):
            view = caller.written(tensor.name, tensor.shape, tensor.dtype, value)
            span = view.address, view.bytes
            if view.view is not None and any(_overlap(span, other) for other in spans):
                raise InvalidValueError(
                    f"the array of out for {tensor.name!r} overlaps another one"
                )
            spans += [span] if view.view is not None else []
            found.append(_Output(value, view.address))
        return found

    def _check_last(self, loaded: LoadedPlan) -> None:
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


def _new_output(tensor: NetworkTensor, caller: Caller, is_begun: bool, like: Any) -> _Output:
    if is_begun:
        made = caller.empty(tensor.shape, tensor.dtype)
        return _Output(made, int(made.data_ptr()))
    if like is None:
        return _Output(np.empty(tensor.shape, stored_type(tensor.dtype)), 0)
    array = caller.device.empty(tensor.shape, tensor.dtype)
    return _Output(array, array.pointer)


def _fetch(loaded: LoadedPlan, number: int, array: Any) -> None:
    """Copy an output to where it is wanted on the host."""
    if isinstance(array, np.ndarray) and array.nbytes:
        copy = np.ascontiguousarray(array)
        loaded.device.driver.download(copy, loaded.output(number))
        if copy is not array:
            np.copyto(array, copy)


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[0] + second[1] and second[0] < first[0] + first[1]
