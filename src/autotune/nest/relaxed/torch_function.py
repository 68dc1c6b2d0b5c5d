"""Relaxed tapes in a torch graph: one node whatever the length of the tape.

The only module of autotune that imports torch; nothing imports it by itself.
"""

from __future__ import annotations

from typing import Any

import torch

from autotune.errors import InvalidValueError
from autotune.nest.relaxed.relaxed_tape import RelaxedTape

__all__ = ["relaxed_values"]


def relaxed_values(tape: RelaxedTape, x: torch.Tensor, threads: int = 1) -> torch.Tensor:
    """Outputs ``[n, outputs]`` of ``tape`` at points ``x`` ``[n, inputs]``, differentiable once.

    Args:
        tape: The tape.
        x: A matrix of float64 on the CPU.
        threads: Threads that share the rows, forward and backward.

    Raises:
        InvalidValueError: ``x`` is on another device, or as for :meth:`RelaxedTape.values`;
            later, where a gradient is differentiated again.
    """
    if x.device.type != "cpu":
        raise InvalidValueError(f"a tape is evaluated on the CPU; the points are on {x.device}")
    if x.dtype != torch.float64:
        raise InvalidValueError(f"a tape takes points of torch.float64, not of {x.dtype}")
    result: torch.Tensor = _RelaxedValues.apply(x, tape, threads)
    return result


class _RelaxedValues(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tape: RelaxedTape, threads: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.tape, ctx.threads = tape, threads
        return torch.from_numpy(tape.values(x.detach().numpy(), threads))

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return _RelaxedGradient.apply(x, cotangent, ctx.tape, ctx.threads), None, None


class _RelaxedGradient(torch.autograd.Function):  # type: ignore[misc]
    """A node of its own, so that differentiating it again raises, and does not give zero."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, cotangent: torch.Tensor, tape: RelaxedTape, threads: int
    ) -> torch.Tensor:
        gradient = tape.vjp(x.detach().numpy(), cotangent.detach().numpy(), threads)
        return torch.from_numpy(gradient)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        raise InvalidValueError("a relaxed tape can be differentiated once, not twice")
