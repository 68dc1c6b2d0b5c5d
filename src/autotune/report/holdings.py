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
from autotune.sketches import baseline_label
from autotune.store.records import (
    OUTCOME_STATUSES,
    Baseline,
    MeasureKey,
    Record,
    best_baseline,
    standing,
)

__all__ = ["Holding", "holdings_table", "summarize"]


@define
class Holding:
    """The records of one workload under one measure key.

    Attributes:
        workload: What was tuned.
        key: What its measurements depend on.
        target: Name of the target.
        outcomes: How many records of candidates there are, by status.
        fastest: The fastest of these, if any is valid; an imported one only where
            none was timed here.
        baselines: Records of what there is without tuning.
    """

    workload: Workload
    key: MeasureKey
    target: str
    outcomes: Counter[str] = field(factory=Counter)
    fastest: Record | None = None
    baselines: list[Record] = field(factory=list)

    def add(self, record: Record) -> None:
        """Count one more record; a baseline is none of a trial."""
        if record.baseline:
            self.baselines.append(record)
            return
        self.outcomes[record.outcome.status] += 1
        if record.latency is not None and (
            self.fastest is None or record.rank < self.fastest.rank
        ):
            self.fastest = record

    @property
    def best(self) -> Record | None:
        """Of the program to use: of the fastest, or of the baseline that it is no gain over."""
        if self.fastest is None:
            return None
        return standing(self.fastest, map(Baseline.of, self.baselines))

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
            "best": None if best is None else {"record": best.name, "latency": best.latency},
            "baselines": [
                {
                    "record": it.name,
                    "name": baseline_label(self.workload, it.baseline),
                    "status": it.outcome.status,
                    "latency": it.latency,
                    "is_best": best is not None and it.name == best.name,
                }
                for it in self.baselines
            ],
        }


def summarize(records: Iterable[Record]) -> list[Holding]:
    """Make a holding for each workload under each measure key, in order of appearance.

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
        "baseline",
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
        _baseline_text(holding),
        holding.target,
        f"{short_name(key.backend)} {key.backend_version}",
        str(key.threads),
        key.protocol,
    )


def _baseline_text(holding: Holding) -> str:
    """The fastest program without tuning, marked where it is the best."""
    baseline = best_baseline(map(Baseline.of, holding.baselines))
    if baseline is None:
        return "-"
    name = baseline_label(holding.workload, baseline.name)
    text = f"{name} {formats.seconds(baseline.outcome.latency)}"
    return f"{text}, kept" if holding.best is not None and holding.best.baseline else text
