"""A network as it was read, before anything is done to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedWorkload
from autotune.networks import FixedInputs, NetworkTensor
from autotune_tvm.networks.graph import ENTRY, dtype_of, shape_of

__all__ = [
    "Reference",
    "Source",
    "flat_outputs",
    "input_tensors",
    "output_tensors",
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
        writes: Names of inputs that it writes, whose new values are its first outputs.
        fixed: What became of what a person said of its inputs.
        runner: What runs it, for messages.
    """

    name: str
    module: Any
    examples: tuple[Array, ...] | None = None
    outputs: tuple[str, ...] = ()
    run: Reference | None = None
    writes: tuple[str, ...] = ()
    fixed: FixedInputs | None = None
    runner: str = "TVM without schedules"


def flat_outputs(result: Any) -> list[Any]:
    """The tensors that a network returned, which may be in tuples of tuples."""
    if hasattr(result, "__dlpack__"):
        return [result]
    return [tensor for item in result for tensor in flat_outputs(item)]


def input_tensors(module: Any) -> tuple[NetworkTensor, ...]:
    """The inputs of a network.

    Raises:
        UnsupportedWorkload: one is no tensor, has no elements, or is of a shape that is known only
            when it runs.
    """
    found = tuple(_tensor(variable, variable.name) for variable in module[ENTRY].params)
    for tensor in found:
        if 0 in tensor.shape:
            raise UnsupportedWorkload(
                f"input {tensor.name!r} of the network has the shape {tensor.shape}, which has no "
                "elements: there is nothing to compute; give inputs with at least one"
            )
    return found


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
