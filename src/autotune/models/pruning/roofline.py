"""Compute and traffic bounds read from the symbolic loop nest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UnsupportedTarget
from autotune.models.context import ModelContext
from autotune.models.pruning.pruning_model import PruningModel
from autotune.plugins.options import NoOptions, read_options
from autotune.sketches import CandidateBatch


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

        seconds = [
            estimated_seconds(
                statement_features(nest_tape(sketch), matrix, self._target), self._target
            )
            for sketch, matrix in batch.parts
        ]
        scores: NDArray[np.float64] = -np.log2(np.concatenate([np.zeros(0), *seconds]))
        return scores
