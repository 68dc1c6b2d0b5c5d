"""Tell whether a network computes what its model does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.ir.element_types import element_type
from autotune.networks.arrays import as_numpy
from autotune.networks.frontend import NetworkTensor
from autotune.targets import TF32_EPS, Target, allows_tf32

__all__ = ["TOLERANCE", "Difference", "compare_outputs"]

TOLERANCE = 2.0
"""Largest error of an element, in units of the root of its type's ``eps``, times its own size and
the root mean square of its tensor: half of the digits may be lost on the way through a network. An
operator that computes something else is off by about the size of the tensor. Where TF32 is
allowed, ``eps`` of float32 is that of TF32."""


@frozen
class Difference:
    """The difference of one output from the model's that is largest beside its bound.

    Attributes:
        output: Its name.
        error: Absolute difference of that element; infinite where only one of both is a number.
        allowed: Its bound.
        scale: Root mean square of the model's output.
        wrong: How many elements are beyond their bounds.
        problem: Why the arrays cannot be compared, such as another shape; "" where they can.
    """

    output: str
    error: float
    allowed: float
    scale: float
    wrong: int
    problem: str = ""

    @property
    def ok(self) -> bool:
        """True if the output is right."""
        return not (self.wrong or self.problem)

    def __str__(self) -> str:
        if self.problem:
            return f"output {self.output!r} {self.problem}"
        return (
            f"output {self.output!r}: error {self.error:.3g}, allowed {self.allowed:.3g} "
            f"(root mean square {self.scale:.3g}, {self.wrong} elements beyond their bounds)"
        )


def compare_outputs(
    tensors: Sequence[NetworkTensor],
    wanted: Sequence[Any],
    found: Sequence[Any],
    target: Target | None = None,
    eps: float = 0.0,
) -> list[Difference]:
    """Compare each output with the model's.

    Args:
        tensors: The outputs of the network.
        wanted: What the model computes.
        found: What the network computes.
        target: What it runs on, if it has a part in how the network may round.
        eps: Of floats that the network computes with inside: bounds of its outputs that are
            floats are at least theirs.
    """
    count = len(tensors)
    if len(wanted) != count or len(found) != count:
        problem = f"is one of {len(wanted)} of the model, and the network has {len(found)}"
        return [Difference(tensors[0].name if tensors else "", math.inf, 0, 0, 0, problem)]
    return [
        _difference(tensor, as_numpy(want), as_numpy(got), _eps(tensor.dtype, target, eps))
        for tensor, want, got in zip(tensors, wanted, found, strict=True)
    ]


def _eps(dtype: str, target: Target | None, inside: float) -> float:
    """From 1 to the next larger number of a type; 0 for integers, also those that no task has."""
    if dtype == "float32" and target is not None and allows_tf32(target):
        return max(TF32_EPS, inside)
    is_integer = dtype.removeprefix("u").startswith("int")
    own = 0.0 if is_integer else element_type(dtype).eps
    return max(own, inside) if own else 0.0


def _difference(
    tensor: NetworkTensor, want: NDArray[Any], got: NDArray[Any], eps: float
) -> Difference:
    if want.shape != got.shape or want.dtype != got.dtype:
        problem = (
            f"is {got.dtype}{list(got.shape)}, and the model's {want.dtype}{list(want.shape)}"
        )
        return Difference(tensor.name, math.inf, 0.0, 0.0, got.size, problem)
    wide_want, wide_got = want.astype(np.float64), got.astype(np.float64)
    finite = np.where(np.isfinite(wide_want), wide_want, 0.0)
    scale = math.sqrt(float(np.mean(finite * finite))) if finite.size else 0.0
    bound = TOLERANCE * math.sqrt(eps) * (np.abs(finite) + scale)
    with np.errstate(all="ignore"):
        error = np.abs(wide_got - wide_want)
    same = (wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want))
    error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
    if not error.size:
        return Difference(tensor.name, 0.0, 0.0, 0.0, 0)
    # Where nothing may be off, whatever is off is infinitely too much.
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error == 0, 0.0, error / bound)
    worst = np.where(share == share.max(), error, -1.0)
    place = np.unravel_index(int(np.argmax(worst)), error.shape)
    wrong = int((error > bound).sum())
    return Difference(tensor.name, float(error[place]), float(bound[place]), scale, wrong)
