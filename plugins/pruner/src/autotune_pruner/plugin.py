"""What the entry point names. Importing it imports no torch."""

from __future__ import annotations

from autotune.hooks import PluginSpec, hookimpl

__all__ = ["autotune_cost_models"]

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
