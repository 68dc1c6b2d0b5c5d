"""Building a network from records; what it computes, writes and keeps, and how long it takes."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import AutotuneError, InvalidValueError
from autotune.ir.element_types import element_type
from autotune.networks.frontend import CompiledNetwork, NetworkProgram, NetworkTensor
from autotune.plugins.calling import Calling
from autotune.runtime.arrays import as_numpy, numpy_type
from autotune.store.records import Record
from autotune.targets import TF32_EPS, Target, allows_tf32

__all__ = [
    "NAIVE_FLOP_PER_SECOND",
    "TIMING_SECONDS",
    "Timing",
    "WrongOutputs",
    "build_network",
    "check_network",
    "compare_outputs",
    "copied_inputs",
    "saving_seconds",
    "time_network",
]

REPEATS = 10
_LEAST_SECONDS = 0.5
_MOST_REPEATS = 1000
TIMING_SECONDS = 2.0
"""Time that timing a network takes that is not slow."""

NAIVE_FLOP_PER_SECOND = 1e9
"""About what a program without a schedule does: one that was not timed is counted so."""

_SAVED_BYTES_PER_SECOND = 6e7
"""Speed of writing weights into a shared library on processors that nothing else uses: the
compiler makes an object of them, which the linker copies."""


class WrongOutputs(AutotuneError):
    """A network computes something else than the model that it was made from."""


@frozen
class Timing:
    """Latency of a network.

    Attributes:
        latency: Median seconds of an inference.
        fastest: Seconds of the fastest one.
        calls: How many were timed.
        tasks: Seconds of all calls of a task in one inference, by its name in the network.
    """

    latency: float
    fastest: float
    calls: int
    tasks: Mapping[str, float]


def build_network(
    network: NetworkProgram, chosen: Mapping[str, Record | None], target: Target, threads: int
) -> CompiledNetwork:
    """Compile a network; see :meth:`autotune.networks.NetworkProgram.build`.

    What is returned writes the inputs that the model writes, and keeps its state.

    Raises:
        AutotuneError: as there.
        PluginError: the frontend fails in another way.
    """
    with Calling(f"network {network.name!r}", "in build()", timed=False):
        built = network.build(chosen, target, threads)
        return WritingNetwork(built, network) if network.writes else built


def check_network(
    network: NetworkProgram,
    compiled: CompiledNetwork,
    inputs: Sequence[Any] | None = None,
    target: Target | None = None,
) -> list[Difference]:
    """Compare what a network computes with what its model does, in float32 if it was converted.

    Args:
        network: What was compiled.
        compiled: The network.
        inputs: What both are called with; by default :meth:`NetworkProgram.check_inputs`.
        target: What the network was tuned for, if that has a part in how it may round: with TF32
            allowed, outputs of float32 are held to its precision. Without one they are not.

    Returns:
        The difference of each output; none where the model cannot be run here.

    Raises:
        WrongOutputs: an output is not the model's; names it.
    """
    with Calling(f"network {network.name!r}", "on a call", timed=False):
        given = network.check_inputs() if inputs is None else tuple(inputs)
        wanted = _wanted(network, given)
        if wanted is None:
            return []
        own = copied_inputs(given, network.writes)
        if network.state:
            compiled.reset()
        found = with_written(network, own, compiled(*own), compiled)
        if network.state:
            compiled.reset()
    tensors = network.outputs
    if network.wide is not None:
        # What the model was before it was converted says what it returns alone.
        written = len(network.writes)
        found, tensors = found[written:], tensors[written:]
    differences = compare_outputs(tensors, wanted, found, target, network.eps)
    wrong = [difference for difference in differences if not difference.ok]
    if wrong:
        raise WrongOutputs(
            f"{network.name} computes something else after import: {wrong[0]}, compared with "
            f"{network.yardstick}; {network.suspect(given, wanted, found)}"
        )
    return differences


def _wanted(network: NetworkProgram, given: Sequence[Any]) -> Sequence[Any] | None:
    """Outputs of the model; of one that was converted in float32, rounded once."""
    if network.wide is None:
        return network.reference(given)
    found, outputs = network.wide(given), network.outputs[len(network.writes) :]
    if len(found) != len(outputs):
        return found
    # What is too large for float16 is infinite, and a network that says so is right.
    with np.errstate(over="ignore"):
        return [
            it.astype(numpy_type(tensor.dtype)) for it, tensor in zip(found, outputs, strict=True)
        ]


def saving_seconds(weight_bytes: int) -> float:
    """About how long it takes to write so many bytes of weights on this machine, as busy as it is.

    Programs that wait for a processor share it with the compiler.
    """
    waiting = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return max(1.0, waiting) * weight_bytes / _SAVED_BYTES_PER_SECOND


def time_network(
    network: NetworkProgram,
    compiled: CompiledNetwork,
    inputs: Sequence[Any] | None = None,
    most_seconds: float = math.inf,
) -> Timing:
    """Time a network, whole and by task.

    Args:
        network: What was compiled.
        compiled: The network.
        inputs: What it is called with; by default the example inputs.
        most_seconds: About how long that may take; there is one timed call at least.
    """
    given = network.example_inputs() if inputs is None else tuple(inputs)
    with Calling(f"network {network.name!r}", "while it was timed", timed=False):
        seconds = compiled.time_calls(given, 1)
        needed = round(_LEAST_SECONDS / max(seconds[0], 1e-9))
        affordable = max(1.0, most_seconds / max(seconds[0], 1e-9))
        repeats = int(min(max(REPEATS, needed), affordable, _MOST_REPEATS))
        # One that is all there is time for was timed already.
        if repeats > 1:
            seconds = compiled.time_calls(given, repeats)
        tasks = compiled.profile(given)
    if len(seconds) != repeats:
        raise InvalidValueError(f"{network.name}: {len(seconds)} calls of {repeats} were timed")
    return Timing(statistics.median(seconds), min(seconds), len(seconds), dict(tasks))


class WritingNetwork(CompiledNetwork):
    """A network whose first outputs are written into inputs or kept, and the others returned.

    Calls of one that keeps some wait for each other.

    Args:
        network: What computes them; it changes no input itself, and takes the state behind the
            others.
        program: What it was made from.
    """

    def __init__(self, network: CompiledNetwork, program: NetworkProgram) -> None:
        names = [tensor.name for tensor in program.inputs]
        self._network = network
        self._names = program.writes
        self._begins = program.state
        self._writes = {name: names.index(name) for name in program.writes if name in names}
        self._state = dict(self._begins)
        self._lock, self._process = Lock(), os.getpid()

    @property
    def lacks(self) -> str:
        """Reason for which its outputs cannot be computed here; "" where they can."""
        return self._network.lacks

    @property
    def state(self) -> dict[str, Any]:
        """Copies of what it keeps."""
        return {name: np.array(as_numpy(it)) for name, it in self._state.items()}

    def reset(self) -> None:
        """Begin again with the state of the model."""
        with self._alone():
            self._state = dict(self._begins)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once, write inputs in place, and keep the state.

        Raises:
            InvalidValueError: an input is missing, or of another shape or type, or one that is
                written cannot be.
        """
        written = [(name, at) for name, at in self._writes.items() if at < len(inputs)]
        for name, at in written:
            _check_writeable(name, inputs[at])
        with self._alone():
            found = self._network(*inputs, *self._state.values())
            new = dict(zip(self._names, found, strict=False))
            self._state = {name: new[name] for name in self._state}
        for name, at in written:
            _write(inputs[at], new[name])
        return tuple(found[len(self._names) :])

    def _alone(self) -> AbstractContextManager[Any]:
        """Lock that holds up other calls, where there is a state."""
        if not self._state:
            return nullcontext()
        if self._process != os.getpid():
            # The thread that had it is not in a forked child.
            self._lock, self._process = Lock(), os.getpid()
        return self._lock

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write what runs elsewhere: there the new values of written inputs are outputs."""
        lines = self._network.save(path)
        state = () if self._network.saves_state else tuple(self._begins)
        if state:
            names = ", ".join(map(repr, state))
            lines = (*lines, f"{path}: its last inputs are {names}, which the model holds")
        if self._writes or state:
            names = ", ".join(repr(it) for it in self._names if it in self._writes or it in state)
            said = f"the new values of {names}, which the model writes, are its first outputs"
            lines = (*lines, f"{path}: {said}")
        return lines

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, which leave inputs and state as they are."""
        return self._network.time_calls([*inputs, *self._state.values()], repeats)

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task."""
        return self._network.profile([*inputs, *self._state.values()])


def copied_inputs(inputs: Sequence[Any], writes: Sequence[str]) -> list[Any]:
    """Inputs that a network may write without changing those that are given."""
    return [np.array(as_numpy(value)) for value in inputs] if writes else list(inputs)


def with_written(
    program: NetworkProgram,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    compiled: CompiledNetwork,
) -> list[Any]:
    """The values of written inputs and of the state after a call, and what it returned."""
    by_name = {it.name: value for it, value in zip(program.inputs, inputs, strict=True)}
    if program.state:
        by_name |= compiled.state
    return [*(by_name[name] for name in program.writes), *outputs]


def _check_writeable(name: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            return
        problem = "is read-only"
    elif hasattr(value, "copy_"):
        if not getattr(value, "requires_grad", False):
            return
        problem = "requires a gradient"
    else:
        problem = f"is of type {type(value).__name__}"
    raise InvalidValueError(
        f"input {name!r} {problem}, and the network writes it as its model does: give a numpy "
        "array that can be written, or a tensor of torch without a gradient"
    )


def _write(value: Any, new: Any) -> None:
    if isinstance(value, np.ndarray):
        value[...] = as_numpy(new)
    else:
        value.copy_(new)


TOLERANCE = 2.0
"""Largest error of an element, in units of the root of its type's ``eps``, times its own size and
the root mean square of its tensor: half of the digits may be lost on the way through a network. An
operator that computes something else is off by about the size of the tensor. Where TF32 is
allowed, ``eps`` of float32 is that of TF32."""


@frozen
class Difference:
    """The difference of one output from the model's that is largest beside its bound.

    Attributes:
        output: Its name.
        error: Absolute difference of that element; infinite where only one of both is a number.
        allowed: Its bound.
        scale: Root mean square of the model's output.
        wrong: How many elements are beyond their bounds.
        problem: Why the arrays cannot be compared, such as another shape; "" where they can.
    """

    output: str
    error: float
    allowed: float
    scale: float
    wrong: int
    problem: str = ""

    @property
    def ok(self) -> bool:
        """True if the output is right."""
        return not (self.wrong or self.problem)

    def __str__(self) -> str:
        if self.problem:
            return f"output {self.output!r} {self.problem}"
        return (
            f"output {self.output!r}: error {self.error:.3g}, allowed {self.allowed:.3g} "
            f"(root mean square {self.scale:.3g}, {self.wrong} elements beyond their bounds)"
        )


def compare_outputs(
    tensors: Sequence[NetworkTensor],
    wanted: Sequence[Any],
    found: Sequence[Any],
    target: Target | None = None,
    eps: float = 0.0,
) -> list[Difference]:
    """Compare each output with the model's.

    Args:
        tensors: The outputs of the network.
        wanted: What the model computes.
        found: What the network computes.
        target: What it runs on, if it has a part in how the network may round.
        eps: Of floats that the network computes with inside: bounds of its outputs that are
            floats are at least theirs.
    """
    count = len(tensors)
    if len(wanted) != count or len(found) != count:
        problem = f"is one of {len(wanted)} of the model, and the network has {len(found)}"
        return [Difference(tensors[0].name if tensors else "", math.inf, 0, 0, 0, problem)]
    return [
        _difference(tensor, as_numpy(want), as_numpy(got), _eps(tensor.dtype, target, eps))
        for tensor, want, got in zip(tensors, wanted, found, strict=True)
    ]


def _eps(dtype: str, target: Target | None, inside: float) -> float:
    """From 1 to the next larger number of a type; 0 for integers, also those that no task has."""
    if dtype == "float32" and target is not None and allows_tf32(target):
        return max(TF32_EPS, inside)
    is_integer = dtype.removeprefix("u").startswith("int")
    own = 0.0 if is_integer else element_type(dtype).eps
    return max(own, inside) if own else 0.0


def _difference(
    tensor: NetworkTensor, want: NDArray[Any], got: NDArray[Any], eps: float
) -> Difference:
    if want.shape != got.shape or want.dtype != got.dtype:
        problem = (
            f"is {got.dtype}{list(got.shape)}, and the model's {want.dtype}{list(want.shape)}"
        )
        return Difference(tensor.name, math.inf, 0.0, 0.0, got.size, problem)
    wide_want, wide_got = want.astype(np.float64), got.astype(np.float64)
    finite = np.where(np.isfinite(wide_want), wide_want, 0.0)
    scale = math.sqrt(float(np.mean(finite * finite))) if finite.size else 0.0
    bound = TOLERANCE * math.sqrt(eps) * (np.abs(finite) + scale)
    with np.errstate(all="ignore"):
        error = np.abs(wide_got - wide_want)
    same = (wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    if not error.size:
        return Difference(tensor.name, 0.0, 0.0, 0.0, 0)
    # Where nothing may be off, whatever is off is infinitely too much.
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error == 0, 0.0, error / bound)
    worst = np.where(share == share.max(), error, -1.0)
    place = np.unravel_index(int(np.argmax(worst)), error.shape)
    wrong = int((error > bound).sum())
    return Difference(tensor.name, float(error[place]), float(bound[place]), scale, wrong)
