from __future__ import annotations

import numpy as np
import pytest

from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.sketches import CandidateBatch
from autotune.testing.cost_model_suite import CostModelFactory, CostModelSuite
from autotune.testing.toy_space import ToySpace

SPACE = ToySpace(extent=64)


class TestRandom(CostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: RandomCostModel(ModelContext(seed=3))


def test_scores_are_spread_evenly_and_distinct() -> None:
    batch = CandidateBatch.of(list(SPACE.enumerate()))
    scores = RandomCostModel(ModelContext(seed=1)).predict(batch)
    assert len(np.unique(scores)) == len(scores) == SPACE.count()
    assert scores.min() >= 0 and scores.max() < 1
    histogram, _ = np.histogram(scores, bins=10, range=(0, 1))
    assert histogram.min() > 0.85 * histogram.mean()


def test_seeds_rank_differently() -> None:
    batch = SPACE.sample(500, np.random.default_rng(0))
    one, other = (RandomCostModel(ModelContext(seed=seed)).predict(batch) for seed in (1, 2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.2


@pytest.mark.parametrize("seed", [0, -1, 2**64 + 5])
def test_any_seed_will_do(seed: int) -> None:
    scores = RandomCostModel(ModelContext(seed=seed)).predict(
        SPACE.sample(5, np.random.default_rng(0))
    )
    assert np.isfinite(scores).all()
