"""Ansor's search, as far as there are parts for it."""

from __future__ import annotations

from autotune.plugins import Context
from autotune.plugins.spec import Preset

__all__ = ["ansor"]


def ansor(_context: Context) -> Preset:
    """The search of the released code with the defaults of its policy and of its scripts."""
    return Preset(
        name="ansor",
        source="Ansor (OSDI'20) as its released code searches",
        parts={
            "strategy": (
                "evolutionary",
                {
                    "parents": "score",
                    "population": 2048,
                    "generations": 4,
                    "epsilon": 0.05,
                    # The paper has a crossover of nodes, the released code has none.
                    "crossover_probability": 0.0,
                    "mutation_probability": 0.85,
                    "elite_share": 0.2,
                    "sketch_trials": 0,
                },
            ),
            "cost_model": "gbdt",
            "pruning_model": None,
            "task_scheduler": "gradient",
        },
        round_size=64,
        differences=(
            "the search space is that of autotune, not Ansor's, and so are the mutations",
            "no candidate is lowered to see whether it fails, as all are feasible",
            "boosted trees read features of the loop nest pooled over the program, where those of "
            "Ansor (XGBoost) score each statement and add up",
            "they learn from the first round on, where Ansor's scores are random for 96 trials",
            "the best measured candidates take up to a fifth of the first population, not a fifth "
            "beside it",
            "winners are timed in turns with others, not once",
        ),
    )
