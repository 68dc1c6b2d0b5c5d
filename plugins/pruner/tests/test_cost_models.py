from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_pruner.cost_models import MomentumPaCM, PaCM, TenSetMLP
from autotune_pruner.networks import Weights
from autotune_pruner.presets import pacm_cpu
from autotune_pruner.programs import feature_version
from autotune_pruner.ranking_model import RankingModel
from thinning import thinned
from toy_outcomes import TARGET, crashes, group, rank_correlation, saved, told

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.models import ModelContext
from autotune.models.cost import (
    Observation,
    TrainableCostModel,
    TrainingGroup,
    arrays_from_json,
    read_model,
)
from autotune.models.training import pairwise_accuracy, score_groups
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.cost_model_suite import CostModelFactory, TrainableCostModelSuite
from autotune.testing.toy_space import ToySpace, toy_latencies

BATCH = ToySpace(64).sample(60, np.random.default_rng(9))


def _make(model: type[RankingModel], **options: Any) -> RankingModel:
    context = ModelContext(target=TARGET, seed=1, options={"epochs": 3, **options})
    return model(context)


def _ranked(model: RankingModel) -> float:
    return rank_correlation(model.predict(BATCH), -toy_latencies(BATCH))


@pytest.mark.parametrize("model", thinned([PaCM, TenSetMLP], 2))
def test_it_learns_to_rank(model: type[RankingModel]) -> None:
    made = _make(model, epochs=20)
    for seed in range(5):
        made.update(told(16, seed))
    assert _ranked(made) > 0.4


@pytest.mark.parametrize("model", [PaCM, MomentumPaCM])
def test_failures_alone_are_said_once_and_teach_nothing(
    model: type[RankingModel], caplog: pytest.LogCaptureFixture
) -> None:
    made = _make(model)
    with caplog.at_level(logging.WARNING, "autotune.models.cost"):
        for seed in range(8):
            made.update(crashes(4, seed))
    assert [record.getMessage() for record in caplog.records] == [
        f"cost model {made.name!r} has nothing to learn from: no task has two programs of which "
        "one is better"
    ]
    assert not made.predict(BATCH).any()


@pytest.mark.parametrize("outcomes", [None, [], crashes(20)], ids=["none", "empty", "failed"])
def test_training_on_nothing_is_said_and_changes_nothing(
    outcomes: list[Observation] | None, caplog: pytest.LogCaptureFixture
) -> None:
    model = _make(PaCM)
    model.update(told(20))
    before = json.dumps(model.state())
    with caplog.at_level(logging.WARNING, "autotune.models.cost"):
        assert not model.fit([] if outcomes is None else [group(outcomes)])
    (record,) = caplog.records
    assert "nothing to learn from" in record.getMessage()
    assert json.dumps(model.state()) == before


def test_training_holds_rows_out() -> None:
    found = _make(PaCM).fit([group(told(40)), group(told(30, extent=16))])
    assert 0 <= found["kept_epoch"] < found["epochs"] <= 3 and found["validation_loss"] > 0
    found = _make(PaCM, fidelity="published").fit([group(told(40))])
    assert found["kept_epoch"] == found["epochs"] - 1 and "validation_loss" not in found


def test_files_that_do_not_fit_are_refused() -> None:
    trained = _make(PaCM)
    trained.fit([group(told(30))])
    with pytest.raises(InvalidValueError, match="'pacm'.*'tenset-mlp'"):
        _make(TenSetMLP).load(saved(trained))
    with pytest.raises(InvalidValueError, match="corrected.*published"):
        _make(PaCM, fidelity="published").load(saved(trained))


def test_momentum_adapts_what_pacm_has_learned() -> None:
    trained, adapting = _make(PaCM), _make(MomentumPaCM)
    trained.fit([group(told(30))])
    adapting.load(saved(trained))
    np.testing.assert_array_equal(adapting.predict(BATCH), trained.predict(BATCH))


def test_weights_of_a_file_are_not_in_the_state() -> None:
    trained, loaded = _make(PaCM), _make(PaCM)
    trained.fit([group(told(30))])
    loaded.load(saved(trained))
    assert len(json.dumps(loaded.state())) < 1000


def test_full_trainings_come_with_growth_and_fine_tuning_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from autotune_pruner import ranking_model

    epochs: list[int] = []
    fit = ranking_model.fit

    def recorded(network: Any, data: Any, normaliser: Any, settings: Any, batches: Any) -> Any:
        epochs.append(settings.epochs)
        return fit(network, data, normaliser, settings, batches)

    monkeypatch.setattr(ranking_model, "fit", recorded)
    model = _make(PaCM, fine_tune_steps=1)
    for seed in range(9):
        model.update(told(4, seed))
    assert epochs == [3, 1, 3, 1, 1, 1, 1, 1, 3]
    epochs.clear()
    published = _make(PaCM, fidelity="published")
    for seed in range(3):
        published.update(told(4, seed))
    assert epochs == [3, 3, 3]


def test_a_file_is_where_full_trainings_begin() -> None:
    trained = _make(PaCM, epochs=20)
    trained.fit([group(told(60))])
    started, fresh = _make(PaCM, epochs=1), _make(PaCM, epochs=1)
    started.load(saved(trained))
    for model in (started, fresh):
        model.update(told(8, 7))
    assert _ranked(started) > _ranked(fresh) + 0.1


def test_scores_are_the_same_bits_wherever_a_candidate_stands() -> None:
    model = _make(PaCM)
    model.update(told(20))
    candidates = list(BATCH)
    backwards = CandidateBatch.of(candidates[::-1])
    scores = dict(zip((c.digest for c in BATCH), model.predict(BATCH).tolist(), strict=True))
    again = dict(
        zip((c.digest for c in backwards), model.predict(backwards).tolist(), strict=True)
    )
    assert scores == again
    alone = model.predict(CandidateBatch.of([candidates[17]]))[0]
    assert alone == scores[candidates[17].digest]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"epoch": 1}, InvalidValueError, "Did you mean 'epochs'"),
        ({"epochs": -1}, InvalidValueError, "epochs"),
        ({"growth": 0.5}, InvalidValueError, "growth"),
        ({"fidelity": "publishd"}, UnknownNameError, "Did you mean 'published'"),
        ({"device": "toaster"}, InvalidValueError, "toaster"),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, Any], error: type[AutotuneError], text: str
) -> None:
    with pytest.raises(error, match=text):
        PaCM(ModelContext(target=TARGET, options=options))


MODELS: list[Callable[[ModelContext], TrainableCostModel]] = [PaCM, MomentumPaCM]


def _group(task: dict[str, Any]) -> TrainingGroup:
    workload = Workload.from_json(task["workload"])
    sketches = [Sketch.from_json(each, workload) for each in task["sketches"]]
    outcomes = tuple(
        (Candidate(sketches[number], tuple(values)), Outcome("ok", latency))
        for number, values, latency in task["programs"]
    )
    return TrainingGroup(workload.name, workload.digest, outcomes)


@pytest.fixture(scope="module")
def held_out() -> tuple[list[TrainingGroup], Target]:
    """Outcomes of tasks that the weights were not trained on, and their target."""
    file = Path(__file__).parent / "data" / "held_out.json"
    recorded = json.loads(file.read_text(encoding="utf-8"))
    return [_group(task) for task in recorded["tasks"]], Target.from_json(recorded["target"])


@pytest.mark.parametrize("make", MODELS)
def test_it_ranks_what_it_has_not_seen(
    make: Callable[[ModelContext], TrainableCostModel],
    held_out: tuple[list[TrainingGroup], Target],
) -> None:
    groups, target = held_out
    model = make(ModelContext(target=target))
    with pacm_cpu(ModelContext()).open("rb") as stream:
        model.load(stream)
    accuracies = [pairwise_accuracy(task) for task in score_groups(model.predict, groups)]
    assert len(accuracies) == 3 and np.mean(accuracies) > 0.62 and min(accuracies) > 0.55


def test_it_is_small() -> None:
    assert pacm_cpu(ModelContext()).stat().st_size < 4e6


@pytest.fixture(scope="module")
def trained() -> bytes:
    model = MomentumPaCM(ModelContext(target=TARGET, options={"epochs": 4}))
    model.fit([group(told(40))])
    return saved(model).getvalue()


def _model(initial: bytes, **options: Any) -> MomentumPaCM:
    model = MomentumPaCM(ModelContext(target=TARGET, options={"epochs": 3, **options}))
    model.load(io.BytesIO(initial))
    return model


def _read(content: bytes, fidelity: str = "ours") -> Weights:
    version = feature_version(fidelity)
    return read_model(io.BytesIO(content), "pacm", version).arrays


def _state(model: MomentumPaCM, initial: bytes, fidelity: str = "ours") -> tuple[Weights, Weights]:
    """Slow weights, and those that predict."""
    state = model.state()
    slow = arrays_from_json(state["base"]) if state["base"] else _read(initial, fidelity)
    return slow, arrays_from_json(state["current"]) if state["current"] else slow


def _same(one: Weights, other: Weights) -> bool:
    return all((array == other[name]).all() for name, array in one.items())


def test_slow_weights_follow_after_every_fourth_update(trained: bytes) -> None:
    model = _model(trained)
    original = _read(trained)
    slow = original
    for update in range(1, 9):
        scores = model.predict(BATCH)
        model.update(told(6, update))
        found, fast = _state(model, trained)
        if update % 4:
            assert _same(found, slow)
            np.testing.assert_array_equal(model.predict(BATCH), scores)
            continue
        assert not _same(fast, found) and (model.predict(BATCH) != scores).any()
        for name, array in found.items():
            wanted = 0.99 * slow[name] + 0.01 * fast[name]
            if name.endswith("num_batches_tracked"):
                wanted = slow[name]
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-7)
        slow = found


def test_the_fine_tuned_network_predicts(trained: bytes) -> None:
    model = _model(trained)
    for update in range(4):
        model.update(told(6, update))
    _, fast = _state(model, trained)
    assert _same(_read(saved(model).getvalue()), fast)


def test_fine_tuning_starts_from_the_slow_weights(trained: bytes) -> None:
    """Weights of the fourth update reach the eighth by the blend alone."""
    one = _model(trained, momentum=1.0)
    for update in range(8):
        one.update(told(6, update))
    other = _model(trained, momentum=1.0, period=8)
    for update in range(8):
        other.update(told(6, update))
    assert _same(_state(one, trained)[0], _read(trained))
    np.testing.assert_array_equal(one.predict(BATCH), other.predict(BATCH))


@pytest.mark.parametrize("fidelity", ["ours", "published"])
def test_buffers_and_normaliser(fidelity: str) -> None:
    pretrained = MomentumPaCM(
        ModelContext(target=TARGET, options={"fidelity": fidelity, "epochs": 2})
    )
    pretrained.fit([group(told(40))])
    initial = saved(pretrained).getvalue()
    model = _model(initial, fidelity=fidelity)
    for update in range(4):
        model.update(told(6, update, extent=16))
    original = _read(initial, fidelity)
    slow, fast = _state(model, initial, fidelity)
    for name in ("norm.running_mean", "norm.running_var"):
        moved = (slow[name] != original[name]).any()
        assert moved == (fidelity == "ours")
    width = "normaliser.statements.width"
    assert (fast[width] == original[width]).all() == (fidelity == "ours")


def test_without_weights_it_begins_with_random_ones() -> None:
    model = MomentumPaCM(ModelContext(target=TARGET, options={"epochs": 2}))
    for update in range(3):
        model.update(told(6, update))
        assert not model.predict(BATCH).any()
    model.update(told(6, 3))
    assert model.predict(BATCH).std() > 0


def ranking(cls: type[RankingModel], threads: int = 1, **options: Any) -> CostModelFactory:
    given = {"epochs": 4, **options}
    return lambda: cls(ModelContext(target=TARGET, seed=3, threads=threads, options=given))


@pytest.mark.parametrize(
    "cost_model_factory",
    [
        *thinned([ranking(PaCM, fidelity=it) for it in ("ours", "published")], 2),
        ranking(TenSetMLP, threads=2),
        *thinned([ranking(MomentumPaCM, period=it) for it in (2, 1)], 2),
    ],
)
class TestRankingModels(TrainableCostModelSuite):
    """Every cost model of this plugin."""
