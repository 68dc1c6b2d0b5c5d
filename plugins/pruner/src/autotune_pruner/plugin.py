"""What the entry point names. Importing it imports no torch."""

from __future__ import annotations

from autotune.plugins.hooks import PluginSpec, hookimpl

__all__ = [
    "autotune_cost_models",
    "autotune_pruning_models",
    "autotune_strategies",
    "autotune_trained_models",
]

AUTOTUNE_API_VERSION = 1


@hookimpl
def autotune_cost_models() -> list[PluginSpec]:
    """Returns the cost models."""
    return [
        PluginSpec(
            "pacm",
            "autotune_pruner.cost_models:PaCM",
            "Network over statements and data flow that learns to rank, as in Pruner",
        ),
        PluginSpec(
            "tenset-mlp",
            "autotune_pruner.cost_models:TenSetMLP",
            "Network over statements that learns to rank, as in TenSet",
        ),
        PluginSpec(
            "moa-pacm",
            "autotune_pruner.momentum:MomentumPaCM",
            "pacm that adapts trained weights with momentum, as in MoA-Pruner",
        ),
    ]


@hookimpl
def autotune_strategies() -> list[PluginSpec]:
    """Returns the strategies, which learn with the cost models above if not told otherwise."""
    return [
        PluginSpec(
            "pruner",
            "autotune_pruner.strategy:PrunerStrategy",
            "Drafts with the pruning model, verifies with the cost model, as in Pruner",
            default_cost_model="pacm",
        ),
        PluginSpec(
            "moa-pruner",
            "autotune_pruner.strategy:MoAPrunerStrategy",
            "pruner for a cost model that was trained on other tasks, as in MoA-Pruner",
            default_cost_model="moa-pacm",
        ),
    ]


@hookimpl
def autotune_pruning_models() -> list[PluginSpec]:
    """Returns the one pruning model."""
    terms = ("waves", "lanes", "registers", "reuse", "memory")
    return [
        PluginSpec(
            "pruner-psa",
            "autotune_pruner.psa_options:ConfigurablePSA",
            "psa with its terms as options",
            {
                "arithmetic": "published or corrected; for GPUs",
                "figures": "name of published figures of a GPU, for the published arithmetic",
                **dict.fromkeys(terms, "false to leave this term out"),
            },
        )
    ]


@hookimpl
def autotune_trained_models() -> list[PluginSpec]:
    """Returns the weights that the distribution brings."""
    return [
        PluginSpec(
            "pacm-cpu",
            "autotune_pruner.trained:pacm_cpu",
            "Weights of pacm and moa-pacm, trained on programs of 65 operators on one CPU core",
        )
    ]
