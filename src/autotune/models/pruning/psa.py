"""PSA, the draft model of Pruner: a parametrised analysis of the loop nest."""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from autotune.errors import UnsupportedTarget
from autotune.models.context import ModelContext
from autotune.models.pruning.pruning_model import PruningModel
from autotune.plugins.options import option, read_options
from autotune.sketches import CandidateBatch

__all__ = ["PSA", "PSAOptions"]


@frozen
class PSAOptions:
    """Options of :class:`PSA`, for GPUs; CPUs have none of them.

    Attributes:
        formula: ``corrected``, the default; or ``published``: as released, known errors
            included, which is also taken where a ``gpu_spec`` is given.
        gpu_spec: Name of published figures of a GPU, for the published formula; empty for the
            target's. See :data:`autotune.models.pruning.psa_gpu.PUBLISHED_GPUS`.
    """

    formula: str = option("")
    gpu_spec: str = option("")


class PSA(PruningModel):
    """Scores by what a nest's symbols say about a machine: one over estimated milliseconds.

    On GPUs the symbols and the formula are those of Pruner (ASPLOS'25), or corrected ones,
    which were calibrated on kernels measured on an H100. On
    CPUs, for which nothing was published, the same structure describes cores, vector units,
    registers and caches; a score is then one over a million estimated cycles.
    Values of different tasks mean nothing to each other. A candidate that cannot run on the
    target (too many threads, too much shared memory) scores minus infinity.

    Args:
        context: The target that candidates are for, and options; see :class:`PSAOptions`.

    Raises:
        UnknownNameError: there is no such formula, or there are no such figures.
        InvalidValueError: the target lacks a rate that the formula needs.
        UnsupportedTarget: a formula or figures of GPUs are asked for on a CPU.
    """

    name = "psa"
    version = "5"
    """Changes when scores do."""

    def __init__(self, context: ModelContext) -> None:
        # Here, because naming the model must not cost loading what it scores with.
        from autotune.models.pruning.psa_cpu import CpuScorer
        from autotune.models.pruning.psa_gpu import GpuScorer

        options = read_options(f"pruning model {self.name!r}", PSAOptions, context.options)
        target = context.target
        self._scorer: CpuScorer | GpuScorer
        if target.kind == "cuda":
            formula = options.formula or ("published" if options.gpu_spec else "corrected")
            self._scorer = GpuScorer(target, formula, options.gpu_spec or None)
            return
        if options != PSAOptions():
            raise UnsupportedTarget(
                "the pruning model 'psa' has formulas and specs of GPUs only; "
                f"target {target.name!r} is of kind {target.kind!r}"
            )
        self._scorer = CpuScorer(target)

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        """Scores of shape [n]; higher is better."""
        return batch.each(self._scorer.score)
