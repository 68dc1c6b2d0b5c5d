from __future__ import annotations

import numpy as np
import pytest
from autotune_heron.idea import (
    HeronIdeaStrategy,
    crowding,
    fronts,
    idea_order,
    mutated,
    simulated_binary,
    snapped,
)
from autotune_heron.infeasible import is_computable, mean_ranks
from autotune_heron.rounds import RoundStrategy
from autotune_heron.stochastic_ranking import HeronStochasticRankingStrategy
from hypothesis import given
from hypothesis import strategies as st

from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.search.strategies import StrategyContext
from autotune.sketches import CandidateBatch
from autotune.testing.toy_space import ToySpace, toy_outcome

POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14)


def dominates(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


@given(POINTS)
def test_fronts_are_peeled_off_one_by_one(points: list[tuple[int, int]]) -> None:
    left = set(range(len(points)))
    for front in fronts(np.array(points, dtype=np.float64).reshape(-1, 2)):
        expected = {at for at in left if not any(dominates(points[it], points[at]) for it in left)}
        assert set(front.tolist()) == expected != set()
        left -= expected
    assert not left


def test_crowding_is_the_distance_between_neighbours() -> None:
    costs = np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0]])
    np.testing.assert_allclose(crowding(costs), [np.inf, 1.5, 1.5, np.inf])
    assert np.isinf(crowding(costs[:1])).all()


ROWS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=20)


@given(ROWS, st.floats(0, 1), st.integers(0, 24))
def test_a_share_of_infeasible_rows_survives(
    rows: list[tuple[int, int]], share: float, n: int
) -> None:
    scores, measures = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    order = idea_order(scores, measures, share, n).tolist()
    assert len(order) == len(set(order)) == min(n, len(rows))
    infeasible = [at for at in order if measures[at] > 0]
    total = int((measures > 0).sum())
    assert len(infeasible) >= min(total, int(np.floor(share * n)))
    assert len(infeasible) <= max(int(np.floor(share * n)), n - (len(rows) - total))
    # The infeasible ones come first, and the feasible ones are the best there are.
    assert order[: len(infeasible)] == infeasible
    kept = sorted((scores[at] for at in order[len(infeasible) :]), reverse=True)
    best = sorted(scores[measures == 0], reverse=True)
    assert kept == best[: len(kept)]


def test_less_violation_is_better() -> None:
    """The published dominance takes more violation for better."""
    order = idea_order(np.zeros(3), np.array([0.9, 0.1, 0.5]), 1.0, 3)
    assert order.tolist() == [1, 2, 0]


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), max_size=8))
def test_a_measure_is_zero_where_no_constraint_is_violated(rows: list[list[int]]) -> None:
    residuals = np.array(rows, dtype=np.int64).reshape(-1, 3)
    found = mean_ranks(residuals)
    assert ((found == 0) == ~residuals.any(axis=1)).all()
    assert ((found >= 0) & (found <= 1)).all()
    for one in range(len(rows)):
        for other in range(len(rows)):
            if (residuals[one] <= residuals[other]).all():
                assert found[one] <= found[other]


def test_the_unit_of_a_constraint_does_not_matter() -> None:
    residuals = np.array([[0, 5], [3, 0], [1, 1], [0, 0]])
    np.testing.assert_array_equal(mean_ranks(residuals), mean_ranks(residuals * [1, 1000]))


@pytest.mark.parametrize("index", [2.0, 15.0])
def test_crossover_spreads_children_as_far_as_parents(index: float) -> None:
    mothers, fathers = np.full((20_000, 1), 2.0), np.full((20_000, 1), 6.0)
    children = simulated_binary(mothers, fathers, index, np.random.default_rng(0))
    beta = np.abs(children - 4.0) / 2.0
    assert children.mean() == pytest.approx(4.0, abs=0.05)
    assert (beta <= 1).mean() == pytest.approx(0.5, abs=0.02)
    # The distribution function of beta below 1: beta ** (index + 1) / 2.
    assert (beta <= 0.9).mean() == pytest.approx(0.9 ** (index + 1) / 2, abs=0.02)


def test_equal_parents_have_equal_children() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    assert (simulated_binary(rows, rows, 15.0, np.random.default_rng(0)) == rows).all()


def test_mutation_moves_by_less_than_the_range() -> None:
    rows, ranges = np.full((20_000, 2), 5.0), np.array([10.0, 0.0])
    found = mutated(rows, ranges, 20.0, 0.1, np.random.default_rng(0))
    moves = (found - rows)[:, 0]
    assert (found[:, 1] == 5.0).all()
    assert (moves != 0).mean() == pytest.approx(0.1, abs=0.01)
    assert np.abs(moves).max() < 10 and moves.mean() == pytest.approx(0.0, abs=0.02)
    # Of |move| / range, the mean is 1 / (index + 2).
    assert np.abs(moves[moves != 0]).mean() / 10 == pytest.approx(1 / 22, abs=0.005)


@given(st.lists(st.floats(-5, 40), min_size=1, max_size=10))
def test_values_snap_to_the_nearest(values: list[float]) -> None:
    allowed = np.array([1, 2, 4, 8, 16])
    found = snapped(np.array(values)[:, None], [allowed])[:, 0]
    for value, chosen in zip(values, found.tolist(), strict=True):
        assert abs(chosen - value) == min(abs(int(it) - value) for it in allowed)


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
