"""Training a network to rank programs (reference: section 2.7)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from attrs import frozen
from numpy.typing import NDArray
from torch.nn import functional

from autotune_pruner.networks import (
    DATAFLOW_WIDTH,
    FLOW_LENGTH,
    HIDDEN,
    Normaliser,
    RankingNetwork,
    gathered,
)
from autotune_pruner.programs import Programs, TrainingData

__all__ = [
    "Batch",
    "History",
    "NOTHING_TO_LEARN",
    "TrainingSettings",
    "deterministic",
    "distinct_rows",
    "fit",
    "lambda_rank_loss",
    "recent_batches",
    "scores_of",
    "shuffled_batches",
    "split_rows",
]

NOTHING_TO_LEARN = "nothing to learn from: no task has two programs of which one is better"

_LONG = 70
_SMOOTHING = 0.95
# Pairs of a list take the square of its length in memory.
_LIST = 128
# From so many tasks on, some are held out whole.
_MANY_TASKS = 10


@frozen
class TrainingSettings:
    """Settings of training; defaults are the published ones but for ``validation`` and ``mixed``.

    Attributes:
        epochs: At most so many.
        learning_rate: Of Adam; from 70 epochs on it is halved after each third of them.
        weight_decay: Of Adam.
        batch: Programs of a batch.
        clip: Largest L2 norm of the gradient.
        validation: Share that is held out, see :func:`split_rows`. The weights of the epoch with
            the lowest loss there are kept, and training stops when it has not fallen for a third
            of the epochs (30 epochs from 70 on). With 0 the smoothed training loss decides when to
            stop, and the last weights are kept.
        mixed: Rank all programs of a batch against each other, whatever their tasks, as
            published; otherwise those of one task.
        seed: Of the order of the batches.
        threads: Of torch. Results are reproducible for a fixed number.
    """

    epochs: int = 50
    learning_rate: float = 7e-4
    weight_decay: float = 1e-6
    batch: int = 512
    clip: float = 0.5
    validation: float = 0.0
    mixed: bool = False
    seed: int = 0
    threads: int = 1

    @property
    def patience(self) -> int:
        """Epochs without improvement after which training stops."""
        return 30 if self.epochs >= _LONG else max(1, self.epochs // 3)


@frozen
class History:
    """Training report.

    Attributes:
        losses: Mean loss of the batches of each epoch.
        validation_losses: Loss of the held-out share after each epoch; empty without one.
        kept_epoch: Index of the epoch whose weights were kept; -1 if none was trained.
        message: Why nothing was trained; "" if something was.
    """

    losses: tuple[float, ...] = ()
    validation_losses: tuple[float, ...] = ()
    kept_epoch: int = -1
    message: str = ""


@frozen(eq=False)
class Batch:
    """Programs that are trained on at once.

    Attributes:
        indices: int64 ``[n]``: which ones.
        queries: int64 ``[n]``: those of the same number are ranked against each other.
    """

    indices: NDArray[np.int64]
    queries: NDArray[np.int64]


MakeBatches = Callable[[TrainingData, TrainingSettings, np.random.Generator], list[Batch]]


def fit(
    network: RankingNetwork,
    data: TrainingData,
    normaliser: Normaliser,
    settings: TrainingSettings,
    make_batches: MakeBatches | None = None,
) -> History:
    """Train a network in place, and leave it in evaluation mode.

    Args:
        network: What to train, from the weights that it has.
        data: What to learn from, as it is.
        normaliser: How its columns are scaled.
        settings: How to train.
        make_batches: The batches of an epoch; by default :func:`shuffled_batches`.

    Returns:
        The course of the training. Data that teach nothing (none, failures only, a single
        program of each task) leave the network as it was, with a message.
    """
    if not data.teaches:
        return History(message=NOTHING_TO_LEARN)
    rng = np.random.default_rng(settings.seed)
    training, validation = split_rows(data, settings.validation, rng)
    if not training.teaches:
        training, validation = data, None
    with deterministic(settings.threads):
        trainer = _Trainer(network, training, validation, normaliser, settings)
        history = trainer.run(make_batches or shuffled_batches, rng)
    network.eval()
    return history


@contextmanager
def deterministic(threads: int) -> Iterator[None]:
    """Let torch compute reproducibly with this many threads; afterwards as before."""
    before = torch.get_num_threads()
    was = torch.are_deterministic_algorithms_enabled()
    # Filling what is overwritten anyway would only take time.
    filled = torch.utils.deterministic.fill_uninitialized_memory
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.use_deterministic_algorithms(was)
        torch.set_num_threads(before)


def shuffled_batches(
    data: TrainingData, settings: TrainingSettings, rng: np.random.Generator
) -> list[Batch]:
    """All programs once, in lists of one task each, shuffled; mixed, in lists of a batch."""
    count = len(data.programs)
    if settings.mixed:
        parts = np.array_split(rng.permutation(count), math.ceil(count / settings.batch))
        return [Batch(part, np.zeros(len(part), dtype=np.int64)) for part in parts]
    lists: list[NDArray[np.int64]] = []
    for task in np.unique(data.tasks):
        members = rng.permutation(np.flatnonzero(data.tasks == task))
        length = min(_LIST, settings.batch)
        lists += np.array_split(members, math.ceil(len(members) / length))
    lists = [lists[index] for index in rng.permutation(len(lists))]
    batches, start = [], 0
    for end in range(1, len(lists) + 1):
        following = len(lists[end]) if end < len(lists) else settings.batch
        if sum(map(len, lists[start:end])) + following > settings.batch:
            batches.append(_batch(lists[start:end]))
            start = end
    return batches


def recent_batches(recent: int) -> MakeBatches:
    """Batches for fine-tuning: one an epoch, of the last programs and of a sample of the others.

    Args:
        recent: How many programs at the end are in every batch, as far as there is room.
    """

    def make(
        data: TrainingData, settings: TrainingSettings, rng: np.random.Generator
    ) -> list[Batch]:
        count = len(data.programs)
        always = np.arange(max(count - min(recent, settings.batch), 0), count)
        room = min(settings.batch - len(always), int(always[0]))
        others = rng.choice(int(always[0]), size=room, replace=False)
        indices = np.sort(np.concatenate([others, always]))
        queries = np.zeros(len(indices), np.int64) if settings.mixed else data.tasks[indices]
        return [Batch(indices, queries)]

    return make


def _batch(lists: list[NDArray[np.int64]]) -> Batch:
    numbers = np.repeat(np.arange(len(lists)), [len(part) for part in lists])
    return Batch(np.concatenate(lists), numbers)


def split_rows(
    data: TrainingData, share: float, rng: np.random.Generator
) -> tuple[TrainingData, TrainingData | None]:
    """Training data, and the held-out data that stop training.

    Of ten tasks and more, some are held out whole: what a network continues to learn of the tasks
    that it sees, long after it has stopped to learn what holds for others, must not count. Of
    fewer, some rows of each.

    Args:
        data: All rows.
        share: Of the tasks, or of each task's rows, that is held out.
        rng: Chooses them.

    Returns:
        Both parts; all, and None, where what is held out would teach nothing.
    """
    if not share:
        return data, None
    tasks = np.unique(data.tasks)
    if len(tasks) >= _MANY_TASKS:
        chosen = rng.choice(tasks, size=round(share * len(tasks)), replace=False)
        held = np.isin(data.tasks, chosen)
    else:
        held = np.zeros(len(data.programs), dtype=np.bool_)
        for task in tasks:
            members = rng.permutation(np.flatnonzero(data.tasks == task))
            held[members[: round(share * len(members))]] = True
    validation = data.take(np.flatnonzero(held))
    if not validation.teaches:
        return data, None
    return data.take(np.flatnonzero(~held)), validation


class _Tensors:
    """Training data on the network's device, normalised; rows that are the same are there once."""

    def __init__(self, data: TrainingData, normaliser: Normaliser, device: torch.device) -> None:
        self.programs: Programs = data.programs
        self.device = device
        statements, self.which = distinct_rows(data.programs.statements)
        accesses, places = distinct_rows(data.programs.dataflow.reshape(-1, DATAFLOW_WIDTH))
        self.places = places.reshape(-1, FLOW_LENGTH)
        self.statements = self._on_device(normaliser.statements.apply(statements))
        self.accesses = self._on_device(normaliser.dataflow.apply(accesses))
        self.labels = self._on_device(data.labels)

    def _on_device(self, values: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def loss(self, network: RankingNetwork, batch: Batch) -> torch.Tensor:
        rows, owners = self.programs.rows(batch.indices)
        statements, which = np.unique(self.which[rows], return_inverse=True)
        accesses, places = np.unique(self.places[batch.indices], return_inverse=True)
        scores = network(
            self.statements[self._on_device(statements)],
            self._on_device(which),
            self._on_device(owners),
            self.accesses[self._on_device(accesses)],
            self._on_device(places.reshape(-1, FLOW_LENGTH)),
        )
        labels = self.labels[self._on_device(batch.indices)]
        return lambda_rank_loss(scores, labels, self._on_device(batch.queries))


class _Trainer:
    """State of a training: a network, its data, and what is known about it so far."""

    def __init__(
        self,
        network: RankingNetwork,
        training: TrainingData,
        validation: TrainingData | None,
        normaliser: Normaliser,
        settings: TrainingSettings,
    ) -> None:
        device = next(network.parameters()).device
        self._network = network
        self._settings = settings
        self._data = training
        self._training = _Tensors(training, normaliser, device)
        self._held_out = validation
        self._validation: _Tensors | None = None
        if validation is not None:
            self._validation = _Tensors(validation, normaliser, device)
        self._optimiser = torch.optim.Adam(
            network.parameters(),
            settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._smoothed: float | None = None

    def run(self, make_batches: MakeBatches, rng: np.random.Generator) -> History:
        settings = self._settings
        losses: list[float] = []
        watched: list[float] = []
        kept: dict[str, torch.Tensor] | None = None
        schedule = torch.optim.lr_scheduler.StepLR(
            self._optimiser,
            max(1, settings.epochs // 3),
            gamma=0.5 if settings.epochs >= _LONG else 1.0,
        )
        for epoch in range(settings.epochs):
            losses.append(self._epoch(make_batches(self._data, settings, rng)))
            schedule.step()
            watched.append(self._watched())
            if watched[-1] == min(watched) and self._validation is not None:
                kept = copy.deepcopy(self._network.state_dict())
            if epoch - int(np.argmin(watched)) >= settings.patience:
                break
        if kept is None:
            return History(tuple(losses), (), len(losses) - 1)
        self._network.load_state_dict(kept)
        return History(tuple(losses), tuple(watched), int(np.argmin(watched)))

    def _epoch(self, batches: list[Batch]) -> float:
        self._network.train()
        losses = []
        for batch in batches:
            # The network normalises over the batch, which takes two programs.
            if len(batch.indices) < 2:
                continue
            loss = self._training.loss(self._network, batch)
            self._optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self._network.parameters(), self._settings.clip)
            self._optimiser.step()
            losses.append(float(loss.detach()))
            before = losses[-1] if self._smoothed is None else self._smoothed
            self._smoothed = _SMOOTHING * before + (1 - _SMOOTHING) * losses[-1]
        return float(np.mean(losses)) if losses else 0.0

    def _watched(self) -> float:
        """Loss that must fall for training to continue."""
        if self._validation is None or self._held_out is None:
            return self._smoothed or 0.0
        self._network.eval()
        batches = shuffled_batches(self._held_out, self._settings, np.random.default_rng(0))
        with torch.no_grad():
            losses = [float(self._validation.loss(self._network, each)) for each in batches]
        return float(np.sum(losses))


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


# Rows that go through a layer at once, always so many: what a matrix product rounds to depends on
# its size, and a score must not depend on the rest of the batch. Fewer would fetch the weights
# more often.
_BLOCK = 256


def scores_of(
    network: RankingNetwork, programs: Programs, device: torch.device
) -> NDArray[np.float64]:
    """Scores ``[n]``; that of a program is the same, bit by bit, whatever is scored with it.

    Candidates of a search differ in a few parameters, so that many statements and accesses are
    those of another candidate too: these are encoded once.

    Args:
        network: In evaluation mode, reads columns as they are, on ``device``.
        programs: What is scored.
        device: Where torch computes.
    """
    count = len(programs)
    if not count:
        return np.zeros(0)
    statements, which = distinct_rows(programs.statements)
    (encoded,) = _in_blocks(lambda rows: (network.statement_encoder(rows),), statements, device)
    owners = np.repeat(np.arange(count, dtype=np.int64), np.diff(programs.offsets))
    # Added one after the other, in the order of a program's statements.
    summed = encoded.new_zeros(count, HIDDEN).index_add(
        0, _on(owners, device), encoded.index_select(0, _on(which, device))
    )
    accesses, place = distinct_rows(programs.dataflow.reshape(-1, DATAFLOW_WIDTH))
    tables = _in_blocks(network.encode_accesses, accesses, device)
    places = _on(place.reshape(count, FLOW_LENGTH), device)
    found = [
        network.rank(summed[block], tuple(gathered(table, places[block]) for table in tables))
        for block in (_on(each, device) for each in _blocks(count))
    ]
    scores: NDArray[np.float64] = torch.cat(found)[:count].cpu().numpy().astype(np.float64)
    return scores


def distinct_rows(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The different rows of ``[n, columns]``, by first appearance, and which of them each row is.

    Rows are the same if all their bits are.
    """
    rows = np.ascontiguousarray(rows)
    texts = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))[:, 0].tolist()
    numbers: dict[bytes, int] = {}
    which = [numbers.setdefault(text, len(numbers)) for text in texts]
    different = np.frombuffer(b"".join(numbers), dtype=np.float32)
    return different.reshape(len(numbers), rows.shape[1]), np.array(which, dtype=np.int64)


def _blocks(count: int) -> list[NDArray[np.int64]]:
    """The numbers below ``count``, in blocks of one size; the last begins again to be full."""
    blocks = -(-count // _BLOCK)
    return np.split(np.resize(np.arange(count), blocks * _BLOCK), blocks)


def _in_blocks(
    layers: Callable[[torch.Tensor], tuple[torch.Tensor, ...]],
    rows: NDArray[np.float32],
    device: torch.device,
) -> tuple[torch.Tensor, ...]:
    """The output of ``layers`` for each row."""
    found = [layers(_on(rows[block], device)) for block in _blocks(len(rows))]
    return tuple(torch.cat(parts)[: len(rows)] for parts in zip(*found, strict=True))


def _on(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values).to(device)
