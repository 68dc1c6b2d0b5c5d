"""The entry point."""

from __future__ import annotations

from autotune import hookimpl
from autotune.plugins import Context, PluginSpec
from autotune.plugins.spec import Preset

__all__ = ["autotune_parts", "heron_published"]

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
            "autotune_heron.strategies:HeronDecodingStrategy",
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
            "autotune_heron.plugin:heron_published",
            "Heron (ASPLOS'23) as its code was first published",
        ),
    ]


def heron_published(_context: Context) -> Preset:
    """The search of the first published state of the code, which is that of the paper."""
    return Preset(
        name="heron-published",
        source="Heron (ASPLOS'23) as its code was first published",
        parts={
            "strategy": ("heron", {"variant": "paper"}),
            "cost_model": "gbdt",
            "pruning_model": None,
            "task_scheduler": "round-robin",
        },
        round_size=32,
        differences=(
            "the constrained space is that of autotune, whose parameters are the variables; Heron "
            "also varies loop extents and memory sizes",
            "samples are exactly uniform, where those of a solver are not",
            "sketches have equal shares of samples, where Heron has one template",
            "boosted trees read features of the loop nest, not the values of variables, and keys "
            "are those by which scores vary, not those of most splits",
            "winners are timed in turns with others, not once",
        ),
    )
