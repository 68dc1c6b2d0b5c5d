from __future__ import annotations

import numpy as np
import pytest
from autotune_heron.idea import HeronIdeaStrategy
from autotune_heron.infeasible import is_computable
from autotune_heron.rounds import RoundStrategy
from autotune_heron.stochastic_ranking import HeronStochasticRankingStrategy

from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.search.strategies import StrategyContext
from autotune.sketches import CandidateBatch
from autotune.testing.toy_space import ToySpace, toy_outcome


def test_what_cannot_be_counted_in_64_bits_is_not_computable() -> None:
    rows = np.array([[1, 0, 2**24], [2**24, 2**24, 1], [2**24, 2**24, 2], [2**62, 2**62, 2**62]])
    assert is_computable(rows).tolist() == [True, True, False, False]


@pytest.mark.parametrize("cls", [HeronIdeaStrategy, HeronStochasticRankingStrategy])
def test_rows_that_are_far_off_are_lost(cls: type[RoundStrategy]) -> None:
    """Five factors of so large extents would pass 64 bits together."""
    space = ToySpace(2**16)
    seen: list[CandidateBatch] = []

    class Noting(RandomCostModel):
        def predict(self, batch: CandidateBatch) -> np.ndarray:
            seen.append(batch)
            # The farther off, the better: only constraints hold rows back.
            rows = [np.log2(matrix).sum(axis=1) for matrix in batch.matrices]
            return np.concatenate(rows)

    options = {"population": 60, "children": 60, "elite": 5, "variant": "paper"}
    strategy = cls(
        StrategyContext(space, np.random.default_rng(0), Noting(ModelContext()), options=options)
    )
    for _ in range(4):
        asked = strategy.ask(8)
        assert space.contains(CandidateBatch.of(asked)).all()
        strategy.tell([(candidate, toy_outcome(candidate)) for candidate in asked])
    bits = np.concatenate(
        [np.log2(matrix).sum(axis=1) for batch in seen for matrix in batch.matrices]
    )
    assert 32 < bits.max() <= 48
