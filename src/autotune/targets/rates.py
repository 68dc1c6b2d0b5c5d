"""Measured rates of this machine, from the native probe."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from attrs import evolve

from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.targets.target import Target

__all__ = [
    "BANDWIDTH_PATTERNS",
    "PEAK_DTYPES",
    "fma_instruction_set",
    "measure_bandwidth",
    "measure_core_rates",
    "measure_peak",
    "measure_rates",
    "peak_instruction_set",
    "repeat_times",
]

# What `measure_peak` knows: types of the factors.
PEAK_DTYPES = ("float32", "int8", "bfloat16")
# What `measure_bandwidth` knows; those with "-stream" write past the caches.
BANDWIDTH_PATTERNS = ("read", "copy", "copy-stream", "triad", "triad-stream")

_MIB = 1 << 20
# Fits the first cache of every processor.
_FIRST_CACHE_BYTES = 16 << 10


def measure_rates(target: Target, seconds: float = 0.2) -> Target:
    """Returns the target with rates measured on this machine, which must be what it describes.

    All of the target's cores are busy at once, because they share power and memory. The rate of
    float32 is measured; the other dtypes keep their ratio to it.

    Args:
        target: A CPU.
        seconds: How long to measure each of the two rates.

    Raises:
        UnsupportedTarget: It is not a CPU.
        InvalidValueError: `seconds` is out of range.
    """
    if target.kind != "cpu":
        raise UnsupportedTarget(f"rates can only be measured on a CPU, not on {target.kind!r}")
    native = _native()
    flops = _on_all_cores(target.cores, lambda: native.fma_rate(seconds))
    buffer = _buffer_bytes(target)
    bandwidth = _on_all_cores(target.cores, lambda: native.read_bandwidth(buffer, seconds))
    estimate = target.peak_flops.get("float32", 0.0)
    scale = flops / estimate if estimate else 0.0
    measured = {dtype: rate * scale for dtype, rate in target.peak_flops.items()}
    return evolve(
        target,
        peak_flops={**measured, "float32": flops} if estimate else {"float32": flops},
        memory_bandwidth=bandwidth,
        rates_measured=True,
    )


def measure_core_rates(cores: int, seconds: float = 0.01) -> tuple[float, float]:
    """Returns what the cores of this machine can do at most, nothing of it in memory.

    The best tenths of a millisecond count: other programs on the machine hardly lower them.

    Args:
        cores: How many, all at once.
        seconds: How long to measure each of the two rates.

    Returns:
        flop/s of float32, and bytes/s that are read from the first cache; of all cores together.

    Raises:
        InvalidValueError: A number is out of range.
    """
    native = _native()
    return (
        _on_all_cores(cores, lambda: native.fma_rate(seconds)),
        _on_all_cores(cores, lambda: native.read_bandwidth(_FIRST_CACHE_BYTES, seconds)),
    )


def fma_instruction_set() -> str:
    """Returns which instructions the probe uses here: `"avx512f"`, `"fma"` or `"sse2"`."""
    name: str = _native().fma_instruction_set()
    return name


def peak_instruction_set(dtype: str) -> str:
    """Returns what multiplies and adds `dtype` in vectors here, such as `"avx512vnni"`.

    It is empty where the processor has no instruction for that. Tile registers do not count.

    Raises:
        InvalidValueError: `dtype` is none of `PEAK_DTYPES`.
    """
    name: str = _checked(lambda: _native().peak_instruction_set(dtype))
    return name


def measure_peak(dtype: str, threads: int, seconds: float = 0.2) -> float:
    """Returns the operations/s of multiply-adds in vector registers, of all threads together.

    The slice in which all threads together were fastest counts.

    Args:
        dtype: Of the factors: float32; int8, with sums in int32; bfloat16, with sums in float32.
        threads: How many, all at once.
        seconds: How long to measure.

    Raises:
        InvalidValueError: `dtype` is none of `PEAK_DTYPES`, or the processor has no instruction
            for it; a number is out of range.
    """
    return float(_checked(lambda: _native().peak_rate(dtype, threads, seconds)))


def measure_bandwidth(pattern: str, size: int, threads: int, seconds: float = 0.2) -> float:
    """Returns the bytes/s at which threads together go over arrays, each over its share.

    `read` sums one array, `copy` is `a[i] = b[i]`, `triad` is `a[i] = b[i] + s * c[i]`. What these
    name counts, and no line of a cache that is read because it is written.

    Args:
        pattern: One of `BANDWIDTH_PATTERNS`.
        size: Bytes of all arrays of all threads together: the level of cache that they fit is
            what is measured.
        threads: How many, all at once.
        seconds: How long to measure; the slice in which all together were fastest counts.

    Raises:
        InvalidValueError: There is no such pattern, or a number is out of range.
    """
    return float(_checked(lambda: _native().stream_bandwidth(pattern, size, threads, seconds)))


def repeat_times(repeats: int, work: int) -> list[float]:
    """Times one loop again and again: where the times differ, timing is not stable.

    Args:
        repeats: How many times.
        work: Multiplications in the loop, each waiting for the one before; about 1 ns each.

    Returns:
        Wall time of each repetition in seconds.

    Raises:
        InvalidValueError: A number is out of range.
    """
    times: list[float] = _checked(lambda: _native().repeat_times(repeats, work))
    return times


def _checked(call: Callable[[], Any]) -> Any:
    """Check the probe's answer; its complaints are those of a user's value."""
    try:
        return call()
    except (TypeError, ValueError) as error:
        raise InvalidValueError(str(error)) from error


def _native() -> ModuleType:
    # Imported on use: describing targets needs nothing native.
    from autotune import _native as native

    return native


def _on_all_cores(cores: int, measure: Callable[[], float]) -> float:
    """Sums what `cores` threads reach at the same time; the probe holds no interpreter lock."""
    # Imported on use: workers, which measure no rates, start sooner without it.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=cores) as pool:
        futures = [pool.submit(measure) for _ in range(cores)]
        total: float = _checked(lambda: sum(future.result() for future in futures))
        return total


def _buffer_bytes(target: Target) -> int:
    """Returns a size per thread past the caches, but modest where they are those of a host."""
    last = max((cache.size_bytes for cache in target.caches), default=0)
    return min(max(64 * _MIB, 4 * last // target.cores), 256 * _MIB)
