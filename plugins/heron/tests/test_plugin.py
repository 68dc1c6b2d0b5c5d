from __future__ import annotations

import inspect
import re

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
)
from autotune_heron.stochastic_ranking import HeronStochasticRankingStrategy
from autotune_heron.strategies import (
    HeronDecodingStrategy,
    HeronGeneticStrategy,
    HeronRandomStrategy,
    HeronStrategy,
)


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
