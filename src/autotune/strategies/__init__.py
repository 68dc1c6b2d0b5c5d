"""Search strategies: the interface and the built-ins."""

from __future__ import annotations

from autotune.strategies.evolutionary import EvolutionaryOptions, EvolutionaryStrategy
from autotune.strategies.generator_state import generator_state, restore_generator
from autotune.strategies.grid import GridStrategy
from autotune.strategies.pool import Pool
from autotune.strategies.random import RandomStrategy
from autotune.strategies.recorded import RecordedStrategy
from autotune.strategies.rows import History, Rows
from autotune.strategies.sampling import FreshSampler
from autotune.strategies.strategy import Strategy, StrategyContext

__all__ = [
    "EvolutionaryOptions",
    "EvolutionaryStrategy",
    "FreshSampler",
    "GridStrategy",
    "History",
    "Pool",
    "RandomStrategy",
    "RecordedStrategy",
    "Rows",
    "Strategy",
    "StrategyContext",
    "generator_state",
    "restore_generator",
]
