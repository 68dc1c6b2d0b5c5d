"""A network in torch, as it is and compiled by Inductor. Imported where torch is, only.

On a CUDA device it is timed as built networks are: one call is recorded in a CUDA graph, which is
timed between two events behind another launch of it. What the host takes to launch kernels is no
part of that, as it is none of a built network. How long a call takes as a person makes it is
measured beside it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import field, frozen
from numpy.typing import NDArray
from torch.utils._pytree import tree_leaves

from autotune.errors import InvalidValueError
from autotune.networks.api import ModelOptions
from autotune.networks.bench.runtimes import Prepared
from autotune.networks.readers.torch.program import taken_apart
from autotune.networks.source import Source
from autotune.runtime.arrays import as_numpy
from autotune.targets import Target, allows_tf32, load_driver, matching_device
from autotune.tuning.options import TuneOptions

__all__ = ["ReturningTensors", "as_arrays", "as_module", "compiled", "eager"]


def eager(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """The module, operator by operator."""
    if options.machine.kind == "cuda":
        return prepared_on(options.machine, *as_module(source), as_arrays, compiles=False)
    return _prepared(*as_module(source), options.machine.cores, lambda module: module)


def compiled(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """The module, compiled by ``torch.compile`` with its default backend."""
    if options.machine.kind == "cuda":
        return prepared_on(options.machine, *as_module(source), as_arrays, compiles=True)
    return _prepared(*as_module(source), options.machine.cores, torch.compile)


def as_module(source: Source) -> tuple[Any, tuple[Any, ...]]:
    """A module of torch and its inputs.

    Raises:
        InvalidValueError: the source is no model of torch, or has no example inputs.
    """
    model, inputs = source.model, source.example_inputs
    if isinstance(model, Path) and model.suffix == ".pt2":
        model = torch.export.load(model)
    if isinstance(model, torch.export.ExportedProgram):
        inputs = inputs if inputs is not None else model.example_inputs[0]
        model = model.module()
    elif isinstance(model, torch.nn.Module):
        model = model.eval()
    else:
        raise InvalidValueError(f"{source.text} is no model of torch")
    if inputs is None:
        raise InvalidValueError(f"{source.text} has no example inputs")
    return model, tuple(inputs)


def as_arrays(outputs: object) -> list[NDArray[Any]]:
    """The tensors of what a module returns, in order."""
    return list(map(as_numpy, _tensors(outputs)))


class ReturningTensors(torch.nn.Module):  # type: ignore[misc]
    """A module that returns a tuple of tensors, which is all that exporters take."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = model.training  # train() is refused by exported programs

    def forward(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        """The tensors of what the module returns."""
        return tuple(_tensors(self.model(*inputs)))


def _tensors(outputs: object) -> list[torch.Tensor]:
    return [it for it in tree_leaves(taken_apart(outputs)) if isinstance(it, torch.Tensor)]


def _prepared(
    model: Any, inputs: tuple[Any, ...], threads: int, change: Callable[[Any], Any]
) -> Prepared:
    torch.set_num_threads(threads)
    changed = change(model)

    def run() -> object:
        with torch.inference_mode():
            return changed(*inputs)

    return Prepared(run, lambda: as_arrays(run()), f"torch {torch.__version__}")


# Without graphs of its own: the whole call becomes one here, as it does of what is not compiled.
_MODE = "max-autotune-no-cudagraphs"
_BEFORE_RECORDING, _COMPARED = 3, 10

Tensors = tuple[Any, ...]


@frozen(eq=False)
class _Recorded:
    """A call of a module on a device as a graph.

    Attributes:
        call: The call itself.
        inputs: What the graph reads.
        graph: It, recorded.
    """

    call: Callable[..., Any]
    inputs: Tensors
    graph: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            # Libraries choose their kernels meanwhile.
            for _ in range(_BEFORE_RECORDING):
                self.call(*self.inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # The outputs are the graph's own, and stay as long as it does.
            self.call(*self.inputs)
        graph.replay()
        torch.cuda.synchronize()
        object.__setattr__(self, "graph", graph)

    def seconds(self, calls: int) -> list[float]:
        """Seconds of the device for each of so many calls."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        found = []
        for _ in range(calls):
            # The device is at work when the time begins.
            self.graph.replay()
            begin.record()
            self.graph.replay()
            end.record()
            end.synchronize()
            found.append(float(begin.elapsed_time(end)) * 1e-3)
        return found

    def replay(self, given: Tensors) -> None:
        """Call it as graphs are called: new inputs are copied to where it reads them."""
        for mine, other in zip(self.inputs, given, strict=True):
            if isinstance(mine, torch.Tensor):
                mine.copy_(other)
        self.graph.replay()
        torch.cuda.synchronize()


@frozen(eq=False)
class _OnHost:
    """A call on a CPU, where tests have no other device."""

    call: Callable[..., Any]
    inputs: Tensors

    def seconds(self, calls: int) -> list[float]:
        """Seconds of each of so many calls."""
        found = []
        for _ in range(calls):
            begin = time.perf_counter()
            self.call(*self.inputs)
            found.append(time.perf_counter() - begin)
        return found

    def replay(self, given: Tensors) -> None:
        """Call it."""
        self.call(*given)


def prepared_on(
    target: Target,
    model: Any,
    inputs: Tensors,
    read: Callable[[object], Sequence[Any]],
    *,
    compiles: bool,
    device: str = "",
) -> Prepared:
    """A module on a device, eager or compiled, in the order of channels that is faster.

    TF32 is used where the target allows it, and nowhere else. Of a module that is compiled, calls
    are those of its graph; of an eager one, every kernel is launched by the host in turn.

    Args:
        target: The device.
        model: The module, which is moved there.
        inputs: Its inputs.
        read: What its outputs are as arrays.
        compiles: Whether Inductor compiles it, and tunes its kernels.
        device: What torch calls it; by default that which the target describes. ``cpu`` is for
            tests.

    Raises:
        UnsupportedTarget: there is no such device.
    """
    on_host = device == "cpu"
    if not device:
        device = f"cuda:{matching_device(target, load_driver()).index}"
        torch.cuda.set_device(device)
    allowed = allows_tf32(target)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True
    kind = _OnHost if on_host else _Recorded
    with torch.inference_mode():
        ways = {
            order: kind(_called(module, compiles), given)
            for order, module, given in _orders(model.to(device), inputs, device)
        }
        times = {order: min(way.seconds(_COMPARED)) for order, way in ways.items()}
    order = min(times, key=lambda it: times[it])
    chosen = ways.pop(order)
    # Memory of the graphs that are not timed.
    ways.clear()
    given = tuple(it.clone() if isinstance(it, torch.Tensor) else it for it in chosen.inputs)

    def run() -> object:
        with torch.inference_mode():
            if compiles:
                return chosen.replay(given)
            found = chosen.call(*given)
            if not on_host:
                torch.cuda.synchronize()
            return found

    def outputs() -> Sequence[Any]:
        with torch.inference_mode():
            return read(chosen.call(*given))

    def seconds(calls: int) -> list[float]:
        with torch.inference_mode():
            return chosen.seconds(calls)

    version = f"torch {torch.__version__}{order}"
    return Prepared(run, outputs, version, seconds=seconds, on_device=True)


def _called(module: Any, compiles: bool) -> Callable[..., Any]:
    found: Callable[..., Any] = module
    return torch.compile(module, mode=_MODE, dynamic=False) if compiles else found


def _orders(model: Any, inputs: Tensors, device: str) -> list[tuple[str, Any, Tensors]]:
    """The module as it is, and with its channels last where inputs are images."""
    there = tuple(it.to(device) if isinstance(it, torch.Tensor) else it for it in inputs)
    found = [("", model, there)]
    dimensions = {it.dim() for it in there if isinstance(it, torch.Tensor)}
    for rank, order in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if rank in dimensions:
            turned = copy.deepcopy(model).to(memory_format=order)
            given = tuple(
                it.contiguous(memory_format=order)
                if isinstance(it, torch.Tensor) and it.dim() == rank
                else it
                for it in there
            )
            found.append((", channels last", turned, given))
    return found
