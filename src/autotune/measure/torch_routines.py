"""Reference routines of torch and their latency, in a process of its own: torch is large.

Started by :func:`autotune.measure.vendor.torch_latency`; nothing imports it. What torch
computes is checked like a candidate's results, in the same precision: it uses TF32 where the
target allows that, and nowhere else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import define, field

from autotune.backends.backend import Array
from autotune.errors import InvalidValueError, UnsupportedWorkload, one_line
from autotune.ir.workloads import Workload, draw_example
from autotune.measure.devices.calls import MOST_IN_GRAPH, warm_up
from autotune.measure.protocol import MeasureProtocol
from autotune.measure.timing import time_call
from autotune.measure.validation import Expected, expectations, mismatch
from autotune.process import Message
from autotune.process.child import connect, serve
from autotune.store.records import Outcome
from autotune.targets import Target, allows_tf32, load_driver, matching_device

__all__ = ["Call", "CallsOf", "answer", "measure_here", "torch_calls"]

_CHANNELS = {"conv1d": 1, "conv2d": 2, "conv3d": 3, "depthwise_conv2d": 2}

Call = Callable[[], Any]
"""Computes the output in the workload's own shape."""

CallsOf = Callable[[Workload, Mapping[str, Any]], list[Call]]
"""The ways in which torch computes a workload whose inputs are these tensors."""


def torch_calls(workload: Workload, tensors: Mapping[str, Any]) -> list[Call]:
    """The ways in which torch computes a workload.

    Args:
        workload: One that :func:`~autotune.measure.vendor.has_routine` accepts.
        tensors: Its inputs by name.
    """
    import torch
    from torch.nn import functional

    p, t = workload.parameters, tensors
    name = workload.name
    if name in _CHANNELS:
        return _convolutions(name, p, t)
    if name == "gemm" and p["dtype"] == "int8":
        # Columns of the right factor that lie together are what tensor cores read.
        columns = t["B"].t().contiguous().t()
        return [lambda: torch._int_mm(t["A"], t["B"]), lambda: torch._int_mm(t["A"], columns)]
    if name in ("gemm", "batch_matmul"):
        return [lambda: torch.matmul(t["A"], t["B"])]
    if name == "dense":
        bias = t.get(_bias_of(workload))

        def dense() -> Any:
            result = functional.linear(t["X"], t["W"], bias)
            return torch.relu_(result) if p["relu"] else result

        return [dense]
    if name == "softmax":
        return [lambda: torch.softmax(t["X"], 1)]
    if name == "attention":
        # Fused kernels take batches of heads.
        query, key, value = (t[each].unsqueeze(0) for each in "QKV")
        attend, causal = functional.scaled_dot_product_attention, bool(p["causal"])
        return [lambda: attend(query, key, value, is_causal=causal)[0]]
    if name == "elementwise":
        return [lambda: torch.addcmul(t["X"], t["X"], t["Z"]).relu_().mul_(0.5)]
    raise UnsupportedWorkload(f"torch has no routine for {name!r}")


def _convolutions(name: str, p: Mapping[str, Any], t: Mapping[str, Any]) -> list[Call]:
    """Images with their channels first, and last."""
    import torch
    from torch.nn import functional

    dimensions = _CHANNELS[name]
    convolve: Any = (functional.conv1d, functional.conv2d, functional.conv3d)[dimensions - 1]
    images = t["X"].movedim(-1, 1)
    weights, groups = t["W"], 1
    if name == "depthwise_conv2d":
        weights, groups = weights.unsqueeze(-2), p["c"]
    weights = weights.movedim((-1, -2), (0, 1))
    bias = next((t[key] for key in t if key not in ("X", "W")), None)
    settings = {"stride": p["stride"], "padding": p["pad"], "dilation": p["dilation"]}
    formats: list[Any] = [torch.contiguous_format]
    last = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dimensions)
    formats += [] if last is None else [last]

    def call_on(order: Any) -> Call:
        data, filters = (it.contiguous(memory_format=order) for it in (images, weights))

        def call() -> Any:
            result = convolve(data, filters, bias, groups=groups, **settings)
            return (torch.relu_(result) if p.get("relu") else result).movedim(1, -1)

        return call

    return [call_on(order) for order in formats]


def _bias_of(workload: Workload) -> str:
    return next((it.name for it in workload.inputs if it.name not in ("X", "W")), "")


@define(eq=False)
class _DeviceTimer:
    """Times a call of torch as programs are timed: CUDA graphs of many, between two events."""

    call: Call
    _graphs: dict[int, Any] = field(factory=dict)

    def time(self, number: int) -> float:
        """Seconds per call over ``number`` calls or a few more."""
        import torch

        size = min(number, MOST_IN_GRAPH)
        turns = -(-number // size)
        if size not in self._graphs:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(size):
                    self.call()
            self._graphs[size] = graph
            graph.replay()
            torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # As with programs: the device is at work when the time begins.
        self._graphs[size].replay()
        begin.record()
        for _ in range(turns):
            self._graphs[size].replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3 / (size * turns)


@define(eq=False)
class _HostTimer:
    """Times a call of torch on a CPU."""

    call: Call

    def time(self, number: int) -> float:
        """Seconds per call."""
        begin = time.perf_counter()
        for _ in range(number):
            self.call()
        return (time.perf_counter() - begin) / number


def measure_here(
    workload: Workload,
    target: Target,
    device: str,
    protocol: MeasureProtocol,
    seed: int,
    *,
    compiled: bool = False,
    calls: CallsOf = torch_calls,
) -> Outcome:
    """Check and time torch in this process.

    Args:
        workload: One that ``calls`` knows.
        target: What the programs are for that it is compared with.
        device: Torch's name of the device: ``cuda:0``, or ``cpu``.
        protocol: How.
        seed: Of the inputs.
        compiled: Whether Inductor compiles what is called, and tunes its own kernels.
        calls: The ways that torch has. One that fails or is wrong counts only where all are.

    Returns:
        The fastest way; what was wrong with the first one where there is none.

    Raises:
        UnsupportedWorkload: torch has no routine for the workload.
    """
    import torch

    # As programs compute: factors of float32 are rounded to 10 bits only where theirs may be.
    rounds = allows_tf32(target)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = rounds
    torch.backends.cudnn.benchmark = True
    inputs, outputs = draw_example(workload, np.random.default_rng(seed))
    expected = expectations(workload, list(outputs.values()), target)
    tensors = {it.name: _tensor(inputs[it.name], it.dtype).to(device) for it in workload.inputs}
    ways: list[Outcome] = []
    with torch.inference_mode():
        for routine in calls(workload, tensors):
            # Graphs are made below, as they are of what is not compiled.
            mode = "max-autotune-no-cudagraphs"
            call = torch.compile(routine, mode=mode, dynamic=False) if compiled else routine
            timer = _HostTimer(call) if device == "cpu" else _DeviceTimer(call)
            ways.append(_timed(timer, expected, protocol))
    timed = [(way.latency, way) for way in ways if way.latency is not None]
    return min(timed, key=lambda it: it[0])[1] if timed else ways[0]


def _timed(
    timer: _HostTimer | _DeviceTimer, expected: Sequence[Expected], protocol: MeasureProtocol
) -> Outcome:
    """Latency of one way, if it computes what is expected."""
    try:
        wrong = mismatch(expected, [_array(timer.call())])
        if wrong is not None:
            return Outcome("wrong_result", message=f"torch: {wrong}")
        # As programs are: the device has rested while torch was imported.
        warm_up(timer)
        samples = time_call(timer, protocol)
    except RuntimeError as error:  # all of torch's and Inductor's own are such
        return Outcome("crash", message=one_line(f"torch: {type(error).__name__}: {error}", 300))
    return Outcome("ok", statistics.median(samples), samples)


def _tensor(array: Array, dtype: str) -> Any:
    import torch

    tensor = torch.from_numpy(array.copy())
    return tensor.view(torch.bfloat16) if dtype == "bfloat16" else tensor


def _array(tensor: Any) -> Array:
    import torch

    tensor = tensor.contiguous().cpu()
    found: Array = (
        tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
    ).numpy()
    return found


def answer(question: Message, calls: CallsOf = torch_calls) -> Message:
    """Answer :func:`~autotune.measure.vendor.ask_torch` on the device that it means.

    Raises:
        InvalidValueError: torch is not installed here, or finds no CUDA device where one is meant.
    """
    try:
        import torch
    except ImportError as error:
        raise InvalidValueError(f"torch is not installed here ({error})") from error
    target, device = Target.from_json(question["target"]), "cpu"
    if target.kind == "cuda":
        if not torch.cuda.is_available():
            raise InvalidValueError(f"torch {torch.__version__} finds no CUDA device")
        device = f"cuda:{matching_device(target, load_driver()).index}"
        torch.cuda.set_device(device)
    workload = Workload.from_json(question["workload"])
    protocol = MeasureProtocol.from_json(question["protocol"])
    seed, compiled = question["seed"], question["compiled"]
    found = measure_here(
        *(workload, target, device, protocol, seed), compiled=compiled, calls=calls
    )
    return found.to_json()


def main() -> None:
    """Answer :func:`~autotune.measure.vendor.torch_latency`, which starts it."""
    connection, _ = connect("autotune.measure.torch_routines")
    serve(connection, {"measure": answer})
