from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.models.pruning import PruningModel
from autotune.sketches import CandidateBatch
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite
from autotune.testing.toy_space import toy_latencies


class ToyModel(PruningModel):
    """The smallest pruning model."""

    name = "toy"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return -toy_latencies(batch)


class TestToyModel(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self) -> PruningModelFactory:
        return ToyModel
