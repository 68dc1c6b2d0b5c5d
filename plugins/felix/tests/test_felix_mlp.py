"""The learned model that is descended along: laws of its gradient, and what it learns."""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from autotune_felix import plugin
from autotune_felix.felix_mlp import FelixMlp
from autotune_felix.residual_network import TrainingSettings
from toy_outcomes import rank_correlation, told

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import TrainingGroup
from autotune.sketches import CandidateBatch
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory, TrainableCostModelSuite
from autotune.testing.differentiable_suite import DifferentiableCostModelSuite
from autotune.testing.plugin_suite import PluginSuite
from autotune.testing.toy_space import ToySpace, toy_latencies

CPU = preset("sapphirerapids-4core")
SMALL = {"members": 2, "width": 16, "steps": 20, "fit_epochs": 2}
ABLE = {"members": 2, "width": 32}


class TestPlugin(PluginSuite):
    @pytest.fixture
    def plugin(self) -> ModuleType:
        return plugin


class TestInDouble(DifferentiableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: FelixMlp(
            ModelContext(target=CPU, seed=3, options={**SMALL, "precision": "double"})
        )


class TestInSingle(TrainableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: FelixMlp(ModelContext(target=CPU, seed=3, options=SMALL))


def test_published_smoothing_is_another_model() -> None:
    narrow, published = (
        FelixMlp(ModelContext(target=CPU, options={**SMALL, "smoothing": smoothing}))
        for smoothing in ("narrow", "published")
    )
    state = narrow.state()
    with pytest.raises(InvalidValueError, match="felix"):
        published.load_state(state)


def test_it_learns_to_rank_what_the_estimate_does_not_know() -> None:
    batch = ToySpace(64).sample(250, np.random.default_rng(9))
    truth = 1 / toy_latencies(batch)
    model = FelixMlp(ModelContext(target=CPU, seed=1, options=ABLE))
    before = rank_correlation(model.predict(batch), truth)
    for seed in range(3):
        model.update(told(32, seed))
    assert rank_correlation(model.predict(batch), truth) > max(0.7, before + 0.1)


def test_what_it_was_trained_on_before_helps_and_is_replayed() -> None:
    groups = [
        TrainingGroup(str(extent), f"task {extent}", tuple(told(150, extent, extent)))
        for extent in (16, 32)
    ]
    batch = ToySpace(64).sample(250, np.random.default_rng(9))
    truth = 1 / toy_latencies(batch)
    model = FelixMlp(ModelContext(target=CPU, seed=1))
    figures = model.fit(groups)
    assert figures["tasks"] == 2 and figures["loss"] < figures["loss before"]
    transferred = rank_correlation(model.predict(batch), truth)
    assert (
        transferred
        > rank_correlation(FelixMlp(ModelContext(target=CPU)).predict(batch), truth) + 0.1
    )
    stream = io.BytesIO()
    model.save(stream)
    other = FelixMlp(ModelContext(target=CPU, seed=1))
    other.load(io.BytesIO(stream.getvalue()))
    np.testing.assert_array_equal(other.predict(batch), model.predict(batch))
    for each in (model, other):
        each.update(told(24, 5))
    np.testing.assert_array_equal(other.predict(batch), model.predict(batch))
    assert rank_correlation(other.predict(batch), truth) > transferred - 0.05


def test_disagreement_counts_as_slower() -> None:
    batch = ToySpace().sample(30, np.random.default_rng(0))
    cautious, bold = (
        FelixMlp(ModelContext(target=CPU, options={**SMALL, "caution": c})) for c in (2.0, 0.0)
    )
    for each in (cautious, bold):
        each.update(told(40, 1))
    assert (cautious.predict(batch) < bold.predict(batch)).all()


def test_gradients_are_clipped_before_they_are_stepped_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    norms, step = [], torch.optim.AdamW.step

    def noted(optimiser: torch.optim.AdamW, *given: Any) -> Any:
        grads = [p.grad for group in optimiser.param_groups for p in group["params"]]
        norms.append(float(torch.sqrt(sum((grad**2).sum() for grad in grads))))
        return step(optimiser, *given)

    monkeypatch.setattr(torch.optim.AdamW, "step", noted)
    FelixMlp(ModelContext(target=CPU, options=SMALL)).update(told(40, 1))
    clip = TrainingSettings(1).clip
    assert len(norms) == 3 * SMALL["steps"] and max(norms) <= clip * (1 + 1e-5)
    # Some were longer than that.
    assert max(norms) == pytest.approx(clip, rel=1e-3)


def test_a_single_outcome_teaches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    batch = ToySpace().sample(10, np.random.default_rng(0))
    model = FelixMlp(ModelContext(target=CPU))
    before = model.predict(batch)
    for pair in (told(40, 1)[:1], []):
        model.update(pair)
    assert "nothing to learn from" in caplog.text
    np.testing.assert_array_equal(model.predict(batch), before)


def test_threads_of_torch_stay_as_they_were() -> None:
    threads = torch.get_num_threads()
    model = FelixMlp(ModelContext(target=CPU, options=SMALL))
    model.warm_up()
    model.update(told(16, 1))
    model.predict(CandidateBatch(()))
    assert torch.get_num_threads() == threads


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="precision"):
        FelixMlp(ModelContext(target=CPU, options={"precision": "half"}))
    with pytest.raises(UnknownNameError, match="smoothing"):
        FelixMlp(ModelContext(target=CPU, options={"smoothing": "wide"}))
    with pytest.raises(InvalidValueError, match="members"):
        FelixMlp(ModelContext(target=CPU, options={"members": 0}))
    model = FelixMlp(ModelContext(target=CPU, options=SMALL))
    model.update(told(16, 1))
    stream = io.BytesIO()
    model.save(stream)
    with pytest.raises(InvalidValueError, match="other options"):
        FelixMlp(ModelContext(target=CPU)).load(io.BytesIO(stream.getvalue()))
    with pytest.raises(InvalidValueError, match="features"):
        FelixMlp(ModelContext(target=preset("a100"))).load(io.BytesIO(stream.getvalue()))
