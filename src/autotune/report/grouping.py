"""Groups of comparable records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from autotune.ir.workloads import Workload
from autotune.store.records import MeasureKey, Record

__all__ = ["by_measure_key"]


class _Group(Protocol):
    def add(self, record: Record) -> None: ...


GroupT = TypeVar("GroupT", bound=_Group)


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
