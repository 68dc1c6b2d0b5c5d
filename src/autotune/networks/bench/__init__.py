"""A network timed beside other runtimes that run it on this machine."""

from autotune.networks.bench.bench import (
    BENCH_SCHEMA,
    BENCH_VERSION,
    BenchOptions,
    BenchResult,
    BenchRow,
    bench_model,
)
from autotune.networks.bench.runtimes import RUNTIMES, Runtime

__all__ = [
    "BENCH_SCHEMA",
    "BENCH_VERSION",
    "RUNTIMES",
    "BenchOptions",
    "BenchResult",
    "BenchRow",
    "Runtime",
    "bench_model",
]
