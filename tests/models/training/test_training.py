from __future__ import annotations

import numpy as np
import pytest
from toy_parts import TOY_TREES, toy_trees

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees, TrainingGroup
from autotune.models.training import cross_validate, judge, make_trainable, mean_figures, train
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace, toy_outcome

TARGET = preset("skylake-avx512")


def _group(extent: int, count: int = 80) -> TrainingGroup:
    candidates = list(ToySpace(extent).sample(count, np.random.default_rng(extent)))
    told = tuple((candidate, toy_outcome(candidate)) for candidate in candidates)
    return TrainingGroup(f"toy {extent}", candidates[0].sketch.workload.digest, told)


GROUPS = [_group(extent) for extent in (8, 16, 32, 64)]


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
