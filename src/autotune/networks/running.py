"""Building a network from records, and looking at what it computes and how long it takes."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from autotune.errors import AutotuneError, InvalidValueError
from autotune.networks.arrays import numpy_type
from autotune.networks.comparison import Difference, compare_outputs
from autotune.networks.frontend import CompiledNetwork, NetworkProgram
from autotune.networks.written_inputs import WritingNetwork, copied_inputs, with_written
from autotune.plugins.calling import Calling
from autotune.store.records import Record
from autotune.targets import Target

__all__ = [
    "NAIVE_FLOP_PER_SECOND",
    "TIMING_SECONDS",
    "Timing",
    "WrongOutputs",
    "build_network",
    "check_network",
    "saving_seconds",
    "time_network",
]

REPEATS = 10
_LEAST_SECONDS = 0.5
_MOST_REPEATS = 1000
TIMING_SECONDS = 2.0
"""How long it takes to time a network that is not slow."""

NAIVE_FLOP_PER_SECOND = 1e9
"""About what a program without a schedule does: one that was not timed is counted so."""

_SAVED_BYTES_PER_SECOND = 6e7
"""How fast weights are written into a shared library on processors that nothing else uses: the
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
