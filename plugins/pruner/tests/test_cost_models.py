from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
import torch
from autotune_pruner.cost_models import PaCM, TenSetMLP
from autotune_pruner.momentum import MomentumPaCM
from autotune_pruner.ranking_model import RankingModel
from toy_outcomes import TARGET, crashes, group, rank_correlation, saved, told

from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import Observation
from autotune.sketches import CandidateBatch
from autotune.testing.toy_space import ToySpace, toy_latencies

MODELS: list[type[RankingModel]] = [PaCM, TenSetMLP, MomentumPaCM]
BATCH = ToySpace(64).sample(300, np.random.default_rng(9))


def _make(model: type[RankingModel], **options: Any) -> RankingModel:
    context = ModelContext(target=TARGET, seed=1, options={"epochs": 3, **options})
    return model(context)  # type: ignore[call-arg]


def _ranked(model: RankingModel) -> float:
    return rank_correlation(model.predict(BATCH), -toy_latencies(BATCH))


@pytest.mark.parametrize("model", [PaCM, TenSetMLP])
def test_it_learns_to_rank(model: type[RankingModel]) -> None:
    made = _make(model, epochs=20)
    for seed in range(5):
        made.update(told(16, seed))
    assert _ranked(made) > 0.4


@pytest.mark.parametrize("model", MODELS)
def test_untrained_it_predicts_zeros(model: type[RankingModel]) -> None:
    assert not _make(model).predict(BATCH).any()


@pytest.mark.parametrize("model", MODELS)
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


@pytest.mark.parametrize("model", MODELS)
def test_training_holds_rows_out(model: type[RankingModel]) -> None:
    found = _make(model).fit([group(told(40)), group(told(30, extent=16))])
    assert 0 <= found["kept_epoch"] < found["epochs"] <= 3 and found["validation_loss"] > 0
    found = _make(model, fidelity="published").fit([group(told(40))])
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


@pytest.mark.parametrize("model", MODELS)
def test_a_state_goes_on_from_the_same_file_only(model: type[RankingModel]) -> None:
    one, other = _make(model), _make(model)
    one.fit([group(told(30))])
    other.fit([group(told(30, seed=1))])
    first, second = _make(model), _make(model)
    first.load(saved(one))
    second.load(saved(other))
    assert len(json.dumps(first.state())) < 1000, "weights of the file are not in the state"
    with pytest.raises(InvalidValueError, match="other weights"):
        second.load_state(first.state())


def test_a_state_with_other_features_is_refused() -> None:
    model = _make(PaCM)
    with pytest.raises(InvalidValueError, match="corrected.*published"):
        _make(PaCM, fidelity="published").load_state(model.state())


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


def test_inference_changes_no_running_statistics() -> None:
    model = _make(PaCM)
    model.update(told(20))
    before = json.dumps(model.state())
    model.predict(BATCH)
    assert json.dumps(model.state()) == before
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("model", MODELS)
def test_warming_up_teaches_nothing(model: type[RankingModel]) -> None:
    made = _make(model)
    before = json.dumps(made.state())
    made.warm_up()
    assert json.dumps(made.state()) == before and not made.predict(BATCH).any()
