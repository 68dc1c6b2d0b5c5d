"""What the entry point names. Importing it imports no torch."""

from __future__ import annotations

from autotune.plugins.hooks import PluginSpec, hookimpl

__all__ = ["autotune_cost_models", "autotune_strategies"]

AUTOTUNE_API_VERSION = 1


@hookimpl
def autotune_cost_models() -> list[PluginSpec]:
    """Returns the cost models to descend along."""
    return [
        PluginSpec(
            "felix-gp",
            "autotune_felix.felix_gp:FelixGp",
            "Estimate from the loop nest plus a Gaussian process, with a gradient",
        ),
        PluginSpec(
            "felix-mlp",
            "autotune_felix.felix_mlp:FelixMlp",
            "Estimate from the loop nest plus a learned residual, with a gradient, as in Felix",
        ),
    ]


@hookimpl
def autotune_strategies() -> list[PluginSpec]:
    """Returns the strategy, which descends along the learned model if not told otherwise."""
    return [
        PluginSpec(
            "felix",
            "autotune_felix.strategy:FelixStrategy",
            "Descends along the cost model's gradient on relaxed schedules, as in Felix",
            default_cost_model="felix-gp",
        )
    ]
