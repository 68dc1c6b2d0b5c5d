"""Models of torch as networks, and what their outputs are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch
from attrs import evolve
from numpy.typing import NDArray

from autotune.networks.arrays import numpy_type
from autotune.networks.fixed_inputs import AskedInputs
from autotune.networks.frontend import Rival
from autotune.networks.graph_program import GraphSource, Yardstick
from autotune.networks.readers.torch.torch_network import read_torch

__all__ = ["torch_source"]

Array = NDArray[Any]


def torch_source(
    model: object, examples: Sequence[object] | None = None, asked: AskedInputs | None = None
) -> GraphSource:
    """Read a model; as :func:`~autotune.networks.readers.torch.read_torch`."""
    network = read_torch(model, examples, asked)
    types = {it.name: numpy_type(it.dtype) for it in network.graph.inputs}
    state = {name: array.view(types[name]) for name, array in network.state.items()}
    name = f"torch {torch.__version__}"
    yardstick = Yardstick(name, network.reference, partial(_timed, network.reference, name))
    fixed = network.fixed
    if state:
        said = f"{', '.join(state)}: the network keeps what the model writes there between calls"
        fixed = evolve(fixed, remarks=(*fixed.remarks, said))
    return GraphSource(network.name, network.graph, fixed, yardstick, network.writes, state)


def _timed(
    run: Callable[[Sequence[Array]], object],
    name: str,
    arrays: Sequence[Array],
    threads: int,
    seconds: float,
) -> Rival | None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run(arrays)
        samples: list[float] = []
        end = perf_counter() + seconds
        while not samples or perf_counter() < end:
            begin = perf_counter()
            run(arrays)
            samples.append(perf_counter() - begin)
    finally:
        torch.set_num_threads(before)
    return Rival(name, median(samples))
