"""The entry point. Importing it imports no torch."""

from __future__ import annotations

from autotune import hookimpl
from autotune.plugins import PluginSpec

__all__ = ["autotune_parts"]

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
            "autotune_felix.presets:felix_published",
            "Felix (ASPLOS'24) as its released code searches",
        ),
    ]
