from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.models import ModelContext
from autotune.models.cost import RandomCostModel
from autotune.search.strategies import GridStrategy, RandomStrategy, StrategyContext, sampling
from autotune.spaces.search_space import SearchSpace
from autotune.testing.toy_space import ToySpace, toy_outcome


def _context(space: SearchSpace, seed: int = 0) -> StrategyContext:
    return StrategyContext(space, np.random.default_rng(seed), RandomCostModel(ModelContext()))


def test_sketches_get_equal_shares_over_the_run() -> None:
    strategy = RandomStrategy(_context(ToySpace()))
    shares: Counter[str] = Counter()
    for n in (1, 1, 1, 5, 16, 1, 3):
        shares.update(candidate.sketch.name for candidate in strategy.ask(n))
        assert max(shares.values()) - min(shares.get(name, 0) for name in _names()) <= 1


def _names() -> list[str]:
    return [sketch.name for sketch in ToySpace().sketches()]


@pytest.mark.parametrize("limit", [sampling.ENUMERATION_LIMIT, 10])
def test_every_candidate_is_asked_once(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "ENUMERATION_LIMIT", limit)
    space = ToySpace()
    strategy = RandomStrategy(_context(space))
    sizes, asked = [], set()
    while batch := strategy.ask(50):
        sizes.append(len(batch))
        asked |= {candidate.digest for candidate in batch}
    assert sizes == [50] * 15 + [10]
    assert asked == {candidate.digest for candidate in space.enumerate()}
    assert strategy.ask(1) == []


def test_what_others_measured_is_not_asked() -> None:
    space = ToySpace()
    known = list(space.enumerate())[:700]
    strategy = RandomStrategy(_context(space))
    strategy.tell([(candidate, toy_outcome(candidate)) for candidate in known])
    asked = strategy.ask(100)
    assert len(asked) == 60 and not set(asked) & set(known)


def test_rare_values_are_more_frequent_than_in_the_feasible_set() -> None:
    # i2 = 64 is rare in the feasible set, and half of the sample looks for rare values.
    strategy = RandomStrategy(_context(ToySpace(extent=64, limit=64)))
    asked = strategy.ask(400)
    uniform = list(ToySpace(extent=64, limit=64).enumerate())
    rare = [sum(c.config["i2"] == 64 for c in group) / len(group) for group in (asked, uniform)]
    assert rare[0] > 1.5 * rare[1]


@pytest.mark.parametrize("cls", [RandomStrategy, GridStrategy])
def test_negative_counts_are_refused(cls: type[RandomStrategy] | type[GridStrategy]) -> None:
    with pytest.raises(InvalidValueError, match="-1"):
        cls(_context(ToySpace())).ask(-1)


def test_grid_follows_the_space() -> None:
    space = ToySpace()
    strategy = GridStrategy(_context(space))
    asked = [candidate for _ in range(3) for candidate in strategy.ask(7)]
    assert asked == list(space.enumerate())[:21]
