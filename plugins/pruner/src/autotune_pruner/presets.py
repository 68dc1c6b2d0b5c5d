"""Pruner and MoA-Pruner in their published modes, as far as there are parts for them, and weights.

No torch is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.plugins import Context
from autotune.plugins.spec import Preset

__all__ = [
    "moa_pruner_published",
    "pacm_cpu",
    "pacm_cuda",
    "pruner_finetune",
    "pruner_offline",
    "pruner_published",
]

_PUBLISHED = {"fidelity": "published"}
_DIFFERENCES = (
    "the search space is that of autotune, not Ansor's",
    "on a CPU the pruning model is that of autotune, as the published one scores all candidates "
    "of a CPU alike",
    "no candidate is lowered to see whether it fails, as all are feasible",
    "the network normalises by its training data, not by what it scores together",
    "the loss of a pair goes on growing with the error",
    "winners are timed in turns with others, not once",
)
_LOADED = (
    "the weights at the beginning are of programs of a CPU, not of TenSet's of a GPU "
    "(--load-cost-model FILE for others)",
    "they read corrected features, and rank programs of one task",
    *_DIFFERENCES,
)


def _published(
    name: str,
    source: str,
    *own: str,
    cost_model: tuple[str, Mapping[str, object]],
    strategy: tuple[str, Mapping[str, object]] = ("pruner", _PUBLISHED),
    loaded: str | None = None,
) -> Callable[[Context], Preset]:
    """Maker of a preset of rounds of ten; ``own`` are differences that the others do not have."""
    parts = {
        "strategy": strategy,
        "cost_model": cost_model,
        "pruning_model": "pruner-psa",
        "task_scheduler": "gradient",
    }
    differences = (*own, *(_DIFFERENCES if loaded is None else _LOADED))
    return lambda _context: Preset(name, source, parts, 10, differences, loaded)


pruner_published = _published(
    "pruner-published",
    "Pruner (ASPLOS'25) as its released code searches",
    cost_model=("pacm", _PUBLISHED),
)
"""The search of the released code with a cost model that learns during the run."""

moa_pruner_published = _published(
    "moa-pruner-published",
    "MoA-Pruner (ASPLOS'25) as its released code searches",
    strategy=("moa-pruner", _PUBLISHED),
    cost_model=("moa-pacm", {"epochs": 50}),
    loaded="pacm-cpu",
)
"""The same with a cost model that adapts what it knows of another target."""

pruner_offline = _published(
    "pruner-offline",
    "Pruner (ASPLOS'25) in the offline mode of its released code",
    "the weights are not fine-tuned on recorded programs of the target beforehand",
    cost_model=("pacm", {"learn": False}),
    loaded="pacm-cpu",
)
"""The same with a cost model that was trained beforehand, and learns nothing more."""

pruner_finetune = _published(
    "pruner-finetune",
    "Pruner (ASPLOS'25) with weights that are fine-tuned to the target",
    "weights are fine-tuned on the outcomes of the run, after every round and from those "
    "of the file, and not on recorded programs of the target beforehand",
    "with Adam, not with plain gradient descent",
    cost_model=("pacm", {"epochs": 50, "growth": 1.0}),
    loaded="pacm-cpu",
)
"""The same with a cost model that goes on learning from what it was trained to beforehand."""

_DATA = Path(__file__).parent / "data"


def pacm_cpu(_context: Context) -> Path:
    """The file of weights for ``pacm`` and ``moa-pacm``, trained on one core of a CPU."""
    return _DATA / "pacm-cpu.npz"


def pacm_cuda(_context: Context) -> Path:
    """The file of weights for ``pacm`` and ``moa-pacm``, trained on kernels of one H100."""
    return _DATA / "pacm-cuda.npz"
