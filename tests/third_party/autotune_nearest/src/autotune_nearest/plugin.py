"""What the entry point names; imports nothing but the hooks."""

from __future__ import annotations

from autotune.plugins.hooks import PluginSpec, hookimpl

AUTOTUNE_API_VERSION = 1


@hookimpl
def autotune_cost_models() -> list[PluginSpec]:
    """Returns the one cost model of this distribution."""
    return [
        PluginSpec(
            "nearest",
            "autotune_nearest.cost_model:NearestNeighbour",
            "As fast as the nearest candidate measured",
        )
    ]
