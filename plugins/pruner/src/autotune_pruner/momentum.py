"""``moa-pacm``: PaCM that adapts trained weights with momentum (reference: section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from autotune.models import ModelContext
from autotune_pruner.networks import PaCMNetwork, RankingNetwork
from autotune_pruner.options import MomentumOptions, checked_options
from autotune_pruner.programs import normaliser_of
from autotune_pruner.ranking_model import RankingModel
from autotune_pruner.training import History
from autotune_pruner.weights import Weights

__all__ = ["MomentumPaCM", "blended"]

# Of batch normalisation. What counts batches is whole, and no average of two makes sense.
_BUFFERS = ("running_mean", "running_var")
_COUNTER = "num_batches_tracked"


class MomentumPaCM(RankingModel):
    """Fine-tunes slow weights every few updates, and lets these follow a little.

    After every ``period``-th update a network starts from the slow weights, trains on all
    outcomes so far, and predicts until the next one does. The slow weights then become
    ``momentum`` times themselves plus the rest of the trained ones: so they stay near what they
    were trained to before the search, and few measurements of one target cannot spoil them.

    As published, the normaliser is recomputed each time, although the slow weights were
    trained with another one, and buffers of batch normalisation are not blended.

    Args:
        context: The target that candidates are for, the seed of the first weights and of the order
            of training data, threads of torch and of features (reproducible for a fixed number),
            and options; see :class:`autotune_pruner.options.MomentumOptions`.

    Raises:
        InvalidValueError: an option is unknown or wrong.
        UnknownNameError: there is no such fidelity.
    """

    name = "moa-pacm"
    network_name = "pacm"
    make_network: ClassVar[Callable[[], RankingNetwork]] = PaCMNetwork

    def __init__(self, context: ModelContext) -> None:
        self._options = checked_options(self.name, MomentumOptions, context.options)
        super().__init__(context, self._options)

    def _learn(self, fresh: int) -> History | None:
        options = self._options
        if self._updates % options.period:
            return None
        published = self._fidelity == "published"
        normaliser = normaliser_of(self._samples.data().programs, self._fidelity)
        slow = self._base or Weights.of(self._network(None), normaliser)
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
        if name.endswith(_COUNTER) or (name.endswith(_BUFFERS) and not buffers):
            return values
        mixed = momentum * values.astype(np.float64) + (1 - momentum) * fast.arrays[name]
        return mixed.astype(values.dtype)

    return evolve(slow, arrays={name: blend(name, item) for name, item in slow.arrays.items()})
