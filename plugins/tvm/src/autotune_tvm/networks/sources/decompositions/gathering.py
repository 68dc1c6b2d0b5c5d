"""Bags of embeddings, and scatters that take means or start anew."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["gathering"]


def gathering(aten: Any) -> dict[Any, Any]:
    """By operator."""
    return {
        aten._embedding_bag_forward_only.default: _embedding_bag,
        aten._embedding_bag.default: _embedding_bag,
        aten.scatter_reduce.two: _scatter_reduce,
    }


def _embedding_bag(
    table: Any,
    indices: Any,
    offsets: Any,
    scale_grad: bool = False,
    mode: int = 0,
    sparse: bool = False,
    factors: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (``mode`` 0), means (1) or extremes (2) of the rows of each bag.

    Which row belongs to which bag is a matrix of ones and zeros; sums are a product with it.
    """
    import torch

    if include_last_offset:
        offsets = offsets[:-1]
    count = offsets.shape[0]
    places = torch.arange(indices.shape[0], dtype=offsets.dtype)
    bag = torch.sum((offsets.unsqueeze(1) <= places).to(torch.int64), 0) - 1
    members = torch.arange(count).unsqueeze(1) == bag
    if padding_idx >= 0:
        members = members & (indices != padding_idx)
    rows = torch.index_select(table, 0, indices)
    if mode == 2 and indices.shape[0] == 0:
        # Nothing has no extremes; a bag without rows is zeros.
        result = table.new_zeros((count, table.shape[1]))
    elif mode == 2:
        each = torch.where(members.unsqueeze(-1), rows.unsqueeze(0), -math.inf)
        result = torch.amax(each, 1)
        result = torch.where(torch.any(members, 1).unsqueeze(1), result, 0.0)
    else:
        if factors is not None:
            rows = rows * factors.unsqueeze(1)
        weights = members.to(table.dtype)
        result = torch.matmul(weights, rows)
        if mode == 1:
            result = result / torch.clamp(torch.sum(weights, 1, keepdim=True), min=1.0)
    return result, bag, torch.sum(members.to(torch.int64), 1), offsets


def _scatter_reduce(
    data: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """Means, and scatters that ignore what is there where something is written."""
    import torch

    if include_self and reduce != "mean":
        return NotImplemented
    ones = torch.ones_like(source)
    written = torch.scatter_add(torch.zeros_like(data), dim, index, ones)
    start = data
    if not include_self:
        start = torch.where(written > 0, _neutral(data.dtype, reduce), data)
    if reduce != "mean":
        return torch.scatter_reduce(start, dim, index, source, reduce, include_self=True)
    total = torch.scatter_add(start, dim, index, source)
    many = torch.clamp(written + (1.0 if include_self else 0.0), min=1.0).to(data.dtype)
    rounding = None if data.dtype.is_floating_point else "floor"
    return torch.div(total, many, rounding_mode=rounding)


def _neutral(dtype: Any, reduce: str) -> float:
    """What a reduction starts from."""
    import torch

    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype.is_floating_point:
        return -math.inf if reduce == "amax" else math.inf
    limits = torch.iinfo(dtype)
    return int(limits.min if reduce == "amax" else limits.max)
