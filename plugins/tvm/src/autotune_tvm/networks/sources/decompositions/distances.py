"""Distances of pairs, and products of three."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["distances"]


def distances(aten: Any) -> dict[Any, Any]:
    """By operator."""
    return {
        aten._cdist_forward.default: _distances,
        aten.addbmm.default: _sum_of_products,
        aten._trilinear.default: _trilinear,
    }


def _sum_of_products(bias: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    import torch

    return beta * bias + alpha * torch.sum(torch.bmm(left, right), 0)


def _trilinear(
    first: Any,
    second: Any,
    third: Any,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: int = 1,
) -> Any:
    """The product of three tensors, each with further dimensions, summed over some."""
    import torch

    expanded = []
    for operand, dims in ((first, expand1), (second, expand2), (third, expand3)):
        for dim in sorted(dims):
            operand = operand.unsqueeze(dim)
        expanded.append(operand)
    return torch.sum(expanded[0] * expanded[1] * expanded[2], list(sumdim))


def _distances(left: Any, right: Any, power: float, mode: Any) -> Any:
    """Distances of all pairs of rows by a norm."""
    import torch

    apart = torch.abs(left.unsqueeze(-2) - right.unsqueeze(-3))
    if power == 0:
        return torch.sum((apart != 0).to(left.dtype), -1)
    if power == 1:
        return torch.sum(apart, -1)
    if power == 2:
        return torch.sqrt(torch.sum(apart * apart, -1))
    if math.isinf(power):
        return torch.amax(apart, -1)
    return torch.pow(torch.sum(torch.pow(apart, power), -1), 1.0 / power)
