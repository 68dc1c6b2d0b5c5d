from __future__ import annotations

import io
import json
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from python_processes import run_python
from toy_outcomes import rank_correlation, told

from autotune.errors import AutotuneError, InvalidValueError
from autotune.models import ModelContext
from autotune.models.cost import GradientBoostedTrees, TrainingGroup, write_model
from autotune.models.cost.gbdt import ROUNDS
from autotune.process.importing import packages_hidden
from autotune.sketches import CandidateBatch
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory, TrainableCostModelSuite
from autotune.testing.toy_space import ToySpace, toy_features, toy_latencies

with packages_hidden(*GradientBoostedTrees.unused_packages):
    import lightgbm

SPACE = ToySpace(extent=64)


def _model(**arguments: Any) -> GradientBoostedTrees:
    own = {"features": toy_features}
    own |= {key: arguments.pop(key) for key in ("features", "feature_version") if key in arguments}
    return GradientBoostedTrees(ModelContext(**arguments), **own)


class TestGradientBoostedTrees(TrainableCostModelSuite):
    @pytest.fixture(params=[1, 2], ids="{} threads".format)
    def cost_model_factory(self, request: pytest.FixtureRequest) -> CostModelFactory:
        return lambda: _model(seed=3, threads=request.param)


class TestWithLoopNestFeatures(TrainableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: GradientBoostedTrees(ModelContext(target=preset("skylake-avx512")))


@pytest.mark.parametrize(("n", "correlation"), [(16, 0.3), (64, 0.7), (200, 0.85)])
def test_it_learns_to_rank(n: int, correlation: float) -> None:
    batch = SPACE.sample(1000, np.random.default_rng(9))
    found = []
    for seed in range(5):
        model = _model(seed=seed)
        model.update(told(n, seed))
        found.append(rank_correlation(model.predict(batch), 1 / toy_latencies(batch)))
    assert np.median(found) > correlation


def test_failures_rank_below_what_works() -> None:
    candidates = list(SPACE.sample(100, np.random.default_rng(0)))
    model = _model()
    model.update(
        [
            (item, Outcome("ok", 1e-3) if item.config["i2"] > 4 else Outcome("crash"))
            for item in candidates
        ]
    )
    fresh = list(SPACE.sample(100, np.random.default_rng(1)))
    scores = model.predict(CandidateBatch.of(fresh))
    works = np.array([item.config["i2"] > 4 for item in CandidateBatch.of(fresh)])
    assert scores[works].min() > scores[~works].max()


def test_tasks_of_any_size_share_the_model() -> None:
    # The same bowl, a million times slower for the large workload: labels are relative.
    slow = [
        (candidate, Outcome(outcome.status, outcome.latency and outcome.latency * 1e6))
        for candidate, outcome in told(60, 1, extent=64)
    ]
    batch = ToySpace(extent=32).sample(500, np.random.default_rng(5))
    model = _model()
    model.update(slow)
    model.update(told(60, 2, extent=32))
    assert rank_correlation(model.predict(batch), 1 / toy_latencies(batch)) > 0.7
    assert 0.9 < model.predict(batch).max() < 1.3


def test_order_of_outcomes_may_mix_sketches() -> None:
    outcomes = told(40)
    mixed = [outcomes[index] for index in np.random.default_rng(0).permutation(40)]
    model, memorised = _model(), []
    model.update(mixed)
    for row, (candidate, outcome) in zip(model.state()["features"], mixed, strict=True):
        assert row == toy_features(CandidateBatch.of([candidate]))[0].tolist()
        memorised.append(outcome.latency)
    assert model.state()["latencies"] == memorised


def test_a_latency_of_zero_is_the_best() -> None:
    outcomes = told(20)
    model = _model()
    model.update([(outcomes[0][0], Outcome("ok", 0.0)), *outcomes[1:]])
    assert np.isfinite(model.predict(CandidateBatch.of([outcomes[0][0]]))).all()


def test_features_that_are_not_finite_are_stored_as_json() -> None:
    def features(batch: CandidateBatch, target: object) -> NDArray[np.float64]:
        table = toy_features(batch)
        table[:, 0], table[:, 1], table[:, 2] = np.nan, np.inf, -np.inf
        return table

    model = _model(features=features)
    model.update(told(20))
    json.dumps(model.state(), allow_nan=False)
    assert np.isfinite(model.predict(SPACE.sample(5, np.random.default_rng(0)))).all()


def test_features_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"must have shape \(4, 6\), not \(3, 6\)"):
        _model(features=lambda batch, target: toy_features(batch)[1:]).update(told(4))


def test_an_update_trains_once_and_a_row_is_featurised_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[int] = []
    trained: list[tuple[int, int, int]] = []
    train = lightgbm.train

    def features(batch: CandidateBatch, target: object) -> NDArray[np.float64]:
        rows.append(len(batch))
        return toy_features(batch)

    def counted(parameters: dict[str, Any], data: Any, **options: Any) -> Any:
        booster = train(parameters, data, **options)
        trained.append((data.num_data(), options["num_boost_round"], parameters["num_threads"]))
        return booster

    monkeypatch.setattr(lightgbm, "train", counted)
    model = _model(features=features, threads=4)
    for seed in range(3):
        model.update(told(64, seed))
        model.predict(SPACE.sample(1024, np.random.default_rng(0)))
    assert rows == [64, 1024] * 3
    # Threads would spin at a barrier for every leaf of so little data.
    assert trained == [(64, ROUNDS, 1), (128, ROUNDS, 1), (192, ROUNDS, 1)]


def test_without_lightgbm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(AutotuneError, match="pip install lightgbm"):
        _model().update(told(4))
    assert _model().predict(SPACE.sample(2, np.random.default_rng(0))).tolist() == [0.0, 0.0]


def test_lightgbm_is_imported_when_needed() -> None:
    script = (
        "import sys, autotune.models.cost as c\nfrom autotune.models import ModelContext\n"
        "from autotune.testing.toy_space import ToySpace, toy_features\n"
        "import numpy as np\n"
        "m = c.GradientBoostedTrees(ModelContext(), features=toy_features)\n"
        "m.predict(ToySpace().sample(4, np.random.default_rng(0)))\n"
        "m.load_state(m.state())\n"
        "sys.exit('lightgbm' in sys.modules)\n"
    )
    run_python("-c", script)


def _fitted(**arguments: Any) -> GradientBoostedTrees:
    outcomes = tuple(told(200, 3))
    model = _model(**arguments)
    model.fit([TrainingGroup("toy", outcomes[0][0].sketch.workload.digest, outcomes)])
    return model


def _loaded(model: GradientBoostedTrees, **arguments: Any) -> GradientBoostedTrees:
    stream = io.BytesIO()
    model.save(stream)
    stream.seek(0)
    other = _model(**arguments)
    other.load(stream)
    return other


def test_what_was_learned_before_helps_from_the_first_outcome() -> None:
    batch = SPACE.sample(500, np.random.default_rng(9))
    truth = 1 / toy_latencies(batch)
    pretrained, fresh = _loaded(_fitted()), _model()
    assert rank_correlation(pretrained.predict(batch), truth) > 0.85
    for model in (pretrained, fresh):
        model.update(told(8, 5))
    gain = rank_correlation(pretrained.predict(batch), truth)
    assert gain > rank_correlation(fresh.predict(batch), truth)


def test_fitting_says_what_it_saw() -> None:
    outcomes = tuple(told(50))
    group = TrainingGroup("toy", outcomes[0][0].sketch.workload.digest, outcomes)
    seen = _model().fit([group])
    assert (seen["tasks"], seen["rows"]) == (1, 50)
    assert 0 < seen["training_error"] < 0.3


@pytest.mark.parametrize("text", ["tree", "tree\nversion=v4\nnum_class=1\n"])
def test_damaged_trees_are_refused(text: str) -> None:
    stream = io.BytesIO()
    trees = np.frombuffer(text.encode(), dtype=np.uint8)
    write_model(stream, "gbdt", "custom", {"trees": trees})
    stream.seek(0)
    with pytest.raises(InvalidValueError, match="trees of the cost model are damaged"):
        _model().load(stream)
    stream = io.BytesIO()
    write_model(stream, "gbdt", "custom", {})
    stream.seek(0)
    with pytest.raises(InvalidValueError, match="has no trees"):
        _model().load(stream)
