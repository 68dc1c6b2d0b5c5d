"""Search strategies: the interface and the built-ins."""

from __future__ import annotations

from autotune.strategies.strategy import Strategy, StrategyContext

__all__ = ["Strategy", "StrategyContext"]
