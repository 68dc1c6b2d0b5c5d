"""Search strategies: the interface and the built-ins."""

from __future__ import annotations

from autotune.search.strategies.annealing import AnnealingOptions, AnnealingStrategy
from autotune.search.strategies.auto import AutoOptions, AutoStrategy
from autotune.search.strategies.evolutionary import (
    EvolutionaryOptions,
    EvolutionaryStrategy,
    Pool,
    ScoredBatch,
)
from autotune.search.strategies.grid import GridStrategy
from autotune.search.strategies.history import History
from autotune.search.strategies.random import RandomStrategy
from autotune.search.strategies.sampling import FreshSampler
from autotune.search.strategies.strategy import (
    RecordedStrategy,
    Strategy,
    StrategyContext,
    check_strategy,
    generator_state,
    restore_generator,
)

__all__ = [
    "AnnealingOptions",
    "AnnealingStrategy",
    "AutoOptions",
    "AutoStrategy",
    "EvolutionaryOptions",
    "EvolutionaryStrategy",
    "FreshSampler",
    "GridStrategy",
    "History",
    "Pool",
    "RandomStrategy",
    "RecordedStrategy",
    "ScoredBatch",
    "Strategy",
    "StrategyContext",
    "check_strategy",
    "generator_state",
    "restore_generator",
]
