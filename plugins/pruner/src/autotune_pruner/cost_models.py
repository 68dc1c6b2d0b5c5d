"""The cost models ``pacm`` and ``tenset-mlp``: networks that learn to rank between rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from autotune.models import ModelContext
from autotune_pruner.networks import PaCMNetwork, RankingNetwork, TenSetNetwork
from autotune_pruner.options import CostModelOptions, checked_options
from autotune_pruner.ranking_model import RankingModel
from autotune_pruner.training import History, recent_batches

__all__ = ["PaCM", "TenSetMLP"]


class OnlineRankingModel(RankingModel):
    """Learns after every round: now and then from all there is, otherwise a little.

    A full training begins with the weights it was given or with random ones, and computes the
    normaliser again in the latter case. It comes when there is ``growth`` times as much as at the
    last one, so that all of them together cost little more than the last. Other rounds continue
    with the current weights for a few steps on the new rows and a sample of the others.

    Args:
        context: The target that candidates are for, the seed of the first weights and of the order
            of training data, threads of torch and of features (reproducible for a fixed number),
            and options; see :class:`autotune_pruner.options.CostModelOptions`.

    Raises:
        InvalidValueError: an option is unknown or wrong.
        UnknownNameError: there is no such fidelity.
    """

    _trained_rows: int

    def __init__(self, context: ModelContext) -> None:
        self._options = checked_options(self.name, CostModelOptions, context.options)
        super().__init__(context, self._options)

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
