"""The interface of a pruning (draft) model: a cheap score that needs no measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UnsupportedTarget
from autotune.models.context import ModelContext
from autotune.plugins.options import NoOptions, read_options
from autotune.sketches import CandidateBatch, Sketch


class PruningModel(ABC):
    """Ranks candidates of one target without having measured any."""

    name: str

    @abstractmethod
    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; higher is better."""


class Roofline(PruningModel):
    """Scores by the roofline estimate of :func:`autotune.nest.estimated_seconds`.

    Each statement takes as long as the slower of its arithmetic and its loads, plus the
    traffic between caches. A score is minus the binary logarithm of the estimated seconds:
    differences say by which factor one candidate of a task is expected to be faster than
    another; values of different tasks mean nothing to each other.

    Args:
        context: The target that candidates are for: cores, vectors and caches count.

    Raises:
        UnsupportedTarget: the target is not a CPU.
    """

    name = "roofline"

    def __init__(self, context: ModelContext) -> None:
        read_options(f"pruning model {self.name!r}", NoOptions, context.options)
        target = context.target
        if target.kind != "cpu":
            raise UnsupportedTarget(
                f"the pruning model 'roofline' describes CPUs, not {target.kind!r} targets"
            )
        self._target = target

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; higher is better."""
        # Here, because naming the model must not cost loading the loop nest.
        from autotune.models.features import estimated_seconds, statement_features
        from autotune.nest import nest_tape

        def seconds(sketch: Sketch, matrix: NDArray[np.int64]) -> NDArray[np.float64]:
            features = statement_features(nest_tape(sketch), matrix, self._target)
            return estimated_seconds(features, self._target)

        return np.asarray(-np.log2(batch.each(seconds)))
