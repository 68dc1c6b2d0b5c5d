from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import Any

import attrs
import numpy as np
import pytest
from autotune_pruner import plugin
from autotune_pruner.psa_options import PSAOptions
from autotune_pruner.strategy import (
    MoAPrunerStrategy,
    PrunerStrategy,
)
from numpy.typing import NDArray
from thinning import thinned
from toy_parts import KnowingDraft

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.models import ModelContext
from autotune.models.cost import CostModel, GradientBoostedTrees, RandomCostModel
from autotune.models.pruning import PruningModel
from autotune.search.strategies import EvolutionaryStrategy, RecordedStrategy, StrategyContext
from autotune.sketches import Candidate, CandidateBatch
from autotune.store.records import Outcome
from autotune.testing.strategy_suite import StrategyFactory, StrategySuite, made
from autotune.testing.toy_space import ToySpace, toy_features, toy_latencies, toy_outcome

SPACE = ToySpace(extent=64)
TRIALS = 10


class Draft(PruningModel):
    """Knows half of the answer, and what it was asked about."""

    name = "half"

    def __init__(self) -> None:
        self.looked_at: list[int] = []

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        self.looked_at.append(len(batch))
        i1, i2, *_ = toy_features(batch).T
        return np.asarray(1.0 / (1.0 + (i2 - 2) ** 2 + 0.5 * (i1 - 1) ** 2))


class Oracle(RandomCostModel):
    """Knows the latencies, and what it was asked about."""

    name = "oracle"

    def __init__(self, context: ModelContext) -> None:
        super().__init__(context)
        self.looked_at: list[Candidate] = []

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        self.looked_at += list(batch)
        return np.asarray(1e-3 / toy_latencies(batch))


class Ignorant(RandomCostModel):
    """Has learned nothing."""

    def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return np.zeros(len(batch))


def strategy(
    options: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    cost_model: CostModel | None = None,
    pruning_model: PruningModel | None = None,
    cls: type[PrunerStrategy] = PrunerStrategy,
) -> PrunerStrategy:
    model = Oracle(ModelContext()) if cost_model is None else cost_model
    rng = np.random.default_rng(seed)
    draft = Draft() if pruning_model is None else pruning_model
    return cls(StrategyContext(SPACE, rng, model, draft, options=options or {}))


def measured(candidates: list[Candidate]) -> list[tuple[Candidate, Outcome]]:
    return [(candidate, toy_outcome(candidate)) for candidate in candidates]


def drafted(searching: PrunerStrategy) -> set[tuple[int, ...]]:
    return {
        (index, *row) for index, rows in enumerate(searching.state()["drafts"]) for row in rows
    }


def latencies(candidates: list[Candidate]) -> list[float]:
    return [float(toy_latencies(CandidateBatch.of([item]))[0]) for item in candidates]


@pytest.mark.parametrize("fidelity", ["ours", "published"])
def test_of_ten_picks_nine_are_the_models_best_and_one_is_random(fidelity: str) -> None:
    model, known = Oracle(ModelContext()), set[Candidate]()
    options = {"fidelity": fidelity, "prior": 0, "sketch_trials": 0}
    searching = strategy(options, cost_model=model)
    assert SPACE.count() > 100 * TRIALS
    random_ones = []
    for _ in range(6):
        model.looked_at.clear()
        asked = searching.ask(TRIALS)
        best = sorted(latencies([item for item in set(model.looked_at) if item not in known]))
        assert latencies(asked[:9]) == pytest.approx(best[:9])
        random_ones.append(latencies(asked)[9] / best[9])
        known.update(asked)
        searching.tell(measured(asked))
    assert median(random_ones) > 1.2


@pytest.mark.parametrize("fidelity", ["ours", "published"])
def test_512_are_drafted_in_rounds_0_2_and_4(fidelity: str) -> None:
    searching = strategy({"fidelity": fidelity, "configurations": 4608})
    drafts = []
    for _ in range(6):
        searching.tell(measured(searching.ask(TRIALS)))
        drafts.append(drafted(searching))
    assert [len(draft) for draft in drafts] == [512] * 6
    changed = [one != other for one, other in zip(drafts[1:], drafts, strict=False)]
    assert changed == [False, True, False, True, False]


@pytest.mark.parametrize(("heap", "renewed"), [(1, False), (2, True)])
def test_a_draft_with_less_left_than_the_heap_holds_is_renewed(heap: int, renewed: bool) -> None:
    options = {"drafts": 25, "refresh": 4, "heap": heap, "generations": 0, "population": 2}
    searching = strategy(options)
    searching.ask(TRIALS)
    before = drafted(searching)
    searching.ask(TRIALS)
    assert (drafted(searching) != before) == renewed


def test_a_published_draft_looks_at_three_populations() -> None:
    draft = Draft()
    searching = strategy({"fidelity": "published"}, pruning_model=draft)
    for round_number in range(5):
        draft.looked_at.clear()
        searching.tell(measured(searching.ask(TRIALS)))
        assert draft.looked_at == ([] if round_number % 2 else [1536, 1536, 1536])


def test_a_published_round_verifies_draft_sample_measured_and_one_generation() -> None:
    model = Oracle(ModelContext())
    searching = strategy({"fidelity": "published"}, cost_model=model)
    counts = []
    for _ in range(3):
        model.looked_at.clear()
        searching.tell(measured(searching.ask(TRIALS)))
        counts.append(len(model.looked_at))
    valid = sum(latency is not None for *_, latency in searching.state()["told"][:10])
    assert counts[0] == 512 + 1536 + 1536
    assert counts[1] == 512 + 1536 + valid + 1536


def test_the_first_published_round_measures_what_the_draft_likes_best() -> None:
    searching = strategy(
        {"fidelity": "published", "generations": 0}, cost_model=Ignorant(ModelContext())
    )
    asked = searching.ask(TRIALS)
    state = searching.state()
    order = sorted(state["draft_scores"], reverse=True)
    scores = Draft().score(CandidateBatch.of(asked[:9])).tolist()
    assert sorted(scores, reverse=True) == order[:9]


def test_a_small_space_is_drafted_from_as_a_whole_and_once() -> None:
    draft = Draft()
    searching = strategy({"prior": 0}, pruning_model=draft)
    for _ in range(4):
        searching.tell(measured(searching.ask(TRIALS)))
    assert draft.looked_at[0] == SPACE.count()
    assert SPACE.count() not in draft.looked_at[1:]


def test_a_large_space_is_searched_for_so_many_configurations() -> None:
    draft = Draft()
    options = {"configurations": 2000, "population": 300, "draft_generations": 3, "prior": 0}
    searching = strategy(options, pruning_model=draft)
    searching.ask(1)
    assert draft.looked_at[:4] == [1100, 300, 300, 300]


def test_half_of_a_draft_belongs_to_the_sketches_in_equal_shares() -> None:
    class Biased(Draft):
        def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
            parallel = toy_features(batch)[:, 5]
            return np.asarray(super().score(batch) + 10 * parallel)

    searching = strategy({"drafts": 100}, pruning_model=Biased())
    searching.ask(TRIALS)
    assert [len(rows) for rows in searching.state()["drafts"]] == [25, 75]


def test_verified_are_the_draft_the_best_measured_and_what_comes_of_them() -> None:
    model = Oracle(ModelContext())
    options = {"generations": 0, "population": 600, "prior": 0, "verified": 1.0}
    searching = strategy(options, cost_model=model)
    outcomes = measured(searching.ask(TRIALS))
    looked_at = set(model.looked_at)
    assert {
        (0, *c.values) if c.sketch == SPACE.sketches()[0] else (1, *c.values) for c in looked_at
    } == drafted(searching)
    searching.tell(outcomes)
    model.looked_at.clear()
    searching.ask(TRIALS)
    fast = {candidate for candidate, outcome in outcomes if outcome.latency is not None}
    others = set(model.looked_at) - looked_at - fast
    assert fast < set(model.looked_at) and 0 < len(others) <= 600 - 512 - len(fast)


def test_a_round_verifies_another_half_of_the_draft() -> None:
    model = Oracle(ModelContext())
    searching = strategy({"generations": 0, "prior": 0, "refresh": 9}, cost_model=model)
    looked_at = []
    for _ in range(2):
        model.looked_at.clear()
        searching.ask(TRIALS)
        looked_at.append(set(model.looked_at))
    assert [len(found) for found in looked_at] == [256, 256]
    assert looked_at[0] != looked_at[1]


@pytest.mark.parametrize("generations", [1, 3])
def test_a_round_verifies_no_more_than_the_population(generations: int) -> None:
    model = Oracle(ModelContext())
    options = {"population": 900, "generations": generations, "verified": 1.0}
    searching = strategy(options, cost_model=model)
    for _ in range(3):
        model.looked_at.clear()
        searching.tell(measured(searching.ask(TRIALS)))
        assert 512 < len(model.looked_at) <= 900


def test_the_draft_decides_while_the_cost_model_knows_nothing() -> None:
    searching = strategy({"epsilon": 0.0, "sketch_trials": 0}, cost_model=Ignorant(ModelContext()))
    for _ in range(3):
        scores = Draft().score(CandidateBatch.of(searching.ask(TRIALS)))
        assert scores.min() > 0.6


@pytest.mark.parametrize(("told", "share"), [(0, 1.0), (20, 0.5), (40, 0.0)])
def test_the_say_of_the_draft_shrinks_with_what_was_measured(told: int, share: float) -> None:
    valid = [item for item in SPACE.enumerate() if toy_outcome(item).status == "ok"]
    for at_first in (1.0, 0.5):
        searching = strategy({"prior": 40, "prior_share": at_first})
        searching.tell(measured(valid[:told]))
        assert searching.prior_weight() == pytest.approx(share * at_first)


def test_a_model_that_knows_other_tasks_ranks_from_the_start() -> None:
    ours, adapted = (strategy(cls=cls) for cls in (PrunerStrategy, MoAPrunerStrategy))
    assert min(latencies(adapted.ask(TRIALS))) < min(latencies(ours.ask(TRIALS)))


@pytest.mark.parametrize("cls", [PrunerStrategy, MoAPrunerStrategy])
def test_every_sketch_gets_its_trials_although_it_looks_bad(cls: type[PrunerStrategy]) -> None:
    class Sequential(Ignorant):
        def predict(self, batch: CandidateBatch) -> NDArray[np.float64]:
            return -toy_features(batch)[:, 5]

    searching = strategy(
        {"prior": 0, "epsilon": 0.0}, cost_model=Sequential(ModelContext()), cls=cls
    )
    names = Counter(item.sketch.name for _ in range(3) for item in searching.ask(TRIALS))
    assert names["toy parallel"] == 3


def test_options_are_checked() -> None:
    with pytest.raises(InvalidValueError, match="Did you mean 'drafts'"):
        strategy({"draft": 64})
    with pytest.raises(InvalidValueError, match="'refresh' of strategy 'moa-pruner' must be"):
        strategy({"refresh": 0}, cls=MoAPrunerStrategy)
    with pytest.raises(UnknownNameError, match="Did you mean 'published'"):
        strategy({"fidelity": "publish"})


def test_a_state_is_small_enough_to_be_saved_every_round() -> None:
    searching = strategy()
    searching.tell(measured(searching.ask(TRIALS)))
    assert len(json.dumps(searching.state())) < 64_000


def best_of(cls: type[RecordedStrategy], seed: int, rounds: int = 5) -> float:
    model = GradientBoostedTrees(ModelContext(seed=seed), features=toy_features)  # type: ignore[arg-type]
    context = StrategyContext(SPACE, np.random.default_rng(seed), model, Draft())
    searching, best = cls(context), float("inf")
    for _ in range(rounds):
        outcomes = measured(searching.ask(TRIALS))
        searching.tell(outcomes)
        model.update(outcomes)
        found = [outcome.latency for _, outcome in outcomes if outcome.latency is not None]
        best = min([best, *found])
    return best


@pytest.mark.slow
def test_it_is_no_worse_than_evolution_at_equal_budget() -> None:
    drafts = [best_of(PrunerStrategy, seed) for seed in range(5)]
    evolved = [best_of(EvolutionaryStrategy, seed) for seed in range(5)]
    assert median(drafts) <= 1.02 * median(evolved)


def test_strategies_learn_with_models_of_this_plugin_if_not_told_otherwise() -> None:
    specs = plugin.autotune_parts()
    models = {spec.name for spec in specs if spec.kind == "cost_model"}
    assert {spec.default_cost_model for spec in specs if spec.kind == "strategy"} <= models


def test_the_pruning_model_lists_its_options() -> None:
    [spec] = [spec for spec in plugin.autotune_parts() if spec.kind == "pruning_model"]
    assert spec.options.keys() == attrs.fields_dict(PSAOptions).keys()


class Illegal(PruningModel):
    """A pruning model for which nothing can run."""

    name = "illegal"

    def score(self, batch: CandidateBatch) -> NDArray[np.float64]:
        return np.full(len(batch), -np.inf)


SMALL = {"population": 64, "drafts": 24}


def drafting(model: PruningModel) -> StrategyFactory:
    return lambda context: PrunerStrategy(attrs.evolve(context, pruning_model=model))


PUBLISHED = {**SMALL, "fidelity": "published"}


@pytest.mark.parametrize(
    "strategy_factory",
    [
        *thinned(
            [
                made(PrunerStrategy, **SMALL, configurations=200),
                made(
                    PrunerStrategy,
                    **SMALL,
                    generations=0,
                    draft_generations=0,
                    measured_ratio=0.0,
                ),
                made(PrunerStrategy, **{**SMALL, "drafts": 1}, epsilon=1.0, sketch_trials=0),
                made(PrunerStrategy, **PUBLISHED, refresh=3, generations=3, epsilon=0.3),
            ],
            3,
        ),
        *thinned(
            [
                made(drafting(draft), **options)
                for draft in (KnowingDraft(), Illegal())
                for options in (SMALL, PUBLISHED)
            ],
            3,
        ),
        made(MoAPrunerStrategy, **SMALL),
    ],
)
class TestPruner(StrategySuite):
    """Both strategies, with drafts that know the answer, nothing, or that nothing can run."""
