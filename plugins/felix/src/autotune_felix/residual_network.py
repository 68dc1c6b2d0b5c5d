"""The network of `felix-mlp`: a set of statements to one number, several members at once."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray
from torch import nn

from autotune_felix.labelled import Labelled, Scale
from autotune_felix.learning import one_thread

__all__ = [
    "ResidualEnsemble",
    "TrainingSettings",
    "bounded",
    "train",
]


class _Dense(nn.Module):  # type: ignore[misc]
    """A linear layer of each member: ``[members, n, inputs]`` to ``[members, n, outputs]``."""

    def __init__(self, members: int, inputs: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        bound = gain * math.sqrt(3.0 / inputs)
        weight = torch.empty(members, inputs, outputs).uniform_(-bound, bound)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class ResidualEnsemble(nn.Module):  # type: ignore[misc]
    """Members that differ in their first weights; each maps programs to a residual.

    As in Felix (ASPLOS'24, section on the cost model) the statements of a program are encoded,
    summed, and read by residual layers; here by layers with a smooth activation, with what the
    analytic estimate says of the program beside the sum. The last layer begins with zeros: what
    has learned nothing predicts no residual.

    Args:
        members: Number of members.
        statement: Columns of a statement.
        program: Columns of a program.
        width: Width of all layers.
    """

    def __init__(self, members: int, statement: int, program: int, width: int) -> None:
        super().__init__()
        self.members = members
        self.first = _Dense(members, statement, width)
        self.second = _Dense(members, width, width)
        self.beside = _Dense(members, program, width)
        self.third = _Dense(members, width, width)
        self.last = _Dense(members, width, 1, gain=0.0)
        self.act = nn.SiLU()

    def forward(self, statements: torch.Tensor, programs: torch.Tensor) -> torch.Tensor:
        """Residuals ``[members, n]``.

        Args:
            statements: Scaled columns ``[n, statements, columns]``; all programs have as many.
            programs: Scaled columns ``[n, columns]``.
        """
        count, each, width = statements.shape
        rows = statements.reshape(1, count * each, width).expand(self.members, -1, -1)
        hidden = self.act(self.second(self.act(self.first(rows))))
        pooled = hidden.reshape(self.members, count, each, -1).sum(dim=2)
        pooled = pooled + self.beside(programs.expand(self.members, -1, -1))
        pooled = pooled + self.act(self.third(self.act(pooled)))
        result: torch.Tensor = self.last(self.act(pooled))[:, :, 0]
        return result


# A residual is at most a factor of so many powers of e, whatever the network extrapolates to.
_LIMIT = 3.0
# Fewer programs than this are all trained on.
_LEAST_HELD = 24
_HELD_SHARE = 0.2
_MOST_HELD = 2048
# With so many tasks, whole tasks are held out.
_MANY_TASKS = 10
_TASKS_OF_A_BATCH = 8
_CHECKS = 20


@frozen
class TrainingSettings:
    """Settings of training.

    Attributes:
        steps: Batches.
        batch: Programs of a batch; where others are replayed, as many of those again.
        learning_rate: Of Adam, at first; it falls to a hundredth along a cosine.
        clip: Largest L2 norm of the gradient, before the step.
        seed: Of the batches and of what is held out.
    """

    steps: int
    batch: int = 64
    learning_rate: float = 1e-3
    clip: float = 0.5
    seed: int = 0


def bounded(residuals: torch.Tensor) -> torch.Tensor:
    """Residuals within the limit, unchanged near zero."""
    return _LIMIT * torch.tanh(residuals / _LIMIT)


class _Tensors:
    """Scaled columns as tensors, programs with equally many statements together."""

    def __init__(self, data: Labelled, scales: tuple[Scale, Scale]) -> None:
        statements, programs = scales
        self._groups: list[torch.Tensor] = []
        self._group = np.zeros(len(data), dtype=np.int64)
        self._place = np.zeros(len(data), dtype=np.int64)
        for number, (places, rows) in enumerate(data.by_count()):
            scaled = (rows - statements.mean) / statements.spread
            self._groups.append(torch.from_numpy(scaled))
            self._group[places], self._place[places] = number, np.arange(len(places))
        self._programs = torch.from_numpy((data.programs - programs.mean) / programs.spread)
        self._labels = torch.from_numpy(data.labels)
        self._tasks = data.tasks

    def loss(self, network: ResidualEnsemble, indices: NDArray[np.int64]) -> torch.Tensor:
        """Mean Huber loss of residuals and labels, each less its mean over the task."""
        found = []
        order = []
        for number, rows in enumerate(self._groups):
            chosen = indices[self._group[indices] == number]
            if len(chosen):
                places = torch.from_numpy(self._place[chosen])
                beside = self._programs[torch.from_numpy(chosen)]
                found.append(bounded(network(rows[places], beside)))
                order.append(chosen)
        missing = torch.cat(found, dim=1) - self._labels[torch.from_numpy(np.concatenate(order))]
        _, tasks = np.unique(self._tasks[np.concatenate(order)], return_inverse=True)
        members = nn.functional.one_hot(torch.from_numpy(tasks)).to(missing.dtype)
        means = (missing @ members) / members.sum(dim=0)
        centred = missing - means @ members.T
        return nn.functional.huber_loss(centred, torch.zeros_like(centred))


@one_thread()
def train(
    network: ResidualEnsemble,
    own: Labelled,
    replayed: Labelled,
    scales: tuple[Scale, Scale],
    settings: TrainingSettings,
) -> tuple[float, float]:
    """Train in place; the weights that do best on what was held out are kept, also the first.

    Args:
        network: What to train, from the weights that it has.
        own: What to learn from; it teaches something.
        replayed: Older programs of other tasks, of which each batch has as many; may be empty.
        scales: Of statements and programs.
        settings: How.

    Returns:
        Losses on what was held out, or else on what was trained on: before, and at best.
    """
    rng = np.random.default_rng(settings.seed)
    kept, held = _split(own, rng)
    tensors = _Tensors(own, scales)
    older = _Tensors(replayed, scales) if len(replayed) else None
    judged = held if len(held) else kept[:_MOST_HELD]

    def judge() -> float:
        network.eval()
        with torch.inference_mode():
            return float(tensors.loss(network, judged))

    before = best = judge()
    weights = copy.deepcopy(network.state_dict())
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=1e-4
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimiser, settings.steps, settings.learning_rate / 100
    )
    # What is left of tiny data may hold no two programs of a task.
    own_tasks = _by_task(own, kept) or _by_task(own, np.arange(len(own)))
    other_tasks = _by_task(replayed, np.arange(len(replayed)))
    every = max(1, settings.steps // _CHECKS)
    for step in range(settings.steps):
        network.train()
        optimiser.zero_grad()
        loss = tensors.loss(network, _batch(own_tasks, settings.batch, rng))
        if older is not None and other_tasks:
            loss = loss + older.loss(network, _batch(other_tasks, settings.batch, rng))
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
        optimiser.step()
        schedule.step()
        if (step + 1) % every == 0 or step + 1 == settings.steps:
            now = judge()
            if now < best:
                best, weights = now, copy.deepcopy(network.state_dict())
    network.load_state_dict(weights)
    network.eval()
    return before, best


def _split(own: Labelled, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places to train on, and places that are held out: whole tasks where there are many."""
    everything = rng.permutation(len(own))
    if len(own) < _LEAST_HELD:
        return everything, everything[:0]
    tasks = np.unique(own.tasks)
    if len(tasks) >= _MANY_TASKS:
        out = rng.permutation(tasks)[: max(2, round(len(tasks) * _HELD_SHARE / 2))]
        is_held = np.isin(own.tasks[everything], out)
        return everything[~is_held], everything[is_held][:_MOST_HELD]
    count = min(_MOST_HELD, round(len(own) * _HELD_SHARE))
    return everything[count:], everything[:count]


def _by_task(data: Labelled, places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Places of each task that has at least two."""
    found = [places[data.tasks[places] == task] for task in np.unique(data.tasks[places])]
    return [each for each in found if len(each) > 1]


def _batch(
    tasks: Sequence[NDArray[np.int64]], size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Places of a batch: equally many of a few tasks."""
    chosen = rng.permutation(len(tasks))[:_TASKS_OF_A_BATCH].tolist()
    share = max(2, size // max(1, len(chosen)))
    return np.concatenate(
        [rng.choice(tasks[i], size=min(share, len(tasks[i])), replace=False) for i in chosen]
    )
