"""The model that reasons from few outcomes: laws of its gradient, and what it learns."""

from __future__ import annotations

import re
import sys

import attrs
import numpy as np
import pytest
from autotune_felix.felix_gp import FelixGp
from toy_outcomes import rank_correlation, told

from autotune.errors import InvalidValueError, PluginError
from autotune.models import ModelContext
from autotune.models.cost import AnalyticCostModel
from autotune.plugins.installing import install_extra
from autotune.plugins.parts import create_part
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory
from autotune.testing.differentiable_suite import DifferentiableCostModelSuite
from autotune.testing.toy_space import ToySpace, toy_latencies

CPU = preset("sapphirerapids-4core")


class TestFelixGp(DifferentiableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: FelixGp(ModelContext(target=CPU, options={"outcomes": 30}))


def test_without_outcomes_it_is_the_estimate() -> None:
    batch = ToySpace().sample(30, np.random.default_rng(0))
    model, estimate = (
        FelixGp(ModelContext(target=CPU)),
        AnalyticCostModel(ModelContext(target=CPU)),
    )
    model.update(told(20, 1, extent=32))  # Of another workload.
    np.testing.assert_array_equal(model.predict(batch), estimate.predict(batch))
    sketch, rows = batch.parts[0]
    for one, other in zip(
        model.relaxed(sketch, rows.astype(float)),
        estimate.relaxed(sketch, rows.astype(float)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_few_outcomes_teach_it_what_the_estimate_does_not_know() -> None:
    batch = ToySpace(64).sample(500, np.random.default_rng(9))
    truth = 1 / toy_latencies(batch)
    model = FelixGp(ModelContext(target=CPU))
    before = rank_correlation(model.predict(batch), truth)
    model.update(told(16, 0))
    model.update(told(16, 1))
    assert rank_correlation(model.predict(batch), truth) > before + 0.2


def test_what_was_measured_is_predicted_and_surer_than_the_rest() -> None:
    known = told(40, 1)
    cautious, bold = (
        FelixGp(ModelContext(target=CPU, options={"caution": c})) for c in (1.0, 0.0)
    )
    for each in (cautious, bold):
        each.update(known)
    batch = ToySpace(64).sample(200, np.random.default_rng(0))
    doubts = bold.predict(batch) - cautious.predict(batch)
    measured = {candidate.digest for candidate, _ in known}
    is_known = np.array([candidate.digest in measured for candidate in batch])
    assert (doubts > 0).all() and is_known.any()
    assert doubts[is_known].mean() < doubts[~is_known].mean()


def test_the_fastest_and_the_latest_outcomes_are_kept() -> None:
    """The 3 latest of 6, and the 3 fastest others: what was slow before changes nothing."""
    known = [pair for pair in told(40, 1) if pair[1].latency]
    early = range(len(known) - 3)
    fastest = sorted(early, key=lambda place: float(known[place][1].latency or 0.0))[:3]
    model, other = (FelixGp(ModelContext(target=CPU, options={"outcomes": 6})) for _ in range(2))
    model.update(known)
    other.update([known[place] for place in sorted(fastest)] + known[-3:])
    batch = ToySpace(64).sample(30, np.random.default_rng(0))
    np.testing.assert_array_equal(model.predict(batch), other.predict(batch))


def test_a_slower_machine_changes_no_order() -> None:
    """Latencies count relative to each other."""
    known, batch = told(30, 1), ToySpace(64).sample(100, np.random.default_rng(0))
    slower = [
        (candidate, attrs.evolve(outcome, latency=7.0 * outcome.latency))
        for candidate, outcome in known
        if isinstance(outcome, Outcome) and outcome.latency
    ]
    model, other = FelixGp(ModelContext(target=CPU)), FelixGp(ModelContext(target=CPU))
    model.update(known)
    other.update(slower)
    difference = model.predict(batch) - other.predict(batch)
    np.testing.assert_allclose(difference, np.log(7.0), rtol=1e-9)


def test_it_names_what_it_reads() -> None:
    sketch, rows = ToySpace(64).sample(6, np.random.default_rng(0)).parts[0]
    model = FelixGp(ModelContext(target=CPU))
    few = model.feature_slopes(sketch, rows.astype(float))
    model.update(told(30, 1))
    names, values, slopes = model.feature_slopes(sketch, rows.astype(float))
    assert names[: len(few[0])] == few[0] and len(names) > len(few[0])
    assert values.shape == slopes.shape == (len(rows), len(names))
    np.testing.assert_array_equal(values[:, : len(few[0])], few[1])
    assert np.isfinite(slopes).all() and slopes.any()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="outcomes"):
        FelixGp(ModelContext(target=CPU, options={"outcomes": 1}))
    model = FelixGp(ModelContext(target=CPU))
    model.update(told(16, 1))
    with pytest.raises(InvalidValueError, match="features"):
        FelixGp(ModelContext(target=preset("a100"))).load_state(model.state())


@pytest.mark.parametrize(
    ("name", "module"), [("felix-mlp", "felix_mlp"), ("felix-mlp-published", "published_mlp")]
)
def test_the_networks_name_the_extra_that_they_need(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for each in (module, "learning"):
        monkeypatch.delitem(sys.modules, f"autotune_felix.{each}", raising=False)
    context = ModelContext(target=preset("sapphirerapids-4core"), seed=0)
    hint = re.escape(install_extra("felix-mlp", "autotune-felix"))
    wanted = rf"'{name}'.*: it learns in torch.*: run {hint}, or choose felix-gp"
    with pytest.raises(PluginError, match=wanted):
        create_part("cost_model", name, context)
    assert create_part("cost_model", "felix-gp", context)
