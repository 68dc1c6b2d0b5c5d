"""Summaries of records by what they can be compared with: holdings of a database, and spreads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from attrs import define, field

from autotune.ir.workloads import Workload
from autotune.plugins.workload_names import task_name
from autotune.report import formats
from autotune.report.lines import short_name
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
from autotune.targets import Target

__all__ = [
    "Group",
    "Holding",
    "Spread",
    "by_measure_key",
    "holdings_table",
    "spread_table",
    "spreads",
    "summarize",
]


@define
class Group:
    """The records of one workload under one measure key.

    Attributes:
        workload: What was measured.
        key: What its measurements depend on.
        target: Name of the target.
        outcomes: How many records of candidates there are, by status.
        description: The target, as a record has it.
    """

    workload: Workload
    key: MeasureKey
    target: str
    outcomes: Counter[str] = field(factory=Counter)
    description: Mapping[str, Any] = field(factory=dict)

    def add(self, record: Record) -> None:
        """Count one more record of a candidate."""
        self.outcomes[record.outcome.status] += 1
        self.description = record.target

    def read_target(self) -> Target:
        """Read the target of its programs: the cores that they use of it."""
        target = Target.from_json(self.description)
        fewer = target.kind == "cpu" and self.key.threads < target.cores
        return target.with_cores(self.key.threads) if fewer else target


GroupT = TypeVar("GroupT", bound=Group)


def by_measure_key(
    records: Iterable[Record], make: Callable[[Workload, MeasureKey, str], GroupT]
) -> list[GroupT]:
    """Make a group for each workload under each measure key, in order of appearance.

    Records are read once, one after the other.

    Args:
        records: Of any workloads.
        make: Called with a workload, a measure key and the name of a target for a group without
            records; each of its records is added then.
    """
    groups: dict[tuple[str, MeasureKey], GroupT] = {}
    for record in records:
        workload = record.candidate.sketch.workload
        name = workload.digest, record.key
        if name not in groups:
            groups[name] = make(workload, record.key, str(record.target.get("name", "-")))
        groups[name].add(record)
    return list(groups.values())


@define
class Holding(Group):
    """The records of one workload, by which programs of it can be compared.

    Attributes:
        fastest: The fastest candidate, if any is valid; an imported one only where none was timed
            here.
        baselines: Records of what there is without tuning.
    """

    fastest: Record | None = None
    baselines: list[Record] = field(factory=list)

    def add(self, record: Record) -> None:
        """Count one more record; a baseline is none of a trial."""
        if record.baseline:
            self.baselines.append(record)
            return
        Group.add(self, record)
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
    return Table("", columns, tuple(map(_holding_row, holdings)), notes)


def _holding_row(holding: Holding) -> tuple[str, ...]:
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


@define
class Spread(Group):
    """The records of one workload, as training data.

    Attributes:
        latencies: Of those that are ok, in seconds.
    """

    latencies: list[float] = field(factory=list)

    def add(self, record: Record) -> None:
        """Count one more record."""
        Group.add(self, record)
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
    return Table("", columns, tuple(map(_spread_row, found)), (note,))


def _spread_row(spread: Spread) -> tuple[str, ...]:
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
