"""Networks that are built here: with records, and without."""

from __future__ import annotations

from autotune.errors import InvalidValueError
from autotune.networks.api import ModelOptions, build_recorded
from autotune.networks.arrays import as_numpy
from autotune.networks.bench.runtimes import Prepared
from autotune.networks.frontend import CompiledNetwork, NetworkProgram
from autotune.networks.loading import load_network
from autotune.networks.running import build_network
from autotune.networks.source import Source
from autotune.tuning.options import TuneOptions


def tuned(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """With the fastest records of the database."""
    result = build_recorded(source, reading, options)
    if all(record is None for record in result.chosen.values()):
        raise InvalidValueError(
            f"{result.database} has no record of this network for this machine and "
            f"{result.threads} threads: tune it first (autotune tune-model)"
        )
    return _prepared(result.network, result.build(check=False))


def untuned(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """With the backend's default schedules."""
    machine = options.machine
    network = load_network(
        source, machine, machine.cores, frontend=reading.frontend, passes=reading.passes
    )
    return _prepared(network, build_network(network, {}, machine, machine.cores))


def _prepared(network: NetworkProgram, compiled: CompiledNetwork) -> Prepared:
    inputs = network.example_inputs()
    return Prepared(
        run=lambda: compiled(*inputs),
        outputs=lambda: list(map(as_numpy, compiled(*inputs))),
        version=network.backend,
        seconds=lambda calls: compiled.time_calls(inputs, calls),
        inputs=inputs,
    )
