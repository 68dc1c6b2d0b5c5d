"""The entry point."""

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
            "strategy",
            "heron",
            "autotune_heron.strategies:HeronStrategy",
            "Mixes parents by constraints, so that every child is feasible, as in Heron",
            reads_nest=True,
        ),
        PluginSpec(
            "strategy",
            "heron-random",
            "autotune_heron.strategies:HeronRandomStrategy",
            "heron with samples of the space in place of children",
            reads_nest=True,
        ),
        PluginSpec(
            "strategy",
            "heron-ga",
            "autotune_heron.strategies:HeronGeneticStrategy",
            "heron with children of an ordinary genetic algorithm, which may be infeasible",
            reads_nest=True,
        ),
        PluginSpec(
            "strategy",
            "heron-sa",
            "autotune_heron.annealing:HeronAnnealingStrategy",
            "heron with simulated annealing in place of children",
            reads_nest=True,
        ),
        PluginSpec(
            "strategy",
            "heron-srga",
            "autotune_heron.stochastic_ranking:HeronStochasticRankingStrategy",
            "heron-ga with infeasible parents, ranked by score or violation by chance",
            reads_nest=True,
        ),
        PluginSpec(
            "strategy",
            "heron-sdga",
            "autotune_heron.decoding:HeronDecodingStrategy",
            "heron-ga whose infeasible rows stand for the nearest feasible ones",
            reads_nest=True,
        ),
        PluginSpec(
            "strategy",
            "heron-idea",
            "autotune_heron.idea:HeronIdeaStrategy",
            "heron with an evolutionary algorithm in which infeasible rows survive",
            reads_nest=True,
        ),
        PluginSpec(
            "preset",
            "heron-published",
            "autotune_heron.presets:heron_published",
            "Heron (ASPLOS'23) as its code was first published",
        ),
    ]
