"""The parts that search: they are registered, described, and need no torch."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import attrs
import pytest
from autotune_pruner import plugin
from autotune_pruner.psa_options import ConfigurablePSA, PSAOptions
from autotune_pruner.strategy import (
    MoAPrunerOptions,
    MoAPrunerStrategy,
    PrunerOptions,
    PrunerStrategy,
    checked_strategy_options,
)


def test_every_part_resolves() -> None:
    kinds = ("strategy", "pruning_model")
    specs = [spec for spec in plugin.autotune_parts() if spec.kind in kinds]
    found = {spec.name: spec.resolve() for spec in specs}
    assert found == {
        "pruner": PrunerStrategy,
        "moa-pruner": MoAPrunerStrategy,
        "pruner-psa": ConfigurablePSA,
    }
    assert all(factory.name == name for name, factory in found.items())
    assert all(spec.problem() is None for spec in specs)


def test_strategies_learn_with_models_of_this_plugin_if_not_told_otherwise() -> None:
    specs = plugin.autotune_parts()
    models = {spec.name for spec in specs if spec.kind == "cost_model"}
    assert {spec.default_cost_model for spec in specs if spec.kind == "strategy"} <= models


@pytest.mark.parametrize("options", [PrunerOptions, PSAOptions])
def test_every_option_is_described(options: type) -> None:
    described = re.findall(r"^    (\w+): ", inspect.getdoc(options) or "", re.MULTILINE)
    assert described == [attribute.name for attribute in attrs.fields(options)]


def test_the_strategies_differ_in_what_is_known_at_first() -> None:
    ours, adapted = attrs.asdict(PrunerOptions()), attrs.asdict(MoAPrunerOptions())
    different = {name: adapted[name] for name in ours if ours[name] != adapted[name]}
    assert different == {"prior_share": 0.5}
    assert ours.keys() == adapted.keys()


def test_both_are_published_alike() -> None:
    given = {"fidelity": "published"}
    ours = checked_strategy_options("pruner", PrunerOptions, given)
    adapted = checked_strategy_options("moa-pruner", MoAPrunerOptions, given)
    assert ours.epsilon == adapted.epsilon == 0.1


def test_the_pruning_model_lists_its_options() -> None:
    [spec] = [spec for spec in plugin.autotune_parts() if spec.kind == "pruning_model"]
    assert spec.options.keys() == attrs.fields_dict(PSAOptions).keys()


def test_proposing_imports_no_torch() -> None:
    code = (
        "import sys, autotune_pruner.plugin, autotune_pruner.strategy; "
        "import autotune_pruner.psa_options; print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr
