"""The networks: Pruner's PaCM, and TenSet's MLP without data flow (reference: sizes of layers)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

__all__ = [
    "DATAFLOW_WIDTH",
    "FLOW_LENGTH",
    "STATEMENT_WIDTH",
    "Normaliser",
    "PaCMNetwork",
    "RankingNetwork",
    "Scale",
    "TenSetNetwork",
    "folded",
]

STATEMENT_WIDTH = 174
"""Columns of a statement: the 164 features, and 10 that describe the task."""
DATAFLOW_WIDTH = 23
FLOW_LENGTH = 8
"""Accesses of the data-flow block."""

_HIDDEN = 256
_FLOW = 128
_HEADS = 4


@frozen(eq=False)
class Scale:
    """Makes columns comparable: ``(values - shift) / width``.

    Attributes:
        shift, width: float32 ``[columns]``.
    """

    shift: NDArray[Any]
    width: NDArray[Any]

    def apply(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The columns in the last dimension of ``values``, scaled."""
        scaled: NDArray[np.float32] = ((values - self.shift) / self.width).astype(np.float32)
        return scaled


@frozen(eq=False)
class Normaliser:
    """How inputs of a network are scaled.

    Attributes:
        statements: Of the 174 columns of a statement.
        dataflow: Of the 23 columns of an access.
    """

    statements: Scale
    dataflow: Scale


class RankingNetwork(nn.Module):  # type: ignore[misc]
    """A network that scores programs; higher is better, and only differences mean something.

    Attributes:
        statement_encoder: Its first layer reads normalised columns of statements.
        dataflow_encoder: Its first layer reads normalised columns of accesses; None if the
            network does not look at the data flow.
    """

    statement_encoder: Any
    dataflow_encoder: Any

    def forward(
        self, statements: torch.Tensor, programs: torch.Tensor, dataflow: torch.Tensor
    ) -> torch.Tensor:
        """Scores ``[n]``.

        Args:
            statements: ``[rows, 174]``, the statements of all programs.
            programs: int64 ``[rows]``: the program, from 0 to n - 1, of each statement.
            dataflow: ``[n, 8, 23]``.
        """
        raise NotImplementedError

    def _summed(
        self, statements: torch.Tensor, programs: torch.Tensor, count: int
    ) -> torch.Tensor:
        encoded = self.statement_encoder(statements)
        return encoded.new_zeros(count, _HIDDEN).index_add(0, programs, encoded)


class PaCMNetwork(RankingNetwork):
    """Pruner's pattern-aware cost model; 417,409 parameters.

    Encoded statements are summed over the program. Encoded accesses attend to each other, are
    added to what they were, and summed too; no position is encoded, so their order makes no
    difference. Both are fused, normalised over the batch, and scored by residual layers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.statement_encoder = _encoder(STATEMENT_WIDTH, _HIDDEN, _HIDDEN)
        self.dataflow_encoder = _encoder(DATAFLOW_WIDTH, _FLOW // 2, _FLOW)
        self.attention = nn.MultiheadAttention(_FLOW, _HEADS, batch_first=True)
        self.fuse = nn.Sequential(nn.Linear(_HIDDEN + _FLOW, _HIDDEN), nn.ReLU())
        self.norm = nn.BatchNorm1d(_HIDDEN)
        self.head = _Head()

    def forward(
        self, statements: torch.Tensor, programs: torch.Tensor, dataflow: torch.Tensor
    ) -> torch.Tensor:
        """Scores ``[n]``; see :class:`RankingNetwork`."""
        summed = self._summed(statements, programs, len(dataflow))
        fused = self.fuse(torch.cat([summed, self.flow(dataflow)], dim=1))
        scores: torch.Tensor = self.head(self.norm(fused))
        return scores

    def flow(self, dataflow: torch.Tensor) -> torch.Tensor:
        """The data-flow branch: ``[n, 8, 23]`` to ``[n, 128]``."""
        accesses = self.dataflow_encoder(dataflow)
        return accesses.sum(dim=1) + summed_attention(self.attention, accesses)


class TenSetNetwork(RankingNetwork):
    """TenSet's MLP: the statement encoder and the residual layers of PaCM, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.statement_encoder = _encoder(STATEMENT_WIDTH, _HIDDEN, _HIDDEN)
        self.dataflow_encoder = None
        self.head = _Head()

    def forward(
        self, statements: torch.Tensor, programs: torch.Tensor, dataflow: torch.Tensor
    ) -> torch.Tensor:
        """Scores ``[n]``; see :class:`RankingNetwork`."""
        scores: torch.Tensor = self.head(self._summed(statements, programs, len(dataflow)))
        return scores


def summed_attention(attention: nn.MultiheadAttention, x: torch.Tensor) -> torch.Tensor:
    """Self-attention of ``x`` ``[n, length, width]``, summed over the length: ``[n, width]``.

    Equal to ``attention(x, x, x)[0].sum(dim=1)`` with half the arithmetic. Values and outputs are
    linear, so both can be taken of the sum: how much a position is looked at by all of them
    together weighs the inputs, and the values are taken of that, once for each head.
    """
    count, length, width = x.shape
    heads = attention.num_heads
    depth = width // heads
    query_key, value = attention.in_proj_weight.split([2 * width, width])
    query_key_bias, value_bias = attention.in_proj_bias.split([2 * width, width])
    projected = functional.linear(x, query_key, query_key_bias)
    query, key = projected.view(count, length, 2, heads, depth).permute(2, 0, 3, 1, 4)
    looks = torch.softmax(query @ key.transpose(-1, -2) * depth**-0.5, dim=-1).sum(dim=-2)
    pooled = (looks @ x).transpose(0, 1)  # [heads, n, width]
    values = (pooled @ value.view(heads, depth, width).transpose(1, 2)).transpose(0, 1)
    joined = values.reshape(count, width) + length * value_bias
    output: torch.Tensor = functional.linear(joined, attention.out_proj.weight)
    return output + length * attention.out_proj.bias


def folded(network: RankingNetwork, normaliser: Normaliser) -> RankingNetwork:
    """A copy for inference: in evaluation mode, and it takes columns as they are.

    The normaliser goes into the first layers: ``W (x - m) / d + b = (W / d) x + b - (W / d) m``.
    """
    result: RankingNetwork = copy.deepcopy(network).eval().requires_grad_(False)
    _fold(result.statement_encoder[0], normaliser.statements)
    if result.dataflow_encoder is not None:
        _fold(result.dataflow_encoder[0], normaliser.dataflow)
    return result


def _fold(layer: nn.Linear, scale: Scale) -> None:
    # In double precision: much of a shift that is large against its width cancels.
    width = torch.from_numpy(scale.width).to(layer.weight.device, torch.float64)
    shift = torch.from_numpy(scale.shift).to(layer.weight.device, torch.float64)
    weight = layer.weight.double() / width
    layer.bias.copy_(layer.bias.double() - weight @ shift)
    layer.weight.copy_(weight)


class _Head(nn.Module):  # type: ignore[misc]
    """Two residual layers and a score: ``[n, 256]`` to ``[n]``."""

    def __init__(self) -> None:
        super().__init__()
        self.residual = nn.ModuleList([nn.Linear(_HIDDEN, _HIDDEN) for _ in range(2)])
        self.score = nn.Linear(_HIDDEN, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.residual:
            x = torch.relu(layer(x)) + x
        scores: torch.Tensor = self.score(x).squeeze(1)
        return scores


def _encoder(width: int, hidden: int, output: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, output), nn.ReLU())
