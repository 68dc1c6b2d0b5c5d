"""The scripts of the benchmarks and studies, which are no packages, as modules."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RESEARCH = BENCHMARKS.with_name("research")


@contextmanager
def benchmark_scripts(*names: str) -> Iterator[tuple[Any, ...]]:
    """Import these modules; they and what they import are forgotten afterwards."""
    before, path = set(sys.modules), list(sys.path)
    sys.path[:0] = [str(BENCHMARKS), str(RESEARCH)]
    try:
        yield tuple(importlib.import_module(name) for name in names)
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None) or "/"
            if {BENCHMARKS, RESEARCH}.intersection(Path(file).parents):
                del sys.modules[name]
