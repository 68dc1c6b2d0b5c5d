"""Networks that are built here: with records, and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from autotune.errors import InvalidValueError
from autotune.networks.api import ModelOptions, build_recorded
from autotune.networks.bench.runtimes import Prepared
from autotune.networks.frontend import CompiledNetwork, NetworkProgram
from autotune.networks.loading import load_network
from autotune.networks.running import build_network, copied_inputs
from autotune.networks.source import Source
from autotune.runtime.arrays import as_numpy
from autotune.runtime.network import CudaNetwork
from autotune.targets import Target
from autotune.tuning.options import TuneOptions


def tuned(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """With the fastest records of the database."""
    result = build_recorded(source, reading, options)
    if result.is_tunable and all(record is None for record in result.chosen.values()):
        raise InvalidValueError(
            f"{result.database} has no record of this network for {_where(result.target)}: tune "
            "it first (autotune tune-model)"
        )
    return _prepared(result.network, result.build(check=False))


def _where(target: Target) -> str:
    if target.kind == "cuda":
        return target.name
    return f"this machine and {target.cores} threads"


def untuned(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """With the backend's default schedules."""
    machine = options.machine
    network = load_network(
        source, machine, machine.cores, frontend=reading.frontend, passes=reading.passes
    )
    return _prepared(network, build_network(network, {}, machine, machine.cores))


def _prepared(network: NetworkProgram, compiled: CompiledNetwork) -> Prepared:
    inputs = network.example_inputs()
    on_device = isinstance(compiled, CudaNetwork)
    given, wait = _on_device(compiled, inputs) if on_device else (inputs, None)

    def run() -> object:
        found = compiled(*given)
        if wait is not None:
            wait()
        return found

    return Prepared(
        run=run,
        outputs=lambda: list(map(as_numpy, compiled(*copied_inputs(inputs, network.writes)))),
        version=network.backend,
        seconds=lambda calls: compiled.time_calls(given, calls),
        inputs=inputs,
        baked=network.fixed.constants if network.fixed else {},
        remarks=network.fixed.remarks if network.fixed else (),
        on_device=on_device,
    )


def _on_device(
    network: Any, inputs: Sequence[Any]
) -> tuple[Sequence[Any], Callable[[], None] | None]:
    """Inputs as tensors of torch on the network's device, and what waits for it.

    Without torch inputs stay on the host, and a call copies them.
    """
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return inputs, None
    if not torch.cuda.is_available():
        return inputs, None
    device = f"cuda:{network.device_index}"

    def moved(array: Any) -> Any:
        if str(array.dtype) == "bfloat16":
            return torch.from_numpy(array.view("int16")).to(device).view(torch.bfloat16)
        return torch.from_numpy(array).to(device)

    return [moved(as_numpy(it)) for it in inputs], lambda: torch.cuda.synchronize(device)
