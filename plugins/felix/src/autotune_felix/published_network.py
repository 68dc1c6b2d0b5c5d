"""The network of Felix's released code, and its training."""

from __future__ import annotations

import copy

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray
from torch import nn

from autotune_felix.labelled import Labelled
from autotune_felix.learning import one_thread

__all__ = [
    "FINE_TUNING_RATE",
    "PRETRAINING_RATE",
    "PublishedNetwork",
    "fine_tune",
    "pretrain",
]

BATCH = 32
"""Programs of a batch, of both trainings."""

PRETRAINING_RATE = 7e-4
"""Of Adam, where a network begins with random weights."""

FINE_TUNING_RATE = 1e-4
"""Of Adam, where it goes on from others."""

_DECAY = 1e-6
_CLIP = 0.5
_HELD_SHARE = 0.1
_PATIENCE = 5


class PublishedNetwork(nn.Module):  # type: ignore[misc]
    """A set of statements to the logarithm of programs per second (Felix, ASPLOS'24).

    An encoder of two layers for each statement, the sum over the set, two residual layers and a
    linear one: 237,313 parameters for 154 columns and a width of 256. Columns are not scaled.

    Args:
        columns: Columns of a statement.
        width: Of all layers.
    """

    def __init__(self, columns: int, width: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.residual = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.last = nn.Linear(width, 1)

    def forward(self, statements: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Minus the logarithm of the predicted seconds, ``[n]``.

        Args:
            statements: ``[n, statements, columns]``; programs with fewer are padded.
            present: ``[n, statements, 1]``: 1 where a statement is one, 0 where it is padding.
        """
        pooled = (self.encoder(statements) * present).sum(dim=1)
        for layer in self.residual:
            pooled = pooled + torch.relu(layer(pooled))
        result: torch.Tensor = self.last(pooled)[:, 0]
        return result


@frozen
class _Tensors:
    """Programs, padded to equally many statements."""

    statements: torch.Tensor
    present: torch.Tensor
    labels: torch.Tensor

    @staticmethod
    def of(data: Labelled) -> _Tensors:
        n, most = len(data), int(data.counts.max(initial=1))
        statements = np.zeros((n, most, data.statements.shape[1]), dtype=np.float32)
        present = np.zeros((n, most, 1), dtype=np.float32)
        for places, rows in data.by_count():
            statements[places, : rows.shape[1]] = rows
            present[places, : rows.shape[1]] = 1.0
        labels = torch.from_numpy(-data.labels)
        return _Tensors(torch.from_numpy(statements), torch.from_numpy(present), labels)

    def loss(self, network: PublishedNetwork, indices: NDArray[np.int64]) -> torch.Tensor:
        """Mean squared error of the logarithm."""
        at = torch.from_numpy(indices)
        found = network(self.statements[at], self.present[at])
        return nn.functional.mse_loss(found, self.labels[at])


@one_thread()
def fine_tune(
    network: PublishedNetwork, data: Labelled, programs: int, rate: float, seed: int
) -> list[float]:
    """Train on all data until as many programs went by, or it gets no better.

    As in the released code: ``programs // n`` epochs, which end when the loss of an epoch has not
    improved for a fifth of them; gradients are not clipped in effect, and no data are held out.

    Args:
        network: Is changed in place.
        data: What to learn from, at least one program.
        programs: Programs of all batches together.
        rate: Of Adam.
        seed: Of the order of the programs.

    Returns:
        Mean loss of each epoch.
    """
    tensors, rng = _Tensors.of(data), np.random.default_rng(seed)
    epochs = programs // len(data)
    optimiser = torch.optim.Adam(network.parameters(), rate, weight_decay=_DECAY)
    losses: list[float] = []
    best = 0
    for epoch in range(epochs):
        losses.append(_epoch(network, tensors, optimiser, rng.permutation(len(data))))
        if losses[epoch] < losses[best]:
            best = epoch
        elif epoch - best >= max(1, epochs // 5):
            break
    return losses


@one_thread()
def pretrain(network: PublishedNetwork, data: Labelled, epochs: int, seed: int) -> list[float]:
    """Train on data of many tasks, and keep the weights that do best on a tenth of the programs.

    As in the released code: Adam with a rate of 7e-4, halved when nothing improves for five
    epochs, gradients clipped at 0.5; programs are held out, whatever their task.

    Args:
        network: Is changed in place.
        data: What to learn from, at least two programs.
        epochs: Passes over the data.
        seed: Of the order, and of what is held out.

    Returns:
        Loss on what is held out: at first, then after each epoch.
    """
    tensors, rng = _Tensors.of(data), np.random.default_rng(seed)
    order = rng.permutation(len(data))
    count = max(1, round(_HELD_SHARE * len(data)))
    held, kept = order[:count], order[count:]
    optimiser = torch.optim.Adam(network.parameters(), PRETRAINING_RATE, weight_decay=_DECAY)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, factor=0.5, patience=_PATIENCE
    )

    def judge() -> float:
        with torch.inference_mode():
            return float(tensors.loss(network, held))

    losses, best = [judge()], copy.deepcopy(network.state_dict())
    for _ in range(epochs):
        _epoch(network, tensors, optimiser, kept[rng.permutation(len(kept))], _CLIP)
        losses.append(judge())
        schedule.step(losses[-1])
        if losses[-1] == min(losses):
            best = copy.deepcopy(network.state_dict())
    network.load_state_dict(best)
    return losses


def _epoch(
    network: PublishedNetwork,
    tensors: _Tensors,
    optimiser: torch.optim.Optimizer,
    order: NDArray[np.int64],
    clip: float | None = None,
) -> float:
    """Take a step for each batch of programs in this order; returns the mean loss."""
    total = 0.0
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        optimiser.zero_grad()
        loss = tensors.loss(network, batch)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimiser.step()
        total += float(loss.detach()) * len(batch)
    return total / max(1, len(order))
