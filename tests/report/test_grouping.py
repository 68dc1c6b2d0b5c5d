"""Records are grouped by what they are comparable with."""

from __future__ import annotations

from attrs import define, evolve, field

from autotune.ir.workloads import Workload
from autotune.report.summaries import by_measure_key
from autotune.store.records import MeasureKey, Record
from autotune.testing.sample_records import sample_record


@define
class Seen:
    workload: Workload
    key: MeasureKey
    target: str
    trials: list[int] = field(factory=list)

    def add(self, record: Record) -> None:
        self.trials.append(record.trial)


def test_a_group_for_each_workload_under_each_key() -> None:
    samples = [sample_record(trial) for trial in range(6)]
    other = evolve(samples[0].key, threads=samples[0].key.threads + 1)
    records = [it if it.trial % 3 else evolve(it, key=other) for it in samples]
    workloads = {it.candidate.sketch.workload.digest for it in records}
    assert len(workloads) == 1
    groups = by_measure_key(iter(records), Seen)
    assert [(group.key, group.trials) for group in groups] == [
        (other, [0, 3]),
        (samples[0].key, [1, 2, 4, 5]),
    ]
    assert {group.target for group in groups} == {str(samples[0].target["name"])}
    assert by_measure_key([], Seen) == []
