"""Networks of float32 in half precision: their weights, inputs and outputs are of 16 bits."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.networks.arrays import as_numpy, numpy_type
from autotune.networks.source import Source

__all__ = ["PRECISIONS", "check_precision", "in_precision"]

PRECISIONS = ("float16", "bfloat16")
"""What a module of float32 is converted to."""


def check_precision(precision: str | None) -> str | None:
    """A precision that networks are converted to; None for the model's own.

    Raises:
        UnknownNameError: there is no such precision.
    """
    if precision is not None and precision not in PRECISIONS:
        raise UnknownNameError("precision", precision, PRECISIONS)
    return precision


def in_precision(source: Source, precision: str | None) -> Source:
    """A module of torch with the floating-point weights and inputs of another precision.

    Args:
        source: A module and its example inputs; it stays as it is.
        precision: One of :data:`PRECISIONS`; None for the model's own.

    Returns:
        The converted module, whose outputs are compared with those of the module as it was on the
        inputs as they were rounded (:attr:`Source.wide`).

    Raises:
        UnknownNameError: there is no such precision.
        InvalidValueError: the source is no module of torch, or has no example inputs.
    """
    if check_precision(precision) is None:
        return source
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(source.model, torch.nn.Module):
        what = source.text if isinstance(source.model, Path) else type(source.model).__name__
        raise InvalidValueError(
            f"{what} cannot be converted to {precision}: only a module of torch can; convert the "
            "model itself, and give that without a precision"
        )
    if source.example_inputs is None:
        raise InvalidValueError(f"{source.text} has no example inputs")
    kind = getattr(torch, str(precision))
    with torch.no_grad():
        module = copy.deepcopy(source.model).to(kind)
    tree: Any = torch.utils._pytree
    inputs = tree.tree_map(lambda it: _rounded(it, kind, precision), source.example_inputs)
    return evolve(
        source,
        model=module,
        example_inputs=inputs,
        text=f"{source.text} in {precision}",
        wide=_wide(torch, source),
    )


def _rounded(value: Any, kind: Any, precision: str | None) -> Any:
    if isinstance(value, np.ndarray):
        is_float = value.dtype in (np.float32, np.float64)
        return value.astype(numpy_type(str(precision))) if is_float else value
    is_float = hasattr(value, "is_floating_point") and value.is_floating_point()
    return value.to(kind) if is_float else value


def _wide(torch: Any, source: Source) -> Callable[[Sequence[Any]], tuple[NDArray[Any], ...]]:
    """Outputs of the module as it was, of inputs that may be of half precision."""
    tree: Any = torch.utils._pytree
    leaves, structure = tree.tree_flatten(source.example_inputs)
    module: Any = source.model

    def run(inputs: Sequence[Any]) -> tuple[NDArray[Any], ...]:
        tensors: Any = import_module("autotune.networks.readers.torch.tensors")
        left = iter(inputs)
        given = [_as_example(torch, next(left), it) if _is_array(it) else it for it in leaves]
        with torch.no_grad(), tensors.kept(module.buffers()):
            found = module(*tree.tree_unflatten(given, structure))
            parts = [it for it in tree.tree_leaves(found) if _is_array(it)]
            return tuple(np.array(as_numpy(it)) for it in parts)

    return run


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape")


def _as_example(torch: Any, value: Any, example: Any) -> Any:
    """An input as the module takes it: of the type, and where the example is."""
    array = as_numpy(value)
    wide = array.astype(as_numpy(example).dtype)
    return torch.from_numpy(wide).to(getattr(example, "device", "cpu"))
