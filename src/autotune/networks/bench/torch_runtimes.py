"""A network in torch, as it is and compiled by Inductor. Imported where torch is, only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_leaves

from autotune.errors import InvalidValueError
from autotune.networks.api import ModelOptions
from autotune.networks.arrays import as_numpy
from autotune.networks.bench.runtimes import Prepared
from autotune.networks.bench.torch_device import prepared_on
from autotune.networks.readers.torch.program import taken_apart
from autotune.networks.source import Source
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
