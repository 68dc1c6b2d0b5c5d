"""Speed of a network by runtime, as data and as a table."""

from __future__ import annotations

import statistics
from typing import Any

from attrs import asdict, frozen

from autotune.networks.bench.runtimes import TUNED
from autotune.report import Table, formats

__all__ = ["BENCH_SCHEMA", "BENCH_VERSION", "BenchResult", "BenchRow", "bench_table"]

BENCH_SCHEMA = "autotune.model_bench"
BENCH_VERSION = 1
"""Grows when a field of the JSON form changes its meaning or goes away."""


@frozen
class BenchRow:
    """Row of a runtime.

    Attributes:
        runtime: Its name.
        version: Its version; "" where it did not run.
        problem: Why it did not run, or that its outputs are wrong; "" where all is well.
        medians: Median seconds of an inference, of each turn.
        fastest: Seconds of the fastest inference.
        ready: Seconds from the source to a network that can be called.
        first_call: Seconds of the first inference.
        peak_bytes: The most memory that its process had.
        error: Largest difference of an output from the reference, over what is allowed.
        calls: On a device, median seconds of a call by the host until its outputs are there, of
            each turn; what the device takes of them is the latency.
    """

    runtime: str
    version: str = ""
    problem: str = ""
    medians: tuple[float, ...] = ()
    fastest: float | None = None
    ready: float | None = None
    first_call: float | None = None
    peak_bytes: int | None = None
    error: float | None = None
    calls: tuple[float, ...] = ()

    @property
    def call(self) -> float | None:
        """Median over the turns of what a call takes; None where only latencies were taken."""
        return statistics.median(self.calls) if self.calls else None

    @property
    def latency(self) -> float | None:
        """Median over the turns of their medians; None where it was not timed."""
        return statistics.median(self.medians) if self.medians else None


@frozen
class BenchResult:
    """A network on several runtimes.

    Attributes:
        network: What a person calls it.
        threads: How many threads each runtime used.
        reference: The runtime that the others' outputs were compared with.
        rows: One for each runtime.
        target: Name of the device, or ``cpu``.
        precision: What the network was converted to, or None.
    """

    network: str
    threads: int
    reference: str
    rows: tuple[BenchRow, ...]
    target: str = "cpu"
    precision: str | None = None

    def row(self, runtime: str) -> BenchRow | None:
        """The row of a runtime, if it was asked for."""
        return next((row for row in self.rows if row.runtime == runtime), None)

    def ratio(self, row: BenchRow) -> float | None:
        """Speed of the tuned network relative to this runtime, if both were timed."""
        tuned = self.row(TUNED)
        if tuned is None or not tuned.latency or not row.latency:
            return None
        return row.latency / tuned.latency

    def to_json(self) -> dict[str, Any]:
        """A JSON object; ``docs`` describe the schema."""
        return {
            "schema": BENCH_SCHEMA,
            "version": BENCH_VERSION,
            "network": self.network,
            "threads": self.threads,
            "target": self.target,
            "precision": self.precision,
            "reference": self.reference,
            "runtimes": [
                {
                    **asdict(row),
                    "latency": row.latency,
                    "call": row.call,
                    "tuned_speedup": self.ratio(row),
                }
                for row in self.rows
            ],
        }


def bench_table(result: BenchResult) -> Table:
    """The runtimes that ran, the fastest first; below, why the others did not."""
    ran = sorted(
        (row for row in result.rows if row.latency is not None), key=lambda row: row.latency or 0.0
    )
    has_calls = any(row.call is not None for row in ran)
    rows = [
        (
            row.runtime,
            formats.seconds(row.latency),
            *((formats.seconds(row.call) if row.call else "-",) if has_calls else ()),
            formats.seconds(row.fastest),
            formats.ratio(result.ratio(row)),
            formats.seconds(row.ready),
            formats.seconds(row.first_call),
            formats.size(row.peak_bytes) if row.peak_bytes else "-",
            row.version,
        )
        for row in ran
    ]
    columns = (
        *("runtime", "latency>", *(("call>",) if has_calls else ())),
        *("fastest>", "tuned speedup>"),
        *("ready>", "first call>", "peak memory>", "version"),
    )
    where = "1 thread" if result.threads == 1 else f"{result.threads} threads"
    if result.target != "cpu":
        where = result.target
    if result.precision is not None:
        where = f"{result.precision}, {where}"
    notes = [f"{row.runtime}: {row.problem}" for row in result.rows if row.problem]
    if result.reference:
        notes.insert(0, f"outputs are compared with those of {result.reference}")
    return Table(f"{result.network}, {where}", columns, tuple(rows), tuple(notes))
