"""A network as it was read, before anything is done to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.networks import NetworkTensor
from autotune_tvm.networks.graph import ENTRY, dtype_of, shape_of

__all__ = [
    "Reference",
    "Source",
    "as_numpy",
    "check_examples",
    "flat_outputs",
    "input_tensors",
    "output_tensors",
    "random_examples",
]

Array = NDArray[Any]
Reference = Callable[[Sequence[Array]], "tuple[Array, ...] | None"]


@frozen(eq=False)
class Source:
    """A network that was read.

    Attributes:
        name: What a person calls it.
        module: An ``IRModule`` whose function ``main`` is the network, its weights constants.
        examples: Inputs that it was given with; None where there are none.
        outputs: Names of the outputs; () where they have none.
        run: What the model computes where it came from; None where it cannot be run.
    """

    name: str
    module: Any
    examples: tuple[Array, ...] | None = None
    outputs: tuple[str, ...] = ()
    run: Reference | None = None


def as_numpy(value: Any) -> Array:
    """A numpy array of what a caller gave, in place where that is possible.

    Raises:
        InvalidValueError: it is no array.
    """
    if hasattr(value, "detach"):
        value = value.detach()
    try:
        array = np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (BufferError, RuntimeError, TypeError, ValueError):
        array = np.asarray(value)
    if array.dtype == object:
        raise InvalidValueError(f"an input is a {type(value).__name__}; inputs are arrays")
    return array


def flat_outputs(result: Any) -> list[Any]:
    """The tensors that a network returned, which may be in tuples of tuples."""
    if hasattr(result, "__dlpack__"):
        return [result]
    return [tensor for item in result for tensor in flat_outputs(item)]


def input_tensors(module: Any) -> tuple[NetworkTensor, ...]:
    """The inputs of a network.

    Raises:
        UnsupportedWorkload: one is no tensor, or of a shape that is known only when it runs.
    """
    return tuple(_tensor(variable, variable.name) for variable in module[ENTRY].params)


def output_tensors(module: Any, names: Sequence[str] = ()) -> tuple[NetworkTensor, ...]:
    """The outputs of a network, in order; those without names are numbered.

    Raises:
        UnsupportedWorkload: one is no tensor, or of a shape that is known only when it runs.
    """
    from tvm import relax

    found: list[Any] = []

    def visit(kind: Any) -> None:
        if isinstance(kind, relax.TupleType):
            for field in kind.fields:
                visit(field)
        else:
            found.append(relax.Var("output", kind))

    visit(module[ENTRY].ret_ty)
    if len(names) != len(found):
        names = [f"output_{i}" for i in range(len(found))] if len(found) > 1 else ["output"]
    return tuple(_tensor(variable, name) for variable, name in zip(found, names, strict=True))


def _tensor(variable: Any, name: str) -> NetworkTensor:
    shape, dtype = shape_of(variable), dtype_of(variable)
    if not dtype:
        raise UnsupportedWorkload(f"{name!r} of the network is {variable.ty}, not a tensor")
    if shape is None:
        raise UnsupportedWorkload(
            f"tensor {name!r} of the network has a shape that is known only when it runs "
            f"({variable.ty.shape}): programs are tuned for one shape; export the model with "
            "fixed shapes, or give example inputs"
        )
    return NetworkTensor(str(name), shape, dtype)


def check_examples(
    inputs: Sequence[NetworkTensor], examples: Sequence[object] | None
) -> tuple[Array, ...] | None:
    """Example inputs as arrays.

    Raises:
        InvalidValueError: they are not those of the network.
    """
    if examples is None:
        return None
    arrays = tuple(map(as_numpy, examples))
    if len(arrays) != len(inputs):
        names = ", ".join(tensor.name for tensor in inputs)
        raise InvalidValueError(f"{len(arrays)} example inputs; the network takes {names}")
    for tensor, array in zip(inputs, arrays, strict=True):
        if array.shape != tensor.shape or str(array.dtype) != tensor.dtype:
            raise InvalidValueError(
                f"example input {tensor.name!r} is {array.dtype}{list(array.shape)}; the network "
                f"takes {tensor.dtype}{list(tensor.shape)}"
            )
    return arrays


def random_examples(inputs: Sequence[NetworkTensor]) -> tuple[Array, ...]:
    """Inputs of one seed: normally distributed numbers, and whole ones that are valid indices."""
    rng = np.random.default_rng(0)
    found = []
    for tensor in inputs:
        kind = np.dtype(tensor.dtype)
        if kind.kind == "f":
            found.append(rng.standard_normal(tensor.shape).astype(kind))
        else:
            # 0 and 1 index every table that is one.
            found.append(rng.integers(0, 2, tensor.shape).astype(kind))
    return tuple(found)
