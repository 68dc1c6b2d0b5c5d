"""What the entry point names."""

from __future__ import annotations

from autotune.plugins.hooks import PluginSpec, hookimpl

__all__ = ["autotune_strategies"]

AUTOTUNE_API_VERSION = 1


@hookimpl
def autotune_strategies() -> list[PluginSpec]:
    """Returns the strategies."""
    return [
        PluginSpec(
            "heron",
            "autotune_heron.strategies:HeronStrategy",
            "Mixes parents by constraints, so that every child is feasible, as in Heron",
        ),
        PluginSpec(
            "heron-random",
            "autotune_heron.strategies:HeronRandomStrategy",
            "heron with samples of the space in place of children",
        ),
        PluginSpec(
            "heron-ga",
            "autotune_heron.strategies:HeronGeneticStrategy",
            "heron with children of an ordinary genetic algorithm, which may be infeasible",
        ),
    ]
