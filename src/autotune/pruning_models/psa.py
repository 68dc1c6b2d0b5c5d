"""PSA, the draft model of Pruner: a parametrised analysis of the loop nest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UnsupportedTarget
from autotune.pruning_models.pruning_model import PruningModel
from autotune.sketches import CandidateBatch

if TYPE_CHECKING:
    from autotune.targets import Target

__all__ = ["PSA"]


class PSA(PruningModel):
    """Scores by what a nest's symbols say about a machine: one over estimated milliseconds.

    On GPUs the symbols and the formula are those of Pruner (ASPLOS'25), or corrected ones.
    Values of different tasks mean nothing to each other. A candidate that cannot run on the
    target (too many threads, too much shared memory) scores minus infinity.

    Args:
        target: What the candidates are for.
        arithmetic: `"published"`: as released, known errors included; `"corrected"`.
        figures: Name of published figures of a GPU, for the published arithmetic; None for the
            target's. See :data:`autotune.pruning_models.psa_gpu.PUBLISHED_GPUS`.

    Raises:
        UnknownNameError: there is no such arithmetic, or there are no such figures.
        InvalidValueError: the target lacks a rate that the arithmetic needs.
        UnsupportedTarget: the target is not a GPU.
    """

    name = "psa"

    def __init__(
        self, target: Target, arithmetic: str = "published", figures: str | None = None
    ) -> None:
        # Here, because naming the model must not cost loading what it scores with.
        from autotune.pruning_models.psa_gpu import GpuScorer

        if target.kind != "cuda":
            raise UnsupportedTarget(
                f"the pruning model 'psa' describes GPUs, not {target.kind!r} targets"
            )
        self._scorer = GpuScorer(target, arithmetic, figures)

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; higher is better."""
        parts = [self._scorer.score(sketch, matrix) for sketch, matrix in batch.parts]
        return np.concatenate([np.zeros(0), *parts])
