from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models.cost import TrainingGroup
from autotune.models.training import folds_by_task, only_target, select_tasks, training_groups
from autotune.sketches import Candidate
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target, preset
from autotune.testing.toy_space import ToySpace

TARGET = preset("skylake-avx512")


def _record(
    candidate: Candidate,
    outcome: Outcome,
    protocol: str = "quick",
    target: Target = TARGET,
) -> Record:
    key = MeasureKey(target.fingerprint, "reference", "1", "1", target.cores, protocol)
    return Record("run", 0, candidate, key, target.to_json(), "toy-1", outcome, 0.0)


def _candidates(extent: int, count: int) -> Sequence[Candidate]:
    found = {it.digest: it for it in ToySpace(extent).sample(100, np.random.default_rng(0))}
    return list(found.values())[:count]


def _ok(latency: float) -> Outcome:
    return Outcome("ok", latency)


def test_groups_are_of_one_workload_under_one_key() -> None:
    (a, b), (c,) = _candidates(8, 2), _candidates(16, 1)
    records = [
        _record(a, _ok(1.0)),
        _record(c, _ok(2.0)),
        _record(b, Outcome("crash")),
        _record(a, _ok(3.0), "standard"),
    ]
    groups = training_groups(records)
    assert [[candidate for candidate, _ in group.outcomes] for group in groups] == [
        [a, b],
        [c],
        [a],
    ]
    assert [group.name for group in groups] == [
        "gemm m=8 n=8 k=8 float32",
        "gemm m=16 n=16 k=16 float32",
        "gemm m=8 n=8 k=8 float32",
    ]
    assert groups[0].workload == groups[2].workload == a.sketch.workload.digest
    assert all(group.is_informative for group in groups)
    assert not training_groups([_record(a, Outcome("invalid"))])[0].is_informative


def test_what_was_measured_again_counts_once() -> None:
    (a,) = _candidates(8, 1)
    for outcomes, latency in [
        ([_ok(1.0), _ok(2.0)], 2.0),
        ([_ok(1.0), Outcome("crash")], 1.0),
        ([Outcome("timeout"), _ok(2.0)], 2.0),
        ([_ok(1.0), Outcome("wrong_result")], None),
    ]:
        (group,) = training_groups([_record(a, outcome) for outcome in outcomes])
        ((_, kept),) = group.outcomes
        assert kept.latency == latency


def test_a_model_is_for_one_target() -> None:
    (a,) = _candidates(8, 1)
    other = TARGET.with_cores(1 if TARGET.cores > 1 else 2)
    one = [_record(a, _ok(1.0))]
    both = [*one, _record(a, _ok(1.0), target=other)]
    assert only_target(one) == only_target(both, TARGET) == TARGET
    assert only_target(both, other) == other
    with pytest.raises(InvalidValueError, match=f"several targets .*{TARGET.name}.*; name one"):
        only_target(both)
    with pytest.raises(InvalidValueError, match=f"with {other.cores} cores; there are of"):
        only_target(one, other)


def _group(workload: str, name: str = "gemm m=8") -> TrainingGroup:
    return TrainingGroup(name, workload, ())


def test_tasks_are_held_out_by_name() -> None:
    groups = [_group("a", "gemm m=8"), _group("b", "softmax m=8"), _group("c", "gemm m=9")]
    for names, held in [
        ([], []),
        (["softmax"], [1]),
        (["gemm"], [0, 2]),
        (["gemm m=9", "b"], [1, 2]),
    ]:
        kept, out = select_tasks(groups, names)
        assert out == [groups[number] for number in held]
        assert kept == [group for group in groups if group not in out]
    with pytest.raises(UnknownNameError, match=r"unknown task 'gemm m=7'.*Did you mean"):
        select_tasks(groups, ["gemm m=7"])


@given(st.lists(st.sampled_from("abcdefgh"), min_size=2, max_size=20), st.integers(0, 9))
def test_folds_split_workloads(workloads: list[str], seed: int) -> None:
    groups = [_group(workload) for workload in workloads]
    distinct = len(set(workloads))
    for folds in range(2, distinct + 1):
        split = folds_by_task(groups, folds, seed)
        assert sorted(number for fold in split for number in fold) == list(range(len(groups)))
        sets = [{workloads[number] for number in fold} for fold in split]
        assert sum(map(len, sets)) == distinct, "a workload is in two folds"
        assert max(map(len, sets)) - min(map(len, sets)) <= 1
        assert split == folds_by_task(groups, folds, seed)


def test_folds_that_cannot_be() -> None:
    groups = [_group("a"), _group("a"), _group("b")]
    for folds in (0, 1, 3):
        with pytest.raises(InvalidValueError, match=f"between 2 and 2, .* not {folds}"):
            folds_by_task(groups, folds)


def test_the_seed_decides_the_folds() -> None:
    groups = [_group(name) for name in "abcdefgh"]
    assert len({tuple(folds_by_task(groups, 4, seed)) for seed in range(5)}) > 1
    assert folds_by_task([evolve(group) for group in groups], 4) == folds_by_task(groups, 4)
