from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from autotune_heron.annealing import HeronAnnealingStrategy
from autotune_heron.idea import HeronIdeaStrategy
from autotune_heron.selection import mates, roulette
from autotune_heron.stochastic_ranking import HeronStochasticRankingStrategy
from autotune_heron.strategies import (
    HeronDecodingStrategy,
    HeronGeneticStrategy,
    HeronRandomStrategy,
    HeronStrategy,
    importances,
)
from numpy.typing import NDArray
from thinning import thinned
from toy_parts import KnowingDraft

from autotune.errors import InvalidValueError
from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.search.strategies import Strategy, StrategyContext
from autotune.sketches import Candidate, CandidateBatch, Sketch
from autotune.spaces import FeasibleSet
from autotune.testing.strategy_suite import StrategySuite, made
from autotune.testing.toy_space import ToySpace, toy_latencies, toy_outcome

SMALL = {"population": 30, "children": 40, "elite": 5}
ABLATIONS = (
    HeronAnnealingStrategy,
    HeronStochasticRankingStrategy,
    HeronDecodingStrategy,
    HeronIdeaStrategy,
)
EVERY = (HeronStrategy, HeronRandomStrategy, HeronGeneticStrategy, *ABLATIONS)


class Oracle(RandomCostModel):
    """A cost model that knows the answer."""

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return 1.0 / toy_latencies(batch)


class OpaqueSpace(ToySpace):
    """A space that does not say what is feasible."""

    name = "opaque"

    def feasible_set(self, sketch: Sketch) -> FeasibleSet:
        return super(ToySpace, self).feasible_set(sketch)


def context(extent: int = 64, seed: int = 0, **given: Any) -> StrategyContext:
    options = given.pop("options", {})
    space = given.pop("space", None) or ToySpace(extent)
    return StrategyContext(
        space, np.random.default_rng(seed), Oracle(ModelContext()), options=options, **given
    )


def play(strategy: Strategy, rounds: int, n: int = 10) -> list[Candidate]:
    asked: list[Candidate] = []
    for _ in range(rounds):
        batch = strategy.ask(n)
        asked += batch
        strategy.tell([(candidate, toy_outcome(candidate)) for candidate in batch])
    return asked


@pytest.mark.parametrize("cls", EVERY)
@pytest.mark.parametrize("options", [{}, {"variant": "paper"}, {"variant": "head"}], ids=str)
def test_a_model_that_knows_leads_to_the_best(cls: Any, options: Mapping[str, Any]) -> None:
    asked = play(cls(context(options=options)), 3)
    latencies = toy_latencies(CandidateBatch.of(asked))
    everything = toy_latencies(CandidateBatch.of(list(ToySpace(64).enumerate())))
    assert latencies.min() <= np.quantile(everything, 0.002)


@pytest.mark.parametrize("cls", EVERY)
def test_a_space_that_does_not_say_what_is_feasible_is_refused(cls: Any) -> None:
    with pytest.raises(InvalidValueError, match="'opaque' cannot say exactly.*'sketch'"):
        cls(context(space=OpaqueSpace()))


def test_the_pruning_model_chooses_the_first_round_of_ours_only() -> None:
    def first(variant: str) -> float:
        options = {"variant": variant}
        strategy = HeronStrategy(context(pruning_model=KnowingDraft(), options=options))
        return float(np.median(toy_latencies(CandidateBatch.of(strategy.ask(10)))))

    assert first("ours") < 0.8 * first("paper")


def test_reports_count_children_of_each_generation() -> None:
    options = {**SMALL, "generations": 3}
    ticks = iter(range(1000))
    strategy = HeronStrategy(context(options=options), clock=lambda: float(next(ticks)))
    strategy.ask(10)
    assert strategy.reports == [], "nothing is known of the first candidates yet"
    play(strategy, 2)
    assert len(strategy.reports) == 3
    for report in strategy.reports:
        assert report.children == 40
        assert 0 < report.distinct <= 40
        assert report.infeasible == 0
        assert 0 <= report.keys <= 2
        assert report.sampler_seconds == 1.0


@pytest.mark.parametrize("infeasible", ["reject", "repair"])
def test_infeasible_children_of_the_genetic_algorithm_are_counted(infeasible: str) -> None:
    options = {"infeasible": infeasible, "generations": 1, "parents": 200}
    strategy = HeronGeneticStrategy(context(256, options=options))
    play(strategy, 2)
    (report,) = strategy.reports
    assert 0 < report.infeasible < report.children
    feasible = report.children - report.infeasible
    assert report.distinct > feasible if infeasible == "repair" else report.distinct <= feasible


def test_every_sketch_has_its_trials_in_ours() -> None:
    for trials in (3, 6):
        options = {**SMALL, "sketch_trials": trials}
        asked = play(HeronStrategy(context(options=options)), 4)
        names = [candidate.sketch.name for candidate in asked]
        assert min(names.count(sketch.name) for sketch in ToySpace().sketches()) >= trials


def test_roulette_prefers_what_scores_more() -> None:
    rng = np.random.default_rng(0)
    scores = np.array([0.0, 1.0, 3.0, -np.inf])
    drawn = roulette(scores, 4000, True, rng)
    assert np.bincount(drawn, minlength=4) / 4000 == pytest.approx([0, 0.25, 0.75, 0], abs=0.03)
    assert sorted(roulette(scores, 9, False, rng).tolist()) == [0, 1, 2, 3]
    assert set(roulette(np.full(3, 5.0), 200, True, rng).tolist()) == {0, 1, 2}
    assert len(roulette(np.zeros(0), 3, True, rng)) == 0


def test_parents_of_a_child_have_one_sketch() -> None:
    owners = np.array([0, 0, 2, 2, 2, 1])
    mothers, fathers = mates(owners, 200, np.random.default_rng(0))
    assert (owners[mothers] == owners[fathers]).all()
    assert (np.diff(owners[mothers]) >= 0).all()
    assert set(mothers.tolist()) == set(fathers.tolist()) == set(range(6))


@pytest.mark.parametrize("cls", ABLATIONS)
def test_ablations_look_at_infeasible_rows_and_ask_for_none(cls: Any) -> None:
    space = ToySpace(256)
    strategy = cls(context(space=space, options={**SMALL, "generations": 3}))
    asked = play(strategy, 3)
    assert space.contains(CandidateBatch.of(asked)).all()
    assert len(strategy.reports) == 3
    assert sum(report.infeasible for report in strategy.reports) > 0
    survivors = CandidateBatch.of_rows(space.sketches(), strategy.state()["survivors"])
    assert space.contains(survivors).all(), "no infeasible row outlives a round"


class BlindOracle(Oracle):
    """An oracle by which what is infeasible would be the best by far."""

    def __init__(self, space: ToySpace) -> None:
        super().__init__(ModelContext())
        self._space = space
        self.infeasible = 0

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        inside = self._space.contains(batch)
        self.infeasible += int((~inside).sum())
        return np.where(inside, super().predict(batch), 1e12)


@pytest.mark.parametrize("cls", ABLATIONS)
def test_the_best_score_is_of_no_use_to_an_infeasible_row(cls: Any) -> None:
    space = ToySpace(64)
    model = BlindOracle(space)
    given = StrategyContext(space, np.random.default_rng(0), model, options={"variant": "paper"})
    asked = play(cls(given), 3)
    assert space.contains(CandidateBatch.of(asked)).all()
    # Decoding scores what rows stand for, the others the rows themselves.
    assert (model.infeasible == 0) == (cls is HeronDecodingStrategy)


def test_steps_of_annealing_are_counted_over_rounds() -> None:
    strategy = HeronAnnealingStrategy(context(options={**SMALL, "generations": 3}))
    play(strategy, 3)
    assert strategy.state()["steps"] == 6, "there is none before the first outcomes"


def test_a_parameter_that_decides_alone_has_all_of_the_variance() -> None:
    matrix = np.array([[a, b] for a in (1, 2, 4) for b in (1, 2, 4)])
    assert importances(matrix, np.log2(matrix[:, 0])) == pytest.approx([1.0, 0.0])


def test_the_stronger_of_two_parameters_is_more_important() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.integers(1, 5, size=(400, 3))
    weak, strong, none = importances(matrix, matrix[:, 0] + 3.0 * matrix[:, 1])
    assert none < 0.05 < weak < strong
    assert (weak, strong) == pytest.approx((0.1, 0.9), abs=0.05)


def test_many_values_do_not_make_a_parameter_important() -> None:
    """Without the adjustment the mean of the first would be 99 / 299."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        matrix = np.column_stack([rng.integers(100, size=300), rng.integers(2, size=300)])
        found.append(importances(matrix, rng.normal(size=300)))
    assert np.mean(found, axis=0) == pytest.approx([0.0, 0.0], abs=0.05)


def test_what_says_nothing_is_not_important() -> None:
    rows = np.array([[1, 5, 7], [2, 5, 7], [3, 5, 8], [4, 5, 8]])
    scores = np.array([1.0, 2.0, 5.0, 6.0])
    distinct, constant, useful = importances(rows, scores)
    assert (distinct, constant) == (0.0, 0.0) and useful > 0.8
    assert not importances(rows, np.zeros(4)).any()
    assert not importances(rows[:2], scores[:2]).any()
    assert not importances(rows, np.full(4, -np.inf)).any()


def test_scores_that_are_not_finite_are_left_out() -> None:
    rows = np.array([[1], [1], [2], [2], [2]])
    scores = np.array([1.0, 1.0, 3.0, 3.0, -np.inf])
    assert importances(rows, scores) == pytest.approx([1.0])


TINY = {"population": 24, "children": 16, "generations": 2, "elite": 4}
PAPER = {**TINY, "variant": "paper"}
HEAD = {**TINY, "variant": "head", "history": 0, "key_share": 1.0, "parents": 1}


@pytest.mark.parametrize(
    "strategy_factory",
    [
        *thinned([made(HeronStrategy, **it) for it in (TINY, PAPER, HEAD)], 3),
        made(HeronRandomStrategy, **TINY),
        made(HeronGeneticStrategy, **TINY, infeasible="repair"),
        made(HeronAnnealingStrategy, **PAPER),
        made(HeronStochasticRankingStrategy, **PAPER),
        made(HeronDecodingStrategy, **PAPER),
        made(HeronIdeaStrategy, **PAPER),
    ],
)
class TestHeron(StrategySuite):
    """Every strategy of this plugin."""
