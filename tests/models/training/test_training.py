from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from toy_parts import TOY_TREES, toy_trees

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees, TrainingGroup
from autotune.models.training import (
    cross_validate,
    folds_by_task,
    judge,
    make_trainable,
    mean_figures,
    only_target,
    select_tasks,
    train,
    training_groups,
)
from autotune.sketches import Candidate
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target, preset
from autotune.testing.toy_space import ToySpace, toy_outcome

TARGET = preset("skylake-avx512")


def _toy(extent: int, count: int = 80) -> TrainingGroup:
    candidates = list(ToySpace(extent).sample(count, np.random.default_rng(extent)))
    told = tuple((candidate, toy_outcome(candidate)) for candidate in candidates)
    return TrainingGroup(f"toy {extent}", candidates[0].sketch.workload.digest, told)


GROUPS = [_toy(extent) for extent in (8, 16, 32, 64)]


def _make() -> GradientBoostedTrees:
    return toy_trees(ModelContext(target=TARGET))


def _failed(group: TrainingGroup) -> TrainingGroup:
    told = tuple((candidate, Outcome("crash")) for candidate, _ in group.outcomes)
    return TrainingGroup("failed", "failed", told)


def test_every_task_is_judged_by_a_model_that_has_not_seen_it() -> None:
    seen: list[list[str]] = []

    class Noting(GradientBoostedTrees):
        def fit(self, groups):  # type: ignore[no-untyped-def]
            seen.append([group.name for group in groups])
            return super().fit(groups)

    noting = lambda: Noting(ModelContext(target=TARGET), features=_make()._features)  # noqa: E731
    scores = cross_validate(noting, [*GROUPS, _failed(GROUPS[0])], 2)
    assert sorted(name for score in scores for name in score.names) == sorted(
        group.name for group in GROUPS
    )
    for score, names in zip(scores, seen, strict=True):
        assert not set(score.names) & set(names)
        assert set(score.names) | set(names) == {group.name for group in GROUPS}
    means = mean_figures(scores)
    assert means["pairwise"] == pytest.approx(
        np.mean([score.figures["pairwise"] for score in scores])
    )
    assert means["pairwise"] > 0.7, "what holds for one size of the toy holds for others"


def test_training_holds_tasks_out() -> None:
    trained = train(_make, GROUPS, held_out=["toy 64"])
    assert [group.name for group in trained.groups] == ["toy 8", "toy 16", "toy 32"]
    assert trained.rows == 240 and trained.facts["rows"] == 240
    (score,) = trained.scores
    assert score.names == ("toy 64",)
    again = judge(trained.model, [GROUPS[3]])
    assert again.figures == score.figures


def test_folds_leave_nothing_out_of_the_model() -> None:
    trained = train(_make, GROUPS, folds=4)
    assert len(trained.scores) == 4 and len(trained.groups) == 4
    assert not train(_make, GROUPS).scores


def test_what_cannot_be_trained() -> None:
    with pytest.raises(InvalidValueError, match="no task with a valid candidate to train on"):
        train(_make, [_failed(GROUPS[0])])
    with pytest.raises(InvalidValueError, match="to train on"):
        train(_make, GROUPS, held_out=["toy"])
    with pytest.raises(InvalidValueError, match="to judge a model by"):
        judge(_make(), [_failed(GROUPS[0])])
    with pytest.raises(InvalidValueError, match="'random' cannot be trained"):
        make_trainable("random", ModelContext(target=TARGET))
    with pytest.raises(UnknownNameError, match="gbdt"):
        make_trainable("gdbt", ModelContext(target=TARGET))
    assert isinstance(
        make_trainable(TOY_TREES, ModelContext(target=TARGET, seed=3)), GradientBoostedTrees
    )


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
