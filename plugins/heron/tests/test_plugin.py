from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from autotune_heron import plugin
from autotune_heron.options import (
    GeneticOptions,
    HeronOptions,
    checked_options,
)

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.testing.plugin_suite import PluginSuite


class TestPlugin(PluginSuite):
    @pytest.fixture
    def plugin(self) -> ModuleType:
        return plugin


def read(**given: Any) -> HeronOptions:
    return checked_options("heron", HeronOptions, given)


def test_variants_have_the_published_figures() -> None:
    paper, head = read(variant="paper"), read(variant="head")
    assert (paper.parent_count, paper.share, paper.by_importance) == (32, 0.14, True)
    assert (head.parent_count, head.share, head.by_importance) == (100, 0.2, False)
    for options in (paper, head):
        assert (options.population, options.generations, options.children) == (200, 5, 208)
        assert (options.elite, options.history, options.greedy_share) == (20, 32, 0.6)
        assert not options.drops_several


def test_what_is_given_counts_whatever_the_variant() -> None:
    options = read(variant="head", parents=7, key_share=0.3, keys="importance", drop="geometric")
    assert (options.parent_count, options.share) == (7, 0.3)
    assert options.by_importance and options.drops_several
    assert not read(keys="random").by_importance
    assert read(greedy=0.25).greedy_share == 0.25


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"variant": "papre"}, "papre.*paper"),
        ({"keys": "all"}, "'keys'.*all.*importance, random"),
        ({"drop": "none"}, "'drop'.*none.*geometric, one"),
    ],
)
def test_unknown_names_are_refused_with_what_is_allowed(given: Any, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        read(**given)


def test_an_unknown_remedy_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="ignore.*reject, repair"):
        checked_options("heron-ga", GeneticOptions, {"infeasible": "ignore"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"elite": 30, "population": 20}, "elite of 30.*population of 20"),
        ({"variant": "paper", "sketch_trials": 1}, "leave out sketch_trials"),
    ],
)
def test_contradictory_options_are_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        read(**given)
