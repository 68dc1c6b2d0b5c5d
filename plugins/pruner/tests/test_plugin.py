from __future__ import annotations

import inspect
import re
import subprocess
import sys

import attrs
import pytest
from autotune_pruner import plugin
from autotune_pruner.cost_models import PaCM, TenSetMLP
from autotune_pruner.momentum import MomentumPaCM
from autotune_pruner.options import CostModelOptions, MomentumOptions

from autotune.plugins import Context


def test_every_part_resolves() -> None:
    found = {
        spec.name: spec.resolve() for spec in plugin.autotune_parts() if spec.kind == "cost_model"
    }
    assert found == {"pacm": PaCM, "tenset-mlp": TenSetMLP, "moa-pacm": MomentumPaCM}
    assert all(factory.name == name for name, factory in found.items())


def test_trained_models_are_files() -> None:
    specs = [spec for spec in plugin.autotune_parts() if spec.kind == "trained_model"]
    files = {spec.name: spec.resolve()(Context()) for spec in specs}
    assert list(files) == ["pacm-cpu", "pacm-cuda"]
    assert all(file.is_file() for file in files.values())


@pytest.mark.parametrize("options", [CostModelOptions, MomentumOptions])
def test_every_option_is_described(options: type) -> None:
    described = re.findall(r"^    (\w+): ", inspect.getdoc(options) or "", re.MULTILINE)
    assert described == [attribute.name for attribute in attrs.fields(options)]


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys, autotune_pruner.plugin as p; import autotune_pruner.options; "
        "p.autotune_parts(); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr
