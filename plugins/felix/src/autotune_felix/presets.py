"""Felix as published, as far as there are parts for it."""

from __future__ import annotations

from autotune.plugins import Context
from autotune.plugins.spec import Preset

__all__ = ["felix_published"]


def felix_published(_context: Context) -> Preset:
    """The search of the released code, with its network."""
    return Preset(
        name="felix-published",
        source="Felix (ASPLOS'24) as its released code searches",
        parts={
            "strategy": ("felix", {"fidelity": "published"}),
            "cost_model": "felix-mlp-published",
            "pruning_model": None,
            # Of tasks that are similar the released scheduler makes nothing.
            "task_scheduler": ("gradient", {"beta": 1e9}),
        },
        round_size=64,
        differences=(
            "the network begins untrained and learns from the first round on, where the published "
            "one was trained on TenSet's programs and is fine-tuned from 256 outcomes on "
            "(--load-cost-model FILE for weights of autotune train fit)",
            "the 154 features are those of autotune with the published smoothing: buffers keep "
            "their places, and some published errors are not made",
            "the optimiser is new in each round",
            "predictions belong to the candidates that they rank "
            "(--strategy-option ranking=misaligned for the released mistake)",
            "nothing is measured twice",
            "the search space is that of autotune, not Ansor's",
            "winners are timed in turns with others, not once",
        ),
    )
