from __future__ import annotations

import inspect
import re
from typing import Any

import attrs
import pytest
from autotune_heron import plugin
from autotune_heron.annealing import HeronAnnealingStrategy
from autotune_heron.idea import HeronIdeaStrategy
from autotune_heron.options import (
    AnnealingOptions,
    GeneticOptions,
    HeronOptions,
    IdeaOptions,
    ParentsOptions,
    RoundOptions,
    StochasticRankingOptions,
    checked_options,
)
from autotune_heron.stochastic_ranking import HeronStochasticRankingStrategy
from autotune_heron.strategies import (
    HeronDecodingStrategy,
    HeronGeneticStrategy,
    HeronRandomStrategy,
    HeronStrategy,
)

from autotune.errors import InvalidValueError, UnknownNameError


def test_every_part_resolves() -> None:
    specs = [spec for spec in plugin.autotune_parts() if spec.kind == "strategy"]
    found = {spec.name: spec.resolve() for spec in specs}
    assert found == {
        "heron": HeronStrategy,
        "heron-random": HeronRandomStrategy,
        "heron-ga": HeronGeneticStrategy,
        "heron-sa": HeronAnnealingStrategy,
        "heron-srga": HeronStochasticRankingStrategy,
        "heron-sdga": HeronDecodingStrategy,
        "heron-idea": HeronIdeaStrategy,
    }
    assert all(factory.name == name for name, factory in found.items())
    assert all(spec.problem() is None for spec in specs)


@pytest.mark.parametrize(
    "cls",
    [
        RoundOptions,
        ParentsOptions,
        GeneticOptions,
        HeronOptions,
        StochasticRankingOptions,
        IdeaOptions,
        AnnealingOptions,
    ],
)
def test_every_option_is_described(cls: type) -> None:
    described = re.findall(r"^    (\w+): ", inspect.getdoc(cls) or "", re.MULTILINE)
    assert described == [item.name for item in attrs.fields(cls) if not item.inherited]


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
