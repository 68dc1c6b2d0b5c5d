"""Spread of recorded latencies, task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from attrs import define, field

from autotune.ir.workloads import Workload
from autotune.plugins.workload_names import task_name
from autotune.report import formats
from autotune.report.grouping import by_measure_key
from autotune.report.table import Table
from autotune.store.records import OUTCOME_STATUSES, MeasureKey, Record

__all__ = ["Spread", "spread_table", "spreads"]


@define
class Spread:
    """The records of one workload under one measure key, as training data.

    Attributes:
        workload: What was measured.
        key: What its measurements depend on.
        target: Name of the target.
        outcomes: How many records there are, by status.
        latencies: Of those that are ok, in seconds.
    """

    workload: Workload
    key: MeasureKey
    target: str
    outcomes: Counter[str] = field(factory=Counter)
    latencies: list[float] = field(factory=list)

    def add(self, record: Record) -> None:
        """Count one more record."""
        self.outcomes[record.outcome.status] += 1
        if record.latency is not None:
            self.latencies.append(record.latency)

    @property
    def quantiles(self) -> tuple[float, float, float] | None:
        """Best, median and 90th percentile, in seconds; None where nothing is ok."""
        if not self.latencies:
            return None
        best, median, slow = np.quantile(self.latencies, [0.0, 0.5, 0.9]).tolist()
        return best, median, slow

    def to_json(self) -> dict[str, Any]:
        """A JSON object; latencies are in seconds."""
        best, median, slow = self.quantiles or (None, None, None)
        return {
            "task": task_name(self.workload),
            "workload": self.workload.digest,
            "target": self.target,
            "key": self.key.to_json(),
            "programs": self.outcomes.total(),
            "outcomes": {name: self.outcomes[name] for name in OUTCOME_STATUSES},
            "best": best,
            "median": median,
            "percentile_90": slow,
        }


def spreads(records: Iterable[Record]) -> list[Spread]:
    """Make a spread for each workload under each measure key, in order of appearance."""
    return by_measure_key(records, Spread)


def spread_table(found: Sequence[Spread]) -> Table:
    """Spreads in the given order, and the totals."""
    columns = ("task", "programs>", "ok>", "best>", "median>", "90 %>", "target", "protocol")
    programs = sum(it.outcomes.total() for it in found)
    valid = sum(len(it.latencies) for it in found)
    tasks = len({it.workload.digest for it in found})
    note = f"{tasks} tasks, {programs} programs, {valid} of them ok; median and 90 % over the best"
    return Table("", columns, tuple(map(_row, found)), (note,))


def _row(spread: Spread) -> tuple[str, ...]:
    best, median, slow = spread.quantiles or (None, None, None)
    return (
        task_name(spread.workload),
        str(spread.outcomes.total()),
        str(len(spread.latencies)),
        formats.seconds(best),
        _over(median, best),
        _over(slow, best),
        spread.target,
        spread.key.protocol,
    )


def _over(latency: float | None, best: float | None) -> str:
    return formats.ratio(latency / best if latency is not None and best else None)
