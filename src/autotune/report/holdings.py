"""Summary of a database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field

from autotune.ir.workloads import Workload
from autotune.plugins.workload_names import task_name
from autotune.report import formats
from autotune.report.confirmation import short_name
from autotune.report.grouping import by_measure_key
from autotune.report.table import Table
from autotune.store.records import OUTCOME_STATUSES, MeasureKey, Record

__all__ = ["Holding", "holdings_table", "summarize"]


@define
class Holding:
    """The records of one workload under one measure key.

    Attributes:
        workload: What was tuned.
        key: What its measurements depend on.
        target: Name of the target.
        outcomes: How many records there are, by status.
        best: The fastest, if any is valid; an imported one only where none was timed here.
    """

    workload: Workload
    key: MeasureKey
    target: str
    outcomes: Counter[str] = field(factory=Counter)
    best: Record | None = None

    def add(self, record: Record) -> None:
        """Count one more record."""
        self.outcomes[record.outcome.status] += 1
        if record.latency is not None and (self.best is None or record.rank < self.best.rank):
            self.best = record

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the latency is in seconds."""
        best = self.best
        return {
            "workload": {
                "name": self.workload.name,
                "digest": self.workload.digest,
                "parameters": dict(self.workload.parameters),
            },
            "target": self.target,
            "key": self.key.to_json(),
            "records": self.outcomes.total(),
            "outcomes": {name: self.outcomes[name] for name in OUTCOME_STATUSES},
            "best": None
            if best is None
            else {"record": f"{best.run_id}/{best.trial}", "latency": best.latency},
        }


def summarize(records: Iterable[Record]) -> list[Holding]:
    """One holding for each workload under each measure key, in order of appearance.

    Memory does not grow with the number of records.
    """
    return by_measure_key(records, Holding)


def holdings_table(holdings: Sequence[Holding]) -> Table:
    """Holdings, in the given order."""
    columns = (
        "workload",
        "records>",
        "valid>",
        "best>",
        "rate>",
        "target",
        "backend",
        "threads>",
        "protocol",
    )
    claims = [task_name(it.workload) for it in holdings if it.best and it.best.outcome.imported]
    notes = (f"the best is imported, not measured here: {', '.join(claims)}",) if claims else ()
    return Table("", columns, tuple(map(_row, holdings)), notes)


def _row(holding: Holding) -> tuple[str, ...]:
    latency = None if holding.best is None else holding.best.latency
    key = holding.key
    return (
        task_name(holding.workload),
        str(holding.outcomes.total()),
        str(holding.outcomes["ok"]),
        formats.seconds(latency),
        formats.rate(holding.workload.flop, latency),
        holding.target,
        f"{short_name(key.backend)} {key.backend_version}",
        str(key.threads),
        key.protocol,
    )
