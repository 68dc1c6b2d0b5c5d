"""The networks: Pruner's PaCM, and TenSet's MLP without data flow (reference: sizes of layers)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from autotune.errors import InvalidValueError

__all__ = [
    "DATAFLOW_WIDTH",
    "FLOW_LENGTH",
    "HIDDEN",
    "NORMALISER",
    "Normaliser",
    "PaCMNetwork",
    "RankingNetwork",
    "STATEMENT_WIDTH",
    "Scale",
    "TenSetNetwork",
    "Weights",
    "folded",
    "gathered",
    "give_weights",
    "normaliser_in",
    "queries_and_keys",
    "summed_attention",
    "weights_of",
]

STATEMENT_WIDTH = 174
"""Columns of a statement: the 164 features, and 10 that describe the task."""
DATAFLOW_WIDTH = 23
FLOW_LENGTH = 8
"""Accesses of the data-flow block."""

HIDDEN = 256
"""Width of an encoded statement."""
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
    """Scaling of a network's inputs.

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
        self,
        statements: torch.Tensor,
        which: torch.Tensor,
        programs: torch.Tensor,
        accesses: torch.Tensor,
        places: torch.Tensor,
    ) -> torch.Tensor:
        """Scores ``[n]``; what several programs have in common can be given, and encoded, once.

        Args:
            statements: ``[m, 174]``, those that occur.
            which: int64 ``[rows]``: which of them each statement of all programs is.
            programs: int64 ``[rows]``: the program, from 0 to n - 1, that it belongs to.
            accesses: ``[k, 23]``, those that occur.
            places: int64 ``[n, 8]``: which of them each program has in its data flow.
        """
        encoded = self.statement_encoder(statements).index_select(0, which)
        summed = encoded.new_zeros(len(places), HIDDEN).index_add(0, programs, encoded)
        tables = self.encode_accesses(accesses)
        return self.rank(summed, tuple(gathered(table, places) for table in tables))

    def encode_accesses(self, dataflow: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Encode each access by itself; by default nothing, as the network reads no data flow.

        Args:
            dataflow: ``[m, 23]``.

        Returns:
            Tensors ``[m, groups, width]``.
        """
        return ()

    def rank(self, summed: torch.Tensor, accesses: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """Scores ``[n]``.

        Args:
            summed: ``[n, 256]``: what ``statement_encoder`` made of the statements of each
                program, summed.
            accesses: What :meth:`encode_accesses` made of its accesses, each tensor as
                ``[n, groups, 8, width]``.
        """
        raise NotImplementedError


class PaCMNetwork(RankingNetwork):
    """Pruner's pattern-aware cost model; 417,409 parameters.

    Encoded statements are summed over the program. Encoded accesses attend to each other, are
    added to what they were, and summed too; no position is encoded, so their order makes no
    difference. Both are fused, normalised over the batch, and scored by residual layers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.statement_encoder = _encoder(STATEMENT_WIDTH, HIDDEN, HIDDEN)
        self.dataflow_encoder = _encoder(DATAFLOW_WIDTH, _FLOW // 2, _FLOW)
        self.attention = nn.MultiheadAttention(_FLOW, _HEADS, batch_first=True)
        self.fuse = nn.Sequential(nn.Linear(HIDDEN + _FLOW, HIDDEN), nn.ReLU())
        self.norm = nn.BatchNorm1d(HIDDEN)
        self.head = _Head()

    def encode_accesses(self, dataflow: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The encoded access ``[m, 1, 128]``; its query and key for each head, ``[m, 4, 64]``."""
        encoded = self.dataflow_encoder(dataflow)
        return encoded.unsqueeze(1), queries_and_keys(self.attention, encoded)

    def rank(self, summed: torch.Tensor, accesses: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """See :class:`RankingNetwork`."""
        fused = self.fuse(torch.cat([summed, self.flow(accesses)], dim=1))
        scores: torch.Tensor = self.head(self.norm(fused))
        return scores

    def flow(self, accesses: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """The data-flow branch: ``[n, 128]`` of encoded accesses."""
        encoded, projected = accesses
        encoded = encoded.squeeze(1)
        return encoded.sum(dim=1) + summed_attention(self.attention, encoded, projected)


class TenSetNetwork(RankingNetwork):
    """TenSet's MLP: the statement encoder and the residual layers of PaCM, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.statement_encoder = _encoder(STATEMENT_WIDTH, HIDDEN, HIDDEN)
        self.dataflow_encoder = None
        self.head = _Head()

    def rank(self, summed: torch.Tensor, accesses: tuple[torch.Tensor, ...]) -> torch.Tensor:
        """See :class:`RankingNetwork`."""
        scores: torch.Tensor = self.head(summed)
        return scores


def queries_and_keys(attention: nn.MultiheadAttention, x: torch.Tensor) -> torch.Tensor:
    """Query and key of self-attention for each head: ``[m, width]`` to ``[m, heads, 2 depth]``."""
    width, heads = attention.embed_dim, attention.num_heads
    weight, bias = attention.in_proj_weight[: 2 * width], attention.in_proj_bias[: 2 * width]
    projected = functional.linear(x, weight, bias).view(len(x), 2, heads, width // heads)
    return projected.transpose(1, 2).flatten(2)


def gathered(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Rows of ``[m, groups, width]`` at ``[n, 8]``, as ``[n, groups, 8, width]``."""
    groups = torch.arange(table.shape[1], device=table.device)
    rows = places.unsqueeze(1) * len(groups) + groups.unsqueeze(1)
    return table.flatten(0, 1).index_select(0, rows.flatten()).view(*rows.shape, -1)


def summed_attention(
    attention: nn.MultiheadAttention, x: torch.Tensor, projected: torch.Tensor
) -> torch.Tensor:
    """Self-attention of ``x`` ``[n, length, width]``, summed over the length: ``[n, width]``.

    Equal to ``attention(x, x, x)[0].sum(dim=1)`` with half the arithmetic. Values and outputs are
    linear, so both can be taken of the sum: how much a position is looked at by all of them
    together weighs the inputs, and the values are taken of that, once for each head.

    Args:
        attention: The layer.
        x: What attends to itself.
        projected: :func:`queries_and_keys` of ``x``, as ``[n, heads, length, 2 depth]``.
    """
    count, length, width = x.shape
    heads = attention.num_heads
    depth = width // heads
    value = attention.in_proj_weight[2 * width :]
    value_bias = attention.in_proj_bias[2 * width :]
    query, key = projected.split(depth, dim=-1)
    likeness = query @ key.transpose(-1, -2) * depth**-0.5
    # Written out: torch's softmax takes three times as long over so few positions.
    powers = torch.exp(likeness - likeness.detach().amax(dim=-1, keepdim=True))
    looks = (powers / powers.sum(dim=-1, keepdim=True)).sum(dim=-2)
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
        self.residual = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(2)])
        self.score = nn.Linear(HIDDEN, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.residual:
            x = torch.relu(layer(x)) + x
        scores: torch.Tensor = self.score(x).squeeze(1)
        return scores


def _encoder(width: int, hidden: int, output: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, output), nn.ReLU())


Weights = Mapping[str, NDArray[Any]]
"""Everything that a trained network is: parameters and buffers by name, as torch names them, and
the normaliser that it was trained with under names that torch gives nothing."""

NORMALISER = "normaliser."
"""Beginning of the names of a normaliser's arrays."""

_SCALES = ("statements", "dataflow")


def weights_of(network: RankingNetwork, normaliser: Normaliser) -> Weights:
    """The weights of a network, copied."""
    own = {
        name: tensor.detach().cpu().numpy().copy() for name, tensor in network.state_dict().items()
    }
    shifts = {f"{NORMALISER}{name}.shift": getattr(normaliser, name).shift for name in _SCALES}
    widths = {f"{NORMALISER}{name}.width": getattr(normaliser, name).width for name in _SCALES}
    return {**own, **shifts, **widths}


def normaliser_in(weights: Weights) -> Normaliser:
    """The normaliser among weights.

    Raises:
        InvalidValueError: there is none.
    """
    try:
        statements, dataflow = (
            Scale(weights[f"{NORMALISER}{name}.shift"], weights[f"{NORMALISER}{name}.width"])
            for name in _SCALES
        )
    except KeyError as error:
        raise InvalidValueError(f"not weights: {error} is missing") from error
    return Normaliser(statements, dataflow)


def give_weights(network: RankingNetwork, weights: Weights) -> None:
    """Give a network weights.

    Raises:
        InvalidValueError: they are of a network of another shape, or none.
    """
    normaliser_in(weights)
    tensors = {
        name: torch.tensor(array)
        for name, array in weights.items()
        if not name.startswith(NORMALISER)
    }
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        kind = type(network).__name__
        raise InvalidValueError(f"the weights do not fit a {kind}: {error}") from error
