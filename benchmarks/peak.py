"""The ceilings of this machine: multiply-adds in registers, and bandwidth of every cache.

For one thread and for all cores: the peak of multiply-adds of float32, and of bytes and bfloat16
where the processor has vector instructions for them; and the rate at which arrays are read, copied
and combined (``a = b + s * c``) that lie in each cache of the detected target and in memory, where
they are four times as large as the last cache. Bytes are those of the arrays: no line counts that
is read because it is written. Writing past the caches has columns of its own. The best of many
short slices counts, as other programs only ever slow it down.

``measure`` is what `operators.py` draws its roofline from.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.common import Bar, Report, cores

if TYPE_CHECKING:
    from autotune import Target

MEMORY = "memory"
COPIES = ("copy", "copy-stream")
# Arrays in memory have together so many times the bytes of the last cache.
PAST_CACHES = 4
SECONDS, QUICK_SECONDS = 0.5, 0.1

# Times what `detect_cpu` estimates, from the clock and the units of the processor.
ESTIMATE_AT_LEAST, ESTIMATE_AT_MOST = 0.5, 2.0
# Bandwidth of the first cache over that of memory.
CACHE_RATIO = 2.0


@dataclass(frozen=True)
class Rate:
    """A ceiling.

    Attributes:
        threads: Threads that reach it together.
        what: ``float32``, ``int8`` or ``bfloat16``; or what is done to memory, such as ``copy``.
        where: ``registers``, ``L1`` and so on, or ``memory``.
        rate: Operations/s, or bytes/s.
        detail: The instruction set, or the size of the arrays in bytes.
    """

    threads: int
    what: str
    where: str
    rate: float
    detail: str


@dataclass(frozen=True)
class Ceilings:
    """Ceilings of so many threads together.

    Attributes:
        threads: How many.
        peak: Operations/s by type.
        bandwidth: bytes/s by where and what.
        holds: Bytes that each cache holds for the threads, nearest first.
    """

    threads: int
    peak: Mapping[str, float]
    bandwidth: Mapping[str, Mapping[str, float]]
    holds: Mapping[str, int]

    def level_of(self, size: int) -> str:
        """The nearest cache that holds so many bytes, or memory."""
        return next((level for level, holds in self.holds.items() if size <= holds), MEMORY)

    def transfer_seconds(self, read: int, written: int) -> float:
        """The least seconds in which arrays of so many bytes are read and written once.

        Reading is as fast as ``read`` is in the nearest level that holds all of them; writing
        costs what is left of the better ``copy`` when its reading is taken off.
        """
        rates = self.bandwidth[self.level_of(read + written)]
        reading = 1 / rates["read"]
        copy = max(rates[pattern] for pattern in COPIES)
        writing = max(2 / copy - reading, 1 / copy)
        return read * reading + written * writing


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    from autotune.targets import detect_cpu

    target = detect_cpu()
    found = [
        rate for threads in options.threads for rate in measure(target, threads, options.seconds)
    ]
    for threads in options.threads:
        print_table(threads, [rate for rate in found if rate.threads == threads])
    if options.csv is not None:
        write_csv(options.csv, found)
    return Report({"rates": [asdict(rate) for rate in found]}, bars_of(target, found))


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The options, with defaults that depend on each other filled in."""
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write every rate there")
    parser.add_argument("--threads", type=int, nargs="+", help="1 and all cores if not given")
    parser.add_argument("--seconds", type=float, help="to measure each rate")
    options = parser.parse_args(arguments)
    options.threads = options.threads or sorted({1, cores()})
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    return options


def measure(target: Target, threads: int, seconds: float) -> list[Rate]:
    """Every ceiling of so many threads, each measured for so many seconds."""
    from autotune.targets import (
        BANDWIDTH_PATTERNS,
        PEAK_DTYPES,
        measure_bandwidth,
        measure_peak,
        peak_instruction_set,
    )

    found = []
    for dtype in PEAK_DTYPES:
        if name := peak_instruction_set(dtype):
            rate = measure_peak(dtype, threads, seconds)
            found.append(Rate(threads, dtype, "registers", rate, name))
    for where, size in sizes_of(target, threads).items():
        for pattern in BANDWIDTH_PATTERNS:
            rate = measure_bandwidth(pattern, size, threads, seconds)
            found.append(Rate(threads, pattern, where, rate, str(size)))
    return found


def sizes_of(target: Target, threads: int) -> dict[str, int]:
    """Bytes of all arrays together by level: half of a cache, more than the caches before it."""
    held = capacities(target, threads)
    sizes = {level: size // 2 for level, size in held.items()}
    last = max((cache.size_bytes for cache in target.caches), default=16 << 20)
    return {**sizes, MEMORY: PAST_CACHES * max(last, *held.values(), 0)}


def capacities(target: Target, threads: int) -> dict[str, int]:
    """Bytes that each cache holds for so many threads on cores of their own, nearest first."""
    return {
        f"L{cache.level}": cache.size_bytes * (1 if cache.shared else threads)
        for cache in target.caches
    }


def ceilings(target: Target, threads: int, rates: Sequence[Rate]) -> Ceilings:
    """The rates of so many threads, arranged."""
    own = [rate for rate in rates if rate.threads == threads]
    bandwidth: dict[str, dict[str, float]] = {}
    for rate in own:
        if rate.where != "registers":
            bandwidth.setdefault(rate.where, {})[rate.what] = rate.rate
    peak = {rate.what: rate.rate for rate in own if rate.where == "registers"}
    return Ceilings(threads, peak, bandwidth, capacities(target, threads))


def print_table(threads: int, rates: Sequence[Rate]) -> None:
    """Multiply-adds in one line each, then one line for each level."""
    print(f"\n{'1 thread' if threads == 1 else f'{threads} threads'}", flush=True)
    for rate in rates:
        if rate.where == "registers":
            print(f"    {rate.what:<10} {rate.rate / 1e9:9.1f} GOP/s   {rate.detail}")
    levels = {rate.where: int(rate.detail) for rate in rates if rate.where != "registers"}
    patterns = dict.fromkeys(rate.what for rate in rates if rate.where in levels)
    print(f"    {'GB/s':<10} {'KiB':>9}" + "".join(f"{pattern:>14}" for pattern in patterns))
    for level, size in levels.items():
        cells = [f"{rate.rate / 1e9:14.1f}" for rate in rates if rate.where == level]
        print(f"    {level:<10} {size >> 10:>9}" + "".join(cells), flush=True)


def write_csv(path: Path, rates: Sequence[Rate]) -> None:
    """A line for each rate."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(Rate.__dataclass_fields__))
        writer.writeheader()
        writer.writerows(asdict(rate) for rate in rates)


def bars_of(target: Target, rates: Sequence[Rate]) -> list[Bar]:
    """Bars on the machine: it is what `detect_cpu` takes it for, and its caches were reached."""
    found = {(rate.threads, rate.where, rate.what): rate.rate for rate in rates}
    bars = []
    for threads in sorted({rate.threads for rate in rates}):
        estimate = target.with_cores(threads).peak_flops.get("float32")
        ratio = found[threads, "registers", "float32"] / estimate if estimate else None
        label = f"float32, {threads} threads, times the estimate"
        bars.append(Bar(label, ratio, ESTIMATE_AT_LEAST))
        bars.append(Bar(label, ratio, ESTIMATE_AT_MOST, at_most=True))
        near = found.get((threads, "L1", "read"))
        far = found[threads, MEMORY, "read"]
        label = f"reading, {threads} threads, first cache over memory"
        bars.append(Bar(label, near / far if near else None, CACHE_RATIO))
    return bars
