"""The scripts of the benchmarks, which are no package, as modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["BENCHMARKS", "benchmark_scripts"]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@contextmanager
def benchmark_scripts(*names: str) -> Iterator[tuple[Any, ...]]:
    """These modules; they and what they import from beside themselves are forgotten afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield tuple(importlib.import_module(name) for name in names)
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in set(sys.modules) - before:
            if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == BENCHMARKS:
                del sys.modules[name]
