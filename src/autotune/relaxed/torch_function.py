"""Relaxed tapes in a torch graph: one node whatever the length of the tape.

The only module of autotune that imports torch; nothing imports it by itself.
"""

from __future__ import annotations

from typing import Any

import torch

from autotune.errors import InvalidValueError
from autotune.relaxed.relaxed_tape import RelaxedTape

__all__ = ["relaxed_values"]


def relaxed_values(tape: RelaxedTape, x: torch.Tensor, threads: int = 1) -> torch.Tensor:
    """Outputs ``[n, outputs]`` of ``tape`` at points ``x`` ``[n, inputs]``, differentiable once.

    Args:
        tape: The tape.
        x: A matrix of float64 on the CPU.
        threads: Threads that share the rows, forward and backward.

    Raises:
        InvalidValueError: ``x`` is on another device, or as for :meth:`RelaxedTape.values`.
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
        ctx.tape = tape
        ctx.threads = threads
        return torch.from_numpy(tape.values(x.detach().numpy(), threads))

    @staticmethod
    def _backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (x,) = ctx.saved_tensors
        gradient = ctx.tape.vjp(x.detach().numpy(), cotangent.detach().numpy(), ctx.threads)
        return torch.from_numpy(gradient), None, None

    # There is no second derivative: asking for one is an error and not zero.
    backward = staticmethod(torch.autograd.function.once_differentiable(_backward))
