"""Running extremes and sums, in as many steps as the length has binary digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["scans"]


def scans(aten: Any) -> dict[Any, Any]:
    """By operator."""
    return {
        aten.cummax.default: _cumulative(_later_if_no_smaller),
        aten.cummin.default: _cumulative(_later_if_no_larger),
        aten.logcumsumexp.default: _cumulative_logarithm,
    }


def _cumulative(is_kept: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Running extremes and their places: each element is compared with that ``step`` before it,
    for every power of two."""
    import torch

    def decomposition(data: Any, dim: int) -> Any:
        if not data.dim():
            return data, torch.zeros_like(data, dtype=torch.int64)
        extent = data.shape[dim]
        shape = [1] * data.dim()
        shape[dim] = extent
        places = torch.arange(extent).reshape(shape).expand(data.shape)
        step = 1
        while step < extent:
            later, before = (
                data.narrow(dim, step, extent - step),
                data.narrow(dim, 0, extent - step),
            )
            kept = is_kept(later, before)
            first, then = (
                places.narrow(dim, 0, extent - step),
                places.narrow(dim, step, extent - step),
            )
            data = torch.cat([data.narrow(dim, 0, step), torch.where(kept, later, before)], dim)
            places = torch.cat([places.narrow(dim, 0, step), torch.where(kept, then, first)], dim)
            step *= 2
        return data, places

    return decomposition


def _later_if_no_smaller(later: Any, before: Any) -> Any:
    return later >= before


def _later_if_no_larger(later: Any, before: Any) -> Any:
    return later <= before


def _cumulative_logarithm(data: Any, dim: int) -> Any:
    """Logarithms of running sums of exponentials, by sums over powers of two."""
    import torch

    extent, step = data.shape[dim] if data.dim() else 1, 1
    while step < extent:
        later, before = data.narrow(dim, step, extent - step), data.narrow(dim, 0, extent - step)
        data = torch.cat([data.narrow(dim, 0, step), _logarithm_of_sum(later, before)], dim)
        step *= 2
    return data


def _logarithm_of_sum(left: Any, right: Any) -> Any:
    """Of the exponentials, in half the operations of ``torch.logaddexp``, also of infinities.

    All steps become one function, which takes as long to compile as it has operations.
    """
    import torch

    distance = (left - right).abs()
    total = torch.maximum(left, right) + torch.log1p(torch.exp(-distance))
    return torch.where(left == right, left + math.log(2.0), total)
