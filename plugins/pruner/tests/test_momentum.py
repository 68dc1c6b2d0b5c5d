from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from autotune_pruner.momentum import MomentumPaCM
from autotune_pruner.programs import feature_version
from autotune_pruner.weights import Weights
from toy_outcomes import TARGET, group, saved, told

from autotune.models import ModelContext
from autotune.models.cost import read_model
from autotune.sketches import CandidateBatch
from autotune.testing.toy_space import ToySpace

BATCH: CandidateBatch = ToySpace(64).sample(60, np.random.default_rng(9))


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
    return Weights.from_arrays(read_model(io.BytesIO(content), "pacm", version).arrays)


def _state(model: MomentumPaCM, initial: bytes, fidelity: str = "ours") -> tuple[Weights, Weights]:
    """Slow weights, and those that predict."""
    state = model.state()
    slow = Weights.from_json(state["base"]) if state["base"] else _read(initial, fidelity)
    return slow, Weights.from_json(state["current"]) if state["current"] else slow


def _same(one: Weights, other: Weights) -> bool:
    return all((array == other.arrays[name]).all() for name, array in one.arrays.items())


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
        for name, array in found.arrays.items():
            wanted = 0.99 * slow.arrays[name] + 0.01 * fast.arrays[name]
            if name.endswith("num_batches_tracked"):
                wanted = slow.arrays[name]
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-7)
        slow = found


def test_the_fine_tuned_network_predicts(trained: bytes) -> None:
    model = _model(trained)
    for update in range(4):
        model.update(told(6, update))
    _, fast = _state(model, trained)
    assert _same(_read(saved(model).getvalue()), fast)


def test_fine_tuning_starts_from_the_slow_weights(trained: bytes) -> None:
    """What was learned at the fourth update reaches the eighth by the blend alone."""
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
        moved = (slow.arrays[name] != original.arrays[name]).any()
        assert moved == (fidelity == "ours")
    kept = fast.normaliser.statements.width == original.normaliser.statements.width
    assert kept.all() == (fidelity == "ours")


def test_without_weights_it_begins_with_random_ones() -> None:
    model = MomentumPaCM(ModelContext(target=TARGET, options={"epochs": 2}))
    for update in range(3):
        model.update(told(6, update))
        assert not model.predict(BATCH).any()
    model.update(told(6, 3))
    assert model.predict(BATCH).std() > 0
