"""Options of a run, and those that identify it."""

from __future__ import annotations

import inspect
import re
from typing import Any

import attrs
import pytest

import autotune
from autotune.errors import AutotuneError, InvalidValueError
from autotune.plugins.options import meanings
from autotune.tuning.options import KINDS, Choice, TuneOptions

DEFAULTS = {
    "strategy": "evolutionary",
    "cost_model": "gbdt",
    "pruning_model": "psa",
    "search_space": "sketch",
    "task_scheduler": "gradient",
    "measurer": "local",
    "runner": "local",
}


def options(**given: Any) -> TuneOptions:
    return TuneOptions(**{"target": "zen4", "threads": 1, **given})


def test_python_takes_every_option_by_name_and_each_is_described() -> None:
    described = set(meanings(TuneOptions))
    for function in (autotune.tune, autotune.tune_tasks):
        assert set(list(inspect.signature(function).parameters)[1:]) == described
    assert described < {attribute.name for attribute in attrs.fields(TuneOptions)}
    with pytest.raises(TypeError, match="unexpected keyword argument 'trails'"):
        autotune.tune(None, trails=3)  # type: ignore[call-arg]


def test_there_is_a_part_of_every_kind() -> None:
    assert {kind: choice.name for kind, choice in options().chosen.items()} == DEFAULTS == KINDS


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("random", Choice("random")),
        (("psa", {"gpu_spec": "t4"}), Choice("psa", {"gpu_spec": "t4"})),
        ({"gpu_spec": "t4"}, Choice("psa", {"gpu_spec": "t4"})),
        (None, Choice("none")),
        ("none", Choice("none")),
        ("module:Model", Choice("module:Model")),
    ],
)
def test_what_is_given_for_a_part(given: object, found: Choice) -> None:
    kind = "cost_model" if given == "random" else "pruning_model"
    made = options(parts={kind: given})
    assert made.chosen[kind] == found
    assert attrs.evolve(made, trials=3).chosen == made.chosen


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"parts": ["random"]}, "parts are given by kind"),
        ({"parts": {"strategy": None}}, "strategy must be a name"),
        (
            {"parts": {"strategy": "grid", "cost_model": {"rounds": 3}}},
            "strategy 'grid' asks no cost model: leave out its options {'rounds': 3}",
        ),
        (
            {"parts": {"strategy": "random", "pruning_model": ("psa", {"gpu_spec": "t4"})}},
            "strategy 'random' asks no pruning model",
        ),
        (
            {"parts": {"strategy": "random"}, "load_cost_model": __file__},
            "strategy 'random' asks no cost model: leave out load_cost_model",
        ),
        ({"parts": {"strategy": "grid", "cost_model": "gbtd"}}, "unknown cost model 'gbtd'"),
        ({"round_size": None}, "round_size must be a whole number of at least 1, not None"),
        ({"lookahead": 2}, "lookahead must be a whole number from 0 to 1, not 2"),
        ({"fresh": True, "warm_start": True}, "fresh (--fresh) ignores it: leave out one"),
        ({"observers": "perf"}, "must be a list of names, such as"),
    ],
)
def test_mistakes(given: dict[str, Any], message: str) -> None:
    with pytest.raises(AutotuneError, match=re.escape(message)):
        options(**given)


def test_models_that_a_strategy_never_asks_are_no_part_of_a_run() -> None:
    plain = options(parts={"strategy": "random"})
    named = options(parts={"strategy": "random", "cost_model": "gbdt", "pruning_model": None})
    assert plain.chosen["cost_model"].is_none and plain.chosen["pruning_model"].is_none
    assert plain.decisions(1) == named.decisions(1)
    assert plain.decisions(1) == {"strategy_options": {}, "round_size": 16, "lookahead": 1}


def test_what_decides_proposals() -> None:
    base = options().decisions(1)
    for given in (
        {"round_size": 8},
        {"lookahead": 0},
        {"parts": {"strategy": {"epsilon": 0.5}}},
        {"parts": {"cost_model": "random"}},
        {"parts": {"pruning_model": None}},
        {"load_cost_model": __file__},
    ):
        assert options(**given).decisions(1) != base
    for given in (
        {"trials": 3},
        {"time": 3.0},
        {"session_time": 3.0},
        {"fresh": True},
        {"database": "other.db"},
        {"observers": ["perf"]},
        {"listeners": [print]},
        {"parts": {"task_scheduler": "round-robin"}},
        {"first_round": 2},
    ):
        assert options(**given).decisions(1) == base
    for given in ({"parts": {"task_scheduler": "round-robin"}}, {"first_round": 2}):
        assert options(**given).decisions(2) != options().decisions(2)


def test_both_names_of_an_option_identify_one_run() -> None:
    present, earlier = (
        options(parts={"pruning_model": {name: "corrected"}}) for name in ("formula", "arithmetic")
    )
    assert present.chosen["pruning_model"] == earlier.chosen["pruning_model"]
    assert present.chosen["pruning_model"].options == {"formula": "corrected"}
    assert present.decisions(1) == earlier.decisions(1)
    assert earlier.decisions(1)["pruning_model_options"] == {"arithmetic": "corrected"}
    with pytest.raises(InvalidValueError, match="'arithmetic' is the earlier name of 'formula'"):
        options(parts={"pruning_model": {"formula": "corrected", "arithmetic": "published"}})
