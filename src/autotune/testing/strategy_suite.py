"""Conformance suite of search strategies.

Subclass it in a test module and give the one fixture::

    class TestMyStrategy(StrategySuite):
        @pytest.fixture
        def strategy_factory(self):
            return MyStrategy
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.search.search import Window
from autotune.search.strategies import Strategy, StrategyContext
from autotune.sketches import Candidate, CandidateBatch
from autotune.spaces.search_space import SearchSpace
from autotune.store.records import Outcome
from autotune.testing.toy_space import ToySpace, toy_outcome

StrategyFactory = Callable[[StrategyContext], Strategy]


def made(cls: StrategyFactory, **options: Any) -> StrategyFactory:
    """A factory of a strategy with these options, for ``parametrize("strategy_factory", ...)``."""
    return lambda context: cls(attrs.evolve(context, options={**options, **context.options}))


class StrategySuite:
    """The contract of strategies."""

    @pytest.fixture
    def strategy_factory(self) -> StrategyFactory:
        """Makes the strategy from a context, as its class does."""
        raise NotImplementedError("give the fixture 'strategy_factory'")

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        """Strategy options to run the suite with."""
        return {}

    @pytest.fixture(autouse=True)
    def _given(self, strategy_factory: StrategyFactory, options: Mapping[str, Any]) -> None:
        self.factory_, self.options_ = strategy_factory, options

    def make(self, space: SearchSpace | None = None, seed: int = 0) -> Strategy:
        """A strategy for a space and a seed."""
        space = ToySpace() if space is None else space
        rng, scores = np.random.default_rng(seed), RandomCostModel(ModelContext(seed=1))
        return self.factory_(StrategyContext(space, rng, scores, options=self.options_))

    def test_it_has_a_name(self) -> None:
        assert isinstance(self.make().name, str) and self.make().name

    def test_asked_candidates_are_feasible_and_never_repeat(self) -> None:
        space, strategy = ToySpace(), self.make()
        seen: set[str] = set()
        for _ in range(5):
            asked = strategy.ask(16)
            assert 0 < len(asked) <= 16
            assert space.contains(CandidateBatch.of(asked)).all()
            assert not seen & {candidate.digest for candidate in asked}
            assert len({candidate.digest for candidate in asked}) == len(asked)
            seen |= {candidate.digest for candidate in asked}
            strategy.tell([(candidate, toy_outcome(candidate)) for candidate in asked])

    def test_asking_again_before_telling_does_not_repeat(self) -> None:
        strategy = self.make()
        asked = [candidate.digest for _ in range(4) for candidate in strategy.ask(5)]
        assert len(set(asked)) == len(asked)

    def test_asking_for_nothing_gives_nothing(self) -> None:
        strategy, other = self.make(), self.make()
        assert strategy.ask(0) == []
        assert _digests(strategy.ask(4)) == _digests(other.ask(4))

    def test_a_small_space_is_used_up_and_then_nothing_is_asked(self) -> None:
        space = ToySpace(extent=2)
        strategy, asked = self.make(space), []
        for _ in range(space.count() + 1):
            batch = strategy.ask(7)
            if not batch:
                break
            asked += _digests(batch)
            strategy.tell([(candidate, toy_outcome(candidate)) for candidate in batch])
        assert strategy.ask(7) == []
        assert len(set(asked)) == len(asked) <= space.count()

    def test_an_empty_space_gives_nothing(self) -> None:
        strategy = self.make(ToySpace(limit=0))
        assert strategy.ask(3) == []
        assert strategy.ask(3) == []

    def test_a_part_of_the_outcomes_may_be_told(self) -> None:
        strategy, seen = self.make(), []
        for _ in range(3):
            asked = strategy.ask(8)
            seen += _digests(asked)
            strategy.tell([])
            strategy.tell([(candidate, toy_outcome(candidate)) for candidate in asked[1::3]])
        assert len(set(seen)) == len(seen)

    def test_outcomes_come_in_any_order_while_others_are_out(self) -> None:
        """Tell outcomes as several machines do: the same order gives the same candidates."""
        asked, told = _stream(self.make(seed=3), order=0)
        assert len(set(asked)) == len(asked) > len(told)
        assert (asked, told) == _stream(self.make(seed=3), order=0)
        assert told != asked[: len(told)], "nothing was out of order"

    def test_outcomes_of_what_it_did_not_ask_for_do_no_harm(self) -> None:
        space, strategy = ToySpace(), self.make(seed=5)
        seeds = list(space.sample(4, np.random.default_rng(1)))
        strategy.tell([(candidate, toy_outcome(candidate)) for candidate in seeds])
        other = self.make(seed=6)
        other.load_state(_through_json(strategy.state()))
        digests = _play(strategy, 4)
        assert len(set(digests)) == len(digests) > 0
        assert _play(other, 4) == digests

    def test_failures_alone_do_no_harm(self) -> None:
        strategy = self.make()
        for _ in range(3):
            asked = strategy.ask(8)
            assert asked
            strategy.tell([(c, Outcome("build_error", message="synthetic")) for c in asked])

    def test_one_seed_gives_the_same_candidates(self) -> None:
        assert _play(self.make(seed=3), 4) == _play(self.make(seed=3), 4)

    @pytest.mark.parametrize(("rounds", "told"), [(0, "some"), (1, "none"), (4, "all")])
    def test_state_continues_exactly(self, rounds: int, told: str) -> None:
        strategy = self.make(seed=5)
        _play(strategy, rounds)
        pending = strategy.ask(6)
        outcomes = [(candidate, toy_outcome(candidate)) for candidate in pending]
        strategy.tell(outcomes[: {"all": 6, "some": 2, "none": 0}[told]])
        other = self.make(seed=99)
        other.load_state(_through_json(strategy.state()))
        assert _through_json(other.state()) == _through_json(strategy.state())
        assert _play(other, 3) == _play(strategy, 3)

    def test_state_of_an_untouched_strategy(self) -> None:
        strategy, other = self.make(seed=5), self.make(seed=6)
        other.load_state(_through_json(strategy.state()))
        assert _play(other, 3) == _play(strategy, 3)

    def test_taking_the_state_changes_nothing(self) -> None:
        strategy, other = self.make(), self.make()
        first = strategy.state()
        kept = json.dumps(first)
        assert _play(strategy, 3) == _play(other, 3)
        assert json.dumps(first) == kept, "a state must not change after it was taken"

    def test_state_of_another_strategy_is_refused(self) -> None:
        strategy = self.make()
        with pytest.raises(InvalidValueError):
            strategy.load_state({**strategy.state(), "strategy": "no such strategy"})

    def test_an_unknown_option_is_refused_by_name(self, strategy_factory: StrategyFactory) -> None:
        context = StrategyContext(
            ToySpace(),
            np.random.default_rng(0),
            RandomCostModel(ModelContext()),
            options={"no_such_option": 1},
        )
        with pytest.raises(InvalidValueError, match="no_such_option"):
            strategy_factory(context)


def _digests(candidates: list[Candidate]) -> list[str]:
    return [candidate.digest for candidate in candidates]


def _play(strategy: Strategy, rounds: int) -> list[str]:
    """Digests asked for over some rounds, with all outcomes."""
    digests = []
    for _ in range(rounds):
        asked = strategy.ask(6)
        digests += _digests(asked)
        strategy.tell([(candidate, toy_outcome(candidate)) for candidate in asked])
    return digests


def _stream(strategy: Strategy, order: int) -> tuple[list[str], list[str]]:
    """Digests in the order asked, and in an order of outcomes, with two rounds out at least."""
    rng, window = np.random.default_rng(order), Window(step=4)
    asked: list[str] = []
    told: list[str] = []
    while len(told) < 16:
        while window.is_short(lanes=1):
            new = strategy.ask(4)
            assert new and len(window.add(new)) == len(new)
            asked += _digests(new)
        out = [it for it in window.pending if it.digest not in told]
        for at in rng.permutation(len(out))[: window.missing]:
            window.arrive([(out[at], toy_outcome(out[at]))])
            told.append(out[at].digest)
        strategy.tell(window.take_step())
    return asked, told


def _through_json(state: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return restored
