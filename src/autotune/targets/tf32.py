"""TF32, by choice: factors of float32 products rounded to 10 bits, as tensor cores take them.

It changes what programs compute, so it is part of the target: of its name, and of its features, by
which records with and without it are told apart.
"""

from __future__ import annotations

from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.targets.target import Target

__all__ = ["TF32_EPS", "TF32_SUFFIX", "allows_tf32", "with_tf32"]

TF32_SUFFIX = "-tf32"
"""What the name of a target ends in that allows it."""

TF32_EPS = 2.0**-10
"""The distance of 1 to the next number of 10 bits."""

_FEATURE = "tf32"
# Of the rate for 16-bit factors, by the data sheets of A100 and H100.
_RATE_OF_HALVES = 0.5


def allows_tf32(target: Target) -> bool:
    """Return whether factors of float32 products may be rounded to TF32."""
    return _FEATURE in target.features


def with_tf32(target: Target) -> Target:
    """The same GPU, with TF32 allowed.

    Raises:
        InvalidValueError: it is no GPU.
    """
    if target.kind != "cuda":
        raise InvalidValueError(f"target {target.name!r} is no GPU: only these have TF32")
    halves = target.tensor_peak_flops.get("float16")
    own = {"float32": halves * _RATE_OF_HALVES} if halves else {}
    return evolve(
        target,
        name=f"{target.name}{TF32_SUFFIX}",
        features=(*target.features, _FEATURE),
        tensor_peak_flops={**target.tensor_peak_flops, **own},
    )
