from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import CostModel, GradientBoostedTrees, RandomCostModel
from autotune.models.pruning import PruningModel
from autotune.search.strategies import (
    EvolutionaryStrategy,
    RandomStrategy,
    RecordedStrategy,
    StrategyContext,
)
from autotune.sketches import Candidate, CandidateBatch
from autotune.store.records import Outcome
from autotune.testing.toy_space import ToySpace, toy_features, toy_latencies, toy_outcome

SPACE = ToySpace(extent=64)


class Oracle(RandomCostModel, PruningModel):
    """Knows the latencies."""

    name = "oracle"

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return -toy_latencies(batch)

    score = predict


class Constant(RandomCostModel):
    """Knows nothing."""

    def __init__(self, value: float = 0.0) -> None:
        self._value = value

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return np.full(len(batch), self._value)


def _strategy(
    seed: int = 0,
    *,
    cost_model: CostModel | None = None,
    pruning_model: PruningModel | None = None,
    options: Mapping[str, Any] | None = None,
) -> EvolutionaryStrategy:
    model = Oracle(ModelContext()) if cost_model is None else cost_model
    rng = np.random.default_rng(seed)
    return EvolutionaryStrategy(
        StrategyContext(SPACE, rng, model, pruning_model, options=options or {})
    )


def _measured(candidates: list[Candidate]) -> list[tuple[Candidate, Outcome]]:
    return [(candidate, toy_outcome(candidate)) for candidate in candidates]


def _shares(candidates: list[Candidate]) -> list[int]:
    counted = Counter(candidate.sketch.name for candidate in candidates)
    return [counted[sketch.name] for sketch in SPACE.sketches()]


def test_the_first_round_is_a_sample_in_equal_shares() -> None:
    assert _shares(_strategy().ask(16)) == [8, 8]


def test_the_first_round_is_drafted_by_the_pruning_model() -> None:
    drafted = _strategy(pruning_model=Oracle(ModelContext()), options={"epsilon": 0.0}).ask(16)
    sampled = _strategy().ask(16)
    assert _shares(drafted) == [8, 8]
    drafted_latencies, sampled_latencies = (
        toy_latencies(CandidateBatch.of(group)) for group in (drafted, sampled)
    )
    assert np.median(drafted_latencies) < 0.7 * np.median(sampled_latencies)


def test_drafts_go_on_until_something_is_valid() -> None:
    strategy = _strategy(pruning_model=Oracle(ModelContext()), options={"epsilon": 0.0})
    asked = []
    for _ in range(3):
        batch = strategy.ask(8)
        strategy.tell([(candidate, Outcome("timeout")) for candidate in batch])
        asked += batch
    assert len(set(asked)) == 24 and _shares(asked) == [12, 12]


def test_later_rounds_follow_the_cost_model_best_first() -> None:
    strategy = _strategy(options={"epsilon": 0.0, "sketch_trials": 0})
    strategy.tell(_measured(strategy.ask(16)))
    latencies = [toy_latencies(CandidateBatch.of([item]))[0] for item in strategy.ask(16)]
    assert latencies == sorted(latencies)
    assert latencies[0] == pytest.approx(1e-3)


def test_every_sketch_gets_its_trials_although_it_looks_bad() -> None:
    strategy = _strategy(options={"epsilon": 0.0, "sketch_trials": 5})
    known = [item for item in SPACE.enumerate() if item.sketch.name == "toy parallel"][:40]
    strategy.tell(_measured(known))
    first = strategy.ask(8)
    assert _shares(first) == [4, 4], "half of a round at most goes to what a sketch is owed"
    strategy.tell(_measured(first))
    assert _shares(strategy.ask(8)) == [1, 7]


@pytest.mark.parametrize(("epsilon", "low", "high"), [(0.0, 0, 0), (0.25, 14, 26), (1.0, 70, 80)])
def test_epsilon_is_the_share_of_random_picks(epsilon: float, low: int, high: int) -> None:
    strategy = _strategy(options={"epsilon": epsilon, "sketch_trials": 0})
    strategy.tell(_measured(strategy.ask(16)))
    asked = [candidate for _ in range(8) for candidate in strategy.ask(10)]
    # More than nine in ten of a sample are slower than this; the search proposes none of them.
    slow = toy_latencies(CandidateBatch.of(asked)) > 2e-3
    assert low <= slow.sum() <= high


@pytest.mark.parametrize("value", [0.0, float("nan"), -float("inf")])
def test_a_model_that_knows_nothing_does_not_favour_a_sketch(value: float) -> None:
    strategy = _strategy(cost_model=Constant(value))
    strategy.tell(_measured(strategy.ask(16)))
    shares = np.sum([_shares(strategy.ask(16)) for _ in range(8)], axis=0)
    assert min(shares) > 30


def test_options_are_checked() -> None:
    with pytest.raises(InvalidValueError, match="Did you mean 'population'"):
        _strategy(options={"populaton": 64})
    with pytest.raises(InvalidValueError, match="'epsilon' of strategy 'evolutionary' must be"):
        _strategy(options={"epsilon": 2})
    with pytest.raises(UnknownNameError, match="'parents'.*'scores'.*Did you mean 'score'"):
        _strategy(options={"parents": "scores"})


def test_a_round_asks_the_model_once_a_generation_and_of_no_row_twice() -> None:
    asked_of: list[CandidateBatch] = []

    class Counting(Oracle):
        def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
            asked_of.append(batch)
            return super().predict(batch)

    options = {"population": 1024, "generations": 3}
    strategy = _strategy(cost_model=Counting(ModelContext()), options=options)
    strategy.tell(_measured(strategy.ask(16)))
    for _ in range(3):
        asked_of.clear()
        strategy.tell(_measured(strategy.ask(16)))
        assert len(asked_of) <= 1 + 3
        keys = [key for batch in asked_of for key in batch.keys]
        assert len(set(keys)) == len(keys) <= 1024 * (1 + 3)


class _Noting(Oracle):
    """Notes what it is asked about, and favours some rows."""

    def __init__(self) -> None:
        self.asked: list[CandidateBatch] = []
        self.favoured: set[bytes] = set()

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        batch = batch.over(SPACE.sketches())
        self.asked.append(batch)
        return np.array([1.0 if key in self.favoured else -1.0 for key in batch.keys])


def _by_score(model: CostModel, **options: Any) -> EvolutionaryStrategy:
    given = {"parents": "score", "crossover_probability": 0.0, "epsilon": 0.0, **options}
    strategy = _strategy(cost_model=model, options=given)
    strategy.tell(_measured(strategy.ask(16)))
    return strategy


def _near(rows: CandidateBatch) -> CandidateBatch:
    """Rows and what is one move away, as far as 300 draws for each find it."""
    many = rows.select(np.repeat(np.arange(len(rows)), 300)).without_empty()
    near = SPACE.neighbours(many, np.random.default_rng(0)).over(SPACE.sketches()) + rows
    firsts = {key: place for place, key in enumerate(near.keys)}
    return near.select(np.array(sorted(firsts.values())))


def test_by_score_parents_are_of_the_last_generation_with_a_positive_score() -> None:
    strategy = _by_score(model := _Noting(), generations=2, mutation_probability=1.0)
    best = strategy._history.best(1)
    model.favoured = set(best.keys)
    strategy.ask(16)
    first, second, third = model.asked
    near = _near(best)
    assert len(first) > 300 and set(second.keys) <= set(near.keys)
    # None of these has a positive score, and nothing else is a parent.
    assert len(third) > 10 and set(third.keys) <= set(_near(near).keys)


@pytest.mark.parametrize("mutation", [0.0, 0.5, 1.0])
def test_by_score_children_are_mutated_by_chance(mutation: float) -> None:
    strategy = _by_score(model := _Noting(), generations=1, mutation_probability=mutation)
    strategy.ask(16)
    first, *generations = model.asked
    fresh = sum(map(len, generations))
    # Some mutants are known already, or alike; no clone is new.
    assert 0.7 * mutation * 512 <= fresh <= mutation * 512 + 40
    assert (fresh == 0) == (mutation == 0.0)


def _best(strategy: RecordedStrategy, model: CostModel) -> float:
    """The least latency of four rounds."""
    found: list[float] = []
    for _ in range(4):
        outcomes = _measured(strategy.ask(16))
        strategy.tell(outcomes)
        model.update(outcomes)
        found += [it.latency for _, it in outcomes if it.latency is not None]
    return min(found)


def test_it_beats_random_search_at_equal_budget() -> None:
    evolved, sampled = [], []
    for seed in range(7):
        model: CostModel = GradientBoostedTrees(ModelContext(seed=seed), features=toy_features)  # type: ignore[arg-type]
        contexts = [StrategyContext(SPACE, np.random.default_rng(seed), model) for _ in range(2)]
        evolved.append(_best(EvolutionaryStrategy(contexts[0]), model))
        # Sampling asks no model.
        sampled.append(_best(RandomStrategy(contexts[1]), Oracle(ModelContext())))
    assert median(evolved) < 0.9 * median(sampled)
    assert sum(one < other for one, other in zip(evolved, sampled, strict=True)) >= 5


def test_no_more_is_scored_than_the_space_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToySpace, "score_limit", 60)
    scored: list[int] = []

    class Counting(Oracle):
        def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
            scored.append(len(batch))
            return super().predict(batch)

    strategy = _strategy(cost_model=Counting(ModelContext()))
    strategy.tell(_measured(strategy.ask(8)))
    assert len(strategy.ask(8)) == 8 and 0 < sum(scored) <= 60
