"""Example inputs of a model that is an object, changed as a person says."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.networks.arrays import as_numpy
from autotune.networks.asked_inputs import AskedInputs, DeclaredInput
from autotune.networks.fixed_inputs import fix_inputs
from autotune.networks.source import Source

__all__ = ["with_inputs"]


def with_inputs(source: Source, asked: AskedInputs) -> Source:
    """A model and what is asked of its inputs.

    The example inputs of a module of torch are changed here: its inputs are the parameters of its
    ``forward`` that are tensors. What is asked of another model is for its frontend.

    Raises:
        UnknownNameError: a module has no such input, or a name for an axis.
        InvalidValueError: a shape or an array is not one of the input.
    """
    forward = getattr(source.model, "forward", None)
    is_module = callable(forward) and not isinstance(source.model, Path)
    if not (asked and is_module and source.example_inputs is not None):
        return evolve(source, asked=asked)
    names = _names(forward, len(source.example_inputs))
    pairs = list(zip(names, source.example_inputs, strict=True))
    numbers = _numbers(pairs, asked)
    asked = evolve(asked, inputs={k: it for k, it in asked.inputs.items() if k not in numbers})
    examples = {name: as_numpy(value) for name, value in pairs if hasattr(value, "shape")}
    declared = [
        DeclaredInput(name, ("",) * value.ndim, str(value.dtype), value)
        for name, value in examples.items()
    ]
    fixed = fix_inputs(declared, asked, None, source.text)
    if fixed.constants:
        name = next(iter(fixed.constants))
        raise InvalidValueError(
            f"input {name!r} of {source.text} is a tensor, and no value is baked into a module: "
            "let the function that makes the model return a number for it"
        )
    found = dict(zip(fixed.shapes, fixed.examples or (), strict=True))
    changed = tuple(
        _like(value, found[name]) if name in asked.inputs else numbers.get(name, value)
        for name, value in pairs
    )
    return evolve(source, example_inputs=changed)


def _numbers(pairs: Sequence[tuple[str, object]], asked: AskedInputs) -> dict[str, object]:
    """Inputs that are plain numbers, such as a rate, and what is asked for them."""
    found: dict[str, object] = {}
    for name, value in pairs:
        number = asked.inputs.get(name)
        if number is not None and isinstance(value, (bool, int, float)):
            if type(number) is not type(value):
                raise InvalidValueError(
                    f"input {name!r} is a number of type {type(value).__name__}, not {number!r}"
                )
            found[name] = number
    return found


def _names(forward: Any, count: int) -> list[str]:
    """Names of the positional inputs of a function; those of ``*inputs`` are numbered."""
    kinds = inspect.Parameter
    found: list[str] = []
    for name, parameter in inspect.signature(forward).parameters.items():
        if parameter.kind == kinds.VAR_POSITIONAL:
            found += [f"{name}_{number}" for number in range(count - len(found))]
        elif parameter.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD):
            found.append(name)
    return found[:count] + [f"input_{number}" for number in range(len(found), count)]


def _like(example: Any, array: Any) -> Any:
    """An array as its example is: a tensor of torch on the same device, or an array."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(example, torch.Tensor):
        return array
    if str(array.dtype) == "bfloat16":
        bits = torch.from_numpy(np.array(array.view(np.int16)))
        return bits.view(torch.bfloat16).to(example.device)
    return torch.from_numpy(np.array(array)).to(example.device)
