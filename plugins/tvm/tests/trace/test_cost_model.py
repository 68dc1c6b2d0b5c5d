"""Trees over features of the lowered program."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_tvm.trace.cost_model import LoweredTrees
from autotune_tvm.trace.features import FEATURE_WIDTH, lowered_features
from autotune_tvm.trace.space import TraceSpace

from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm
from autotune.models import ModelContext
from autotune.models.cost import Observation
from autotune.sketches import CandidateBatch
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.cost_model_suite import CostModelFactory, CostModelSuite
from autotune.testing.toy_space import ToySpace

MACHINE = preset("skylake-avx512-4core")
SPACE = TraceSpace(gemm(m=16, n=16, k=8), None, MACHINE, 2)


def outcome_of(number: int) -> Outcome:
    latency = 1e-5 * (1 + number % 7)
    return (
        Outcome("crash", message="synthetic")
        if number == 3
        else Outcome("ok", latency, (latency,))
    )


class TestModel(CostModelSuite):
    @pytest.fixture
    def cost_model_factory(self) -> CostModelFactory:
        return lambda: LoweredTrees(ModelContext(target=MACHINE, seed=1, threads=1))

    @pytest.fixture
    def batch(self) -> CandidateBatch:
        return SPACE.sample(10, np.random.default_rng(1))

    @pytest.fixture
    def outcomes(self) -> list[Observation]:
        candidates = SPACE.sample(10, np.random.default_rng(2))
        return [(candidate, outcome_of(i)) for i, candidate in enumerate(candidates)]


def test_features_tell_schedules_apart() -> None:
    batch = SPACE.sample(12, np.random.default_rng(0))
    features = lowered_features(batch, MACHINE)
    assert features.shape == (12, FEATURE_WIDTH) and np.isfinite(features).all()
    distinct = {candidate.digest for candidate in batch}
    assert len(np.unique(features, axis=0)) >= len(distinct) - 2
    assert (features[:, -1] >= 1).all()


def test_what_tvm_refuses_has_no_features() -> None:
    sketch = SPACE.sketches()[0]
    refused = CandidateBatch(((sketch, np.zeros((1, len(sketch.params)), dtype=np.int64)),))
    assert not lowered_features(refused, MACHINE).any()


def test_other_spaces_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="'gbdt' knows the built-in space"):
        lowered_features(ToySpace().sample(2, np.random.default_rng(0)), MACHINE)
