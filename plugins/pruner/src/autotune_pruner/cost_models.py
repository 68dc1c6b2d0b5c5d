"""The cost models ``pacm`` and ``tenset-mlp``: networks that learn to rank between rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from autotune_pruner.networks import (
    NORMALISER,
    PaCMNetwork,
    RankingNetwork,
    TenSetNetwork,
    Weights,
    weights_of,
)
from autotune_pruner.options import CostModelOptions, MomentumOptions
from autotune_pruner.programs import normaliser_of
from autotune_pruner.ranking_model import RankingModel
from autotune_pruner.training import History, recent_batches

__all__ = ["MomentumPaCM", "PaCM", "TenSetMLP"]


class OnlineRankingModel(RankingModel[CostModelOptions]):
    """Learns after every round: now and then from all there is, otherwise a little.

    A full training begins with the weights it was given or with random ones, and computes the
    normaliser again in the latter case. It comes when there is ``growth`` times as much as at the
    last one, so that all of them together cost little more than the last. Other rounds continue
    with the current weights for a few steps on the new rows and a sample of the others.
    """

    options_class = CostModelOptions
    _trained_rows: int

    def _learn(self, fresh: int) -> History:
        options = self._options
        growth = 1.0 if self._fidelity == "published" else options.growth
        rows = len(self._samples)
        if self._trained_rows and rows < growth * self._trained_rows:
            settings = self._settings(options.fine_tune_steps, options.fine_tune_batch)
            return self._train(self._samples, settings, self._current, recent_batches(fresh))
        start = None if self._fidelity == "published" else self._base
        history = self._train(self._samples, self._settings(self._epochs(options.epochs)), start)
        if not history.message:
            self._trained_rows = rows
        return history

    def _forget(self) -> None:
        super()._forget()
        self._trained_rows = 0

    def state(self) -> dict[str, Any]:
        """See :meth:`RankingModel.state`."""
        return {**super().state(), "trained_rows": self._trained_rows}

    def load_state(self, state: dict[str, Any]) -> None:
        """See :meth:`RankingModel.load_state`."""
        super().load_state(state)
        self._trained_rows = int(state["trained_rows"])


class PaCM(OnlineRankingModel):
    """Pruner's verify model: statements, data flow with attention, LambdaRank."""

    name = "pacm"
    network_name = "pacm"
    make_network: ClassVar[Callable[[], RankingNetwork]] = PaCMNetwork


class TenSetMLP(OnlineRankingModel):
    """TenSet's model: statements only."""

    name = "tenset-mlp"
    network_name = "tenset-mlp"
    make_network: ClassVar[Callable[[], RankingNetwork]] = TenSetNetwork


# Of batch normalisation. What counts batches is whole, and no average of two makes sense.
_BUFFERS = ("running_mean", "running_var")
_COUNTER = "num_batches_tracked"


class MomentumPaCM(RankingModel[MomentumOptions]):
    """Fine-tunes slow weights every few updates, and lets these follow a little.

    After every ``period``-th update a network starts from the slow weights, trains on all
    outcomes so far, and predicts until the next one does. The slow weights then become
    ``momentum`` times themselves plus the rest of the trained ones: so they stay near what they
    were trained to before the search, and few measurements of one target cannot spoil them.

    As published, the normaliser is recomputed each time, although the slow weights were
    trained with another one, and buffers of batch normalisation are not blended.
    """

    name = "moa-pacm"
    options_class = MomentumOptions
    network_name = "pacm"
    make_network: ClassVar[Callable[[], RankingNetwork]] = PaCMNetwork

    def _learn(self, fresh: int) -> History | None:
        options = self._options
        if self._updates % options.period:
            return None
        published = self._fidelity == "published"
        normaliser = normaliser_of(self._samples.data().programs, self._fidelity)
        slow = self._base or weights_of(self._network(None), normaliser)
        settings = self._settings(self._epochs(options.epochs))
        history = self._train(
            self._samples, settings, slow, normaliser=normaliser if published else None
        )
        if self._current is not None and not history.message:
            self._base = blended(slow, self._current, options.momentum, buffers=not published)
        return history


def blended(slow: Weights, fast: Weights, momentum: float, *, buffers: bool) -> Weights:
    """``momentum * slow + (1 - momentum) * fast``.

    Args:
        slow: Also gives the normaliser.
        fast: Weights of the same network.
        momentum: Between 0 and 1.
        buffers: Whether the running statistics of batch normalisation are blended too.
    """

    def blend(name: str, values: NDArray[Any]) -> NDArray[Any]:
        is_kept = name.startswith(NORMALISER) or name.endswith(_COUNTER)
        if is_kept or (name.endswith(_BUFFERS) and not buffers):
            return values
        mixed = momentum * values.astype(np.float64) + (1 - momentum) * fast[name]
        return mixed.astype(values.dtype)

    return {name: blend(name, item) for name, item in slow.items()}
