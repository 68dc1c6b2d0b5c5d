"""Felix's own network: its size, its trainings, and the laws of a model with a gradient."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from autotune_felix.labelled import Labelled
from autotune_felix.plugin import autotune_parts
from autotune_felix.published_mlp import PublishedMlp
from autotune_felix.published_network import BATCH, PublishedNetwork, fine_tune, pretrain
from thinning import thinned
from toy_outcomes import group, rank_correlation, told

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import TrainingGroup
from autotune.models.features import RELAXED_COLUMNS, RELAXED_RAW_COLUMNS
from autotune.nest.relaxed import FELIX, RelaxedTape
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory, TrainableCostModelSuite
from autotune.testing.differentiable_suite import DifferentiableCostModelSuite
from autotune.testing.toy_space import ToySpace, toy_latencies

CPU = preset("sapphirerapids-4core")
SMALL = {"width": 16, "programs": 128, "fit_epochs": 2}


def made(**options: Any) -> PublishedMlp:
    return PublishedMlp(ModelContext(target=CPU, seed=3, options={**SMALL, **options}))


class TestInDouble(DifferentiableCostModelSuite):
    @pytest.fixture(params=thinned(["published", "narrow"], 2))
    def cost_model_factory(self, request: pytest.FixtureRequest) -> CostModelFactory:
        return lambda: made(precision="double", smoothing=request.param)


class TestInSingle(TrainableCostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return made


def test_the_plugin_names_it() -> None:
    specs = {spec.name: spec for spec in autotune_parts()}
    assert specs[PublishedMlp.name].resolve() is PublishedMlp


def test_the_network_has_the_published_size() -> None:
    assert len(RELAXED_COLUMNS) == 154
    options = PublishedMlp(ModelContext(target=CPU)).options
    network = PublishedNetwork(len(RELAXED_COLUMNS), options.width)
    assert sum(each.numel() for each in network.parameters()) == 237_313
    assert (options.least_outcomes, options.programs, options.fit_epochs) == (256, 30_000, 200)


def test_features_are_smoothed_as_published_unless_asked_for_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[object] = []
    make = RelaxedTape.__init__

    def noted(self: RelaxedTape, *arguments: Any, **more: Any) -> None:
        given.append(arguments[3])
        make(self, *arguments, **more)

    monkeypatch.setattr(RelaxedTape, "__init__", noted)
    batch = ToySpace().sample(4, np.random.default_rng(0))
    for options, smoothing in (({}, FELIX), ({"smoothing": "narrow"}, None)):
        given.clear()
        made(**options).predict(batch)
        assert given and all(each == smoothing for each in given)


def test_narrow_smoothing_is_another_model() -> None:
    with pytest.raises(InvalidValueError, match="felix"):
        made().load_state(made(smoothing="narrow").state())
    with pytest.raises(UnknownNameError, match="'wide'.*narrow, published"):
        made(smoothing="wide")


def data(n: int, columns: int = 3, seed: int = 0) -> Labelled:
    """Programs of one or two statements whose latency is the sum of their columns."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 3, size=n)
    statements = rng.random((counts.sum(), columns)).astype(np.float32)
    owners = np.repeat(np.arange(n), counts)
    labels = np.bincount(owners, statements.sum(axis=1), minlength=n).astype(np.float32)
    return Labelled(
        statements, counts, np.zeros((n, 0), np.float32), labels, np.zeros(n, np.int64)
    )


def test_a_program_is_the_set_of_its_statements() -> None:
    network = PublishedNetwork(5, 8)
    statements = torch.rand(6, 3, 5)
    there = torch.ones(6, 3, 1)
    found = network(statements, there)
    torch.testing.assert_close(network(statements.flip(1), there), found)
    padded = torch.cat([statements, torch.rand(6, 2, 5)], dim=1)
    present = torch.cat([there, torch.zeros(6, 2, 1)], dim=1)
    torch.testing.assert_close(network(padded, present), found)


@pytest.mark.parametrize(("n", "epochs"), [(40, 25), (100, 10), (1001, 0)])
def test_fine_tuning_goes_through_so_many_programs(n: int, epochs: int) -> None:
    network = PublishedNetwork(3, 8)
    losses = fine_tune(network, data(n), 1000, 1e-3, 0)
    assert len(losses) == epochs, "it got better up to the end"
    assert not losses or losses[-1] < losses[0]


def test_fine_tuning_ends_when_nothing_improves() -> None:
    """For a fifth of the epochs; at a rate of nothing, losses differ by rounding only."""
    torch.manual_seed(0)
    losses = fine_tune(PublishedNetwork(3, 8), data(BATCH), 100 * BATCH, 0.0, 0)
    assert len(losses) == losses.index(min(losses)) + 1 + 20 < 100


def test_a_training_beforehand_keeps_the_best_weights() -> None:
    network, programs = PublishedNetwork(3, 8), data(200)
    losses = pretrain(network, programs, 20, 0)
    assert len(losses) == 21 and min(losses) < 0.8 * losses[0]
    again = pretrain(network, programs, 0, 0)
    assert again == [pytest.approx(min(losses))]


def test_without_outcomes_everything_is_the_same() -> None:
    sketch, rows = ToySpace().sample(20, np.random.default_rng(0)).parts[0]
    values, gradient = made().relaxed(sketch, rows.astype(np.float64))
    assert not values.any() and not gradient.any()


def test_it_learns_latencies_from_the_outcomes_of_a_run() -> None:
    batch = ToySpace(64).sample(400, np.random.default_rng(9))
    truth = toy_latencies(batch)
    model = PublishedMlp(ModelContext(target=CPU, seed=1, options={"width": 64, "programs": 6000}))
    for seed in range(2):
        model.update(told(64, seed))
    assert rank_correlation(model.predict(batch), -truth) > 0.7
    assert np.median(np.abs(-model.predict(batch) - np.log(truth))) < 0.5, "in seconds"


def test_weights_of_a_file_are_fine_tuned_from_a_number_of_outcomes_on() -> None:
    trained = made()
    trained.fit([group(told(60, 5, 32))])
    stream = io.BytesIO()
    trained.save(stream)
    model = made(least_outcomes=40)
    model.load(io.BytesIO(stream.getvalue()))
    batch = ToySpace().sample(20, np.random.default_rng(0))
    before = model.predict(batch)
    model.update(told(30, 1))
    np.testing.assert_array_equal(model.predict(batch), before)
    model.update(told(30, 2))
    assert (model.predict(batch) != before).all()
    fresh = made(least_outcomes=40)
    fresh.update(told(5, 1))
    assert fresh.predict(batch).any(), "what has no weights does not wait for so many"


def test_weights_of_another_width_are_refused() -> None:
    model, stream = made(), io.BytesIO()
    model.update(told(8))
    model.save(stream)
    with pytest.raises(InvalidValueError, match="another width"):
        made(width=32).load(io.BytesIO(stream.getvalue()))


def test_raw_columns_are_not_scaled() -> None:
    """Felix has natural logarithms; what is no logarithm is as it is."""
    sketch, rows = ToySpace().sample(4, np.random.default_rng(0)).parts[0]
    model, seen = made(), []
    model.update(told(8))
    network = model._network(model._weights)
    network.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].detach().numpy()))
    model._predictor = network.requires_grad_(False)
    model.relaxed(sketch, rows.astype(np.float64))
    expected = model._features.at(sketch, rows.astype(np.float64)).values
    for place, name in enumerate(RELAXED_COLUMNS):
        scale = 1.0 if name in RELAXED_RAW_COLUMNS else np.log(2.0)
        np.testing.assert_allclose(
            seen[0][: len(rows), :, place], expected[:, :, place] * scale, rtol=1e-6
        )


def test_explanations_name_the_columns_of_each_statement() -> None:
    sketch, rows = ToySpace().sample(4, np.random.default_rng(0)).parts[0]
    model = made()
    model.update(told(30))
    names, values, slopes = model.feature_slopes(sketch, rows.astype(np.float64))
    assert values.shape == slopes.shape == (len(rows), len(names))
    assert len(names) % 154 == 0 and names[0] == f"statement 0: {RELAXED_COLUMNS[0]}"
    assert slopes.any()


def test_tasks_are_pooled() -> None:
    model = made()
    groups = [
        TrainingGroup(str(extent), f"task {extent}", tuple(told(40, extent, extent)))
        for extent in (16, 32)
    ]
    valid = sum(outcome.ok for group in groups for _, outcome in group.outcomes)
    figures = model.fit(groups)
    assert figures["tasks"] == 2 and figures["programs"] == valid > 60
    assert figures["loss"] <= figures["loss before"]
