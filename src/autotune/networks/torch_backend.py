"""``torch.compile(model, backend="autotune")``."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import field, fields, frozen
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import lookup_backend
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import tracing
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.node import map_aggregate

from autotune.errors import AutotuneError, InvalidValueError
from autotune.networks import CompiledNetwork
from autotune.networks.api import build_model, tune_model
from autotune.networks.readers.torch.reader import described, first_drawing
from autotune.plugins.options import check_known
from autotune.store.current import current_database
from autotune.tuning.options import TuneOptions, checked_target

__all__ = ["BackendOptions", "autotune"]

FALLBACKS = ("inductor", "eager")

Compiled = Any
"""A function of the inputs of a graph; torch is not followed by type checkers here."""


def _one_of_fallbacks(_options: Any, _field: Any, value: object) -> None:
    if value not in FALLBACKS:
        raise InvalidValueError(f"fallback is one of {', '.join(FALLBACKS)}, not {value!r}")


@frozen(kw_only=True)
class BackendOptions:
    """The options of ``torch.compile(backend="autotune", options={...})``.

    Attributes:
        database: Path of the database; by default that of :func:`autotune.database`.
        trials: Candidates to measure for each subgraph; with neither these nor ``time`` nothing
            is measured, and recorded schedules are used.
        time: Seconds to tune each subgraph.
        target: What to compile for; by default what the tensors are on: ``cpu``, or ``cuda:N``.
        threads: Threads to run on; by default one per core.
        fallback: What compiles a subgraph that this package does not: ``inductor`` or ``eager``.
    """

    database: str = field(factory=current_database)
    trials: int | None = None
    time: float | None = None
    target: str | None = None
    threads: int | None = None
    fallback: str = field(default="inductor", validator=_one_of_fallbacks)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> BackendOptions:
        """The options from a mapping.

        Raises:
            InvalidValueError: there is no such option, or it has no such value.
        """
        check_known("torch.compile(backend='autotune')", given, [it.name for it in fields(cls)])
        options = cls(**given)
        # Refuses what no run has, before anything is imported.
        TuneOptions(
            database=options.database,
            trials=options.trials,
            time=options.time,
            threads=options.threads,
        )
        if options.target is not None:
            checked_target(options.target, options.threads)
        return options

    @property
    def tunes(self) -> bool:
        """True if candidates are measured."""
        return self.trials is not None or self.time is not None


class _NotCompiled(Exception):
    """A subgraph that is compiled by something else; says why.

    Attributes:
        only_eager: Whether it is for torch itself, whatever the fallback is.
    """

    def __init__(self, why: str, *, only_eager: bool = False) -> None:
        super().__init__(why)
        self.only_eager = only_eager


def autotune(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    """Compile a subgraph that torch has captured; named by the group ``torch_dynamo_backends``.

    Its programs get recorded schedules, and those that the draft model takes for the best where
    there are none; with a budget they are tuned first. What cannot be expressed is compiled by the
    fallback, with one warning for each subgraph. One that draws random numbers is run by torch
    itself, which draws what it draws in eager mode.

    Args:
        graph: What torch has captured.
        example_inputs: Fake tensors, and symbolic sizes.
        options: The fields of :class:`BackendOptions`.

    Raises:
        InvalidValueError: there is no such option, or it has no such value.
    """
    chosen = BackendOptions.read(options or {})
    compiler = aot_autograd(
        fw_compiler=partial(_compile, chosen), bw_compiler=partial(_compile_backward, chosen)
    )
    try:
        return compiler(graph, example_inputs)
    except _NotCompiled as error:
        fallback = "eager" if error.only_eager else chosen.fallback
        _say(graph, fallback, str(error))
        return lookup_backend(fallback)(graph, list(example_inputs))


def _compile(
    options: BackendOptions, graph: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Compiled:
    """A graph of core operators as a function of a list of its inputs.

    Raises:
        _NotCompiled: it cannot be expressed.
    """
    if not any(node.op == "call_function" for node in graph.graph.nodes):
        return make_boxed_func(graph.forward)
    node = first_drawing(graph)
    if node is not None:
        raise _NotCompiled(
            f"{described(node)} draws random numbers, which only torch's own generator gives",
            only_eager=True,
        )
    return make_boxed_func(_ForEachShape(options, graph, tuple(inputs)))


def _compile_backward(
    options: BackendOptions, graph: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Compiled:
    """Compile as :func:`_compile`; what cannot be expressed is run by torch, node by node."""
    try:
        return _compile(options, graph, inputs)
    except _NotCompiled as error:
        _say(graph, "eager", str(error))
        return make_boxed_func(graph.forward)


class _ForEachShape:
    """A graph, compiled for each shape that it is called with; for the first one at once.

    Raises:
        _NotCompiled: it cannot be expressed.
    """

    def __init__(
        self, options: BackendOptions, graph: torch.fx.GraphModule, inputs: Sequence[Any]
    ) -> None:
        self._options = options
        self._graph = graph
        self._made = {_key(inputs): _compiled(options, graph, inputs)}

    def __call__(self, *inputs: Any) -> Any:
        """Run once; records are looked up first for a shape that is new."""
        key = _key(inputs)
        if key not in self._made:
            try:
                self._made[key] = _compiled(self._options, self._graph, inputs)
            except _NotCompiled as error:
                _say(self._graph, "eager", str(error))
                self._made[key] = self._graph.forward
        return self._made[key](*inputs)


def _key(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        (tuple(map(_size, it.shape)), it.dtype) if isinstance(it, torch.Tensor) else _size(it)
        for it in inputs
    )


def _size(value: Any) -> Any:
    """A size; of a symbolic one that of the call for which torch compiles."""
    return value.node.hint if isinstance(value, torch.SymInt) else value


class _OfTensors(torch.nn.Module):  # type: ignore[misc]
    """A graph as a function of its tensors; sizes among its inputs are those of one shape."""

    def __init__(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
        super().__init__()
        self._graph = graph
        self._inputs = [it if isinstance(it, torch.Tensor) else _size(it) for it in inputs]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Compute the outputs of the graph, without those that are no tensors."""
        left = iter(tensors)
        given = [next(left) if isinstance(it, torch.Tensor) else it for it in self._inputs]
        return tuple(it for it in self._graph(*given) if isinstance(it, torch.Tensor))


def _compiled(
    options: BackendOptions, graph: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Compiled:
    """A graph for inputs of these shapes."""
    target = _target_for(options, inputs)
    outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    if not all(_is_tensor(node) for node in outputs if node is not None):
        raise _NotCompiled("it returns a size, and not only tensors")
    layouts = [None if node is None else _layout(node.meta["val"]) for node in outputs]
    # Torch compiles with tensors that have shapes only; what is exported and run here is real.
    with tracing(None), unset_fake_temporarily():
        examples = tuple(
            _laid_out(torch.zeros(tuple(map(_size, it.shape)), dtype=it.dtype), _layout(it))
            for it in inputs
            if isinstance(it, torch.Tensor)
        )
        on_cpu = graph if target == "cpu" else _on_cpu(graph)
        model = _OfTensors(on_cpu, inputs).eval()
        try:
            network = _network(options, target, model, examples)
        except AutotuneError as error:
            raise _NotCompiled(str(error)) from error
    return partial(_run, network, layouts)


def _target_for(options: BackendOptions, inputs: Sequence[Any]) -> str:
    """Target to compile for.

    Raises:
        _NotCompiled: the tensors are on several devices, on one that nothing is compiled for, or
            not on that which is asked for.
    """
    devices = {str(it.device) for it in inputs if isinstance(it, torch.Tensor)} or {"cpu"}
    kinds = {device.partition(":")[0] for device in devices}
    if len(devices) > 1 or kinds - {"cpu", "cuda"}:
        found = ", ".join(sorted(devices))
        raise _NotCompiled(f"it is on {found}; subgraphs are compiled for one CPU or CUDA device")
    (device,), (kind,) = devices, kinds
    if options.target is None:
        return device
    asked = checked_target(options.target, options.threads).kind
    if asked != kind:
        raise _NotCompiled(
            f"it is on {device}, and target {options.target!r} is of kind {asked!r}"
        )
    return options.target


def _on_cpu(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph on the CPU, where it is exported: what it makes and holds there is there."""
    moved = copy.deepcopy(graph)
    for node in moved.graph.nodes:
        node.args = map_aggregate(node.args, _cpu_for_device)
        node.kwargs = map_aggregate(node.kwargs, _cpu_for_device)
        if node.op == "get_attr" and isinstance(held := getattr(moved, node.target), torch.Tensor):
            setattr(moved, node.target, held.cpu())
    moved.recompile()
    return moved


def _cpu_for_device(argument: Any) -> Any:
    return torch.device("cpu") if isinstance(argument, torch.device) else argument


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _network(
    options: BackendOptions,
    target: str,
    model: torch.nn.Module,
    examples: Sequence[torch.Tensor],
) -> CompiledNetwork:
    given: dict[str, Any] = {
        "database": options.database,
        "target": target,
        "threads": options.threads,
    }
    if options.tunes:
        given |= {"trials": options.trials, "time": options.time}
        return tune_model(model, examples, check=False, **given).build(check=False)
    if not Path(os.path.expanduser(options.database)).exists():
        raise InvalidValueError(
            f"there is no database {options.database!r} to look schedules up in; name one, or "
            "give trials or time to tune"
        )
    return build_model(model, examples, check=False, **given)


def _run(
    network: CompiledNetwork, layouts: Sequence[Sequence[int] | None], *inputs: Any
) -> tuple[Any, ...]:
    """The outputs of a network in the layouts of the graph, and None where it returns that."""
    found = iter(network(*(it for it in inputs if isinstance(it, torch.Tensor))))
    return tuple(None if it is None else _laid_out(next(found), it) for it in layouts)


def _layout(tensor: torch.Tensor) -> tuple[int, ...]:
    """Axes from the outermost in memory to the innermost.

    Those of channels-last images are 0, 2, 3, 1. Axes along which nothing moves stay in place.
    """
    shape, strides = list(map(_size, tensor.shape)), list(map(_size, tensor.stride()))
    moving = [axis for axis, extent in enumerate(shape) if extent > 1 and strides[axis] > 0]
    ordered = iter(sorted(moving, key=lambda axis: -strides[axis]))
    return tuple(next(ordered) if axis in moving else axis for axis in range(len(shape)))


def _laid_out(tensor: torch.Tensor, layout: Sequence[int]) -> torch.Tensor:
    """The tensor with its elements in this order in memory."""
    if list(layout) == sorted(layout):
        return tensor
    back = [layout.index(axis) for axis in range(len(layout))]
    return tensor.permute(*layout).contiguous().permute(*back)


def _say(graph: torch.fx.GraphModule, fallback: str, why: str) -> None:
    count = sum(node.op not in ("placeholder", "output") for node in graph.graph.nodes)
    warnings.warn(
        f"autotune: a subgraph of {count} operators is left to {fallback}: {why}",
        RuntimeWarning,
        stacklevel=2,
    )
