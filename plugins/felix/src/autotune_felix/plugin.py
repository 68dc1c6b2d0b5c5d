"""The entry point. Importing it imports no torch."""

from __future__ import annotations

from autotune import hookimpl
from autotune.plugins import Context, PluginSpec
from autotune.plugins.spec import Preset

__all__ = ["autotune_parts", "felix_published"]

AUTOTUNE_API_VERSION = 4


@hookimpl
def autotune_parts() -> list[PluginSpec]:
    """Returns every part of this distribution."""
    return [
        PluginSpec(
            "cost_model",
            "felix-gp",
            "autotune_felix.felix_gp:FelixGp",
            "Estimate from the loop nest plus a Gaussian process, with a gradient",
            reads_nest=True,
        ),
        PluginSpec(
            "cost_model",
            "felix-mlp",
            "autotune_felix.felix_mlp:FelixMlp",
            "Estimate from the loop nest plus a learned residual, with a gradient, as in Felix",
            reads_nest=True,
        ),
        PluginSpec(
            "cost_model",
            "felix-mlp-published",
            "autotune_felix.published_mlp:PublishedMlp",
            "Network over 154 smoothed features of each statement, as Felix has it",
            reads_nest=True,
        ),
        PluginSpec(
            "strategy",
            "felix",
            "autotune_felix.strategy:FelixStrategy",
            "Descends along the cost model's gradient on relaxed schedules, as in Felix",
            default_cost_model="felix-gp",
            unused=("pruning_model",),
            reads_nest=True,
        ),
        PluginSpec(
            "preset",
            "felix-published",
            "autotune_felix.plugin:felix_published",
            "Felix (ASPLOS'24) as its released code searches",
        ),
    ]


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
