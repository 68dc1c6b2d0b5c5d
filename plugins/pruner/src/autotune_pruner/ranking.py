"""LambdaRank, the loss of ranking networks (reference: section 2.6, "Loss")."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

__all__ = ["lambda_rank_loss"]

_LEAST_DCG = 1e-10


def lambda_rank_loss(
    scores: torch.Tensor, labels: torch.Tensor, queries: torch.Tensor
) -> torch.Tensor:
    """Loss of a ranking, summed over the pairs of each query; a scalar, in bits.

    With ranks ``r`` from 1 by descending score, ``D = log2(1 + r)`` and
    ``G = (2^y - 1) / maxDCG``, a pair with ``y_i > y_j`` weighs ``|1/D_i - 1/D_j| |G_i - G_j|``
    times ``-log2(sigmoid(s_i - s_j))``. Only items of the same query make pairs. The published
    code cuts the logarithm off at ``log2(1e-10)``, from where a wrong order teaches it nothing
    more; here it continues.

    Args:
        scores: ``[n]``.
        labels: ``[n]``, in [0, 1]; the best of a query has 1.
        queries: int64 ``[n]``: the query of each item.
    """
    table, valid = _table(queries)
    s, y = scores[table], labels[table]
    with torch.no_grad():
        weights = _pair_weights(s, y, valid)
    difference = s.unsqueeze(2) - s.unsqueeze(1)
    loss: torch.Tensor = -(weights * functional.logsigmoid(difference)).sum() / math.log(2.0)
    return loss


def _table(queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Items of each query in a row, and which places of the table hold one; [queries, longest]."""
    _, query, counts = torch.unique(queries, return_inverse=True, return_counts=True)
    order = torch.argsort(query, stable=True)
    starts = torch.cumsum(counts, 0) - counts
    place = torch.arange(len(order), device=order.device) - starts[query[order]]
    table = order.new_zeros(len(counts), int(counts.max()) if len(counts) else 0)
    valid = torch.zeros_like(table, dtype=torch.bool)
    table[query[order], place] = order
    valid[query[order], place] = True
    return table, valid


def _pair_weights(s: torch.Tensor, y: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Weights ``[queries, i, j]`` of the pairs in which i should be ahead of j, else 0."""
    places = torch.arange(s.shape[1], dtype=s.dtype, device=s.device)
    discount = 1.0 / torch.log2(places + 2.0)
    order = s.masked_fill(~valid, -math.inf).argsort(dim=1, descending=True, stable=True)
    given = torch.zeros_like(s).scatter(1, order, discount.expand_as(s).contiguous())
    gain = (torch.exp2(y) - 1.0).masked_fill(~valid, 0.0)
    most = (gain.sort(dim=1, descending=True).values * discount).sum(dim=1, keepdim=True)
    gain = gain / most.clamp(min=_LEAST_DCG)
    wanted = (y.unsqueeze(2) > y.unsqueeze(1)) & valid.unsqueeze(2) & valid.unsqueeze(1)
    moved = (given.unsqueeze(2) - given.unsqueeze(1)).abs()
    return moved * (gain.unsqueeze(2) - gain.unsqueeze(1)).abs() * wanted
