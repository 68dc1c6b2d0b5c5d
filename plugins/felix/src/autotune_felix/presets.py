"""Felix as published, as far as there are parts for it."""

from __future__ import annotations

from autotune.plugins import Context
from autotune.plugins.preset import Preset

__all__ = ["felix_published"]


def felix_published(_context: Context) -> Preset:
    """The search of the released code, with the model that is nearest to its own."""
    return Preset(
        name="felix-published",
        source="Felix (ASPLOS'24) as its released code searches",
        parts={
            "strategy": ("felix", {"fidelity": "published"}),
            "cost_model": (
                "felix-mlp",
                {"members": 1, "caution": 0.0, "smoothing": "published"},
            ),
            "pruning_model": None,
            # Of tasks that are similar the released scheduler makes nothing.
            "task_scheduler": ("gradient", {"beta": 1e9}),
        },
        round_size=64,
        differences=(
            "the network corrects an estimate from the loop nest and begins untrained, where the "
            "published one was trained on TenSet's programs",
            "features are the columns of autotune with the published smoothing, not its columns",
            "the optimiser is new in each round",
            "predictions belong to the candidates that they rank "
            "(--strategy-option ranking=misaligned for the released mistake)",
            "nothing is measured twice",
            "the search space is that of autotune, not Ansor's",
            "winners are timed in turns with others, not once",
        ),
    )
