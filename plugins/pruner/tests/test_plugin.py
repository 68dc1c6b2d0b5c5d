from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType

import pytest
from autotune_pruner import plugin
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

from autotune.ir.workloads import gemm
from autotune.plugins import Context
from autotune.testing.plugin_suite import PluginSuite
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import Task
from autotune.tuning.resolve import resolve_run


class TestPlugin(PluginSuite):
    @pytest.fixture
    def plugin(self) -> ModuleType:
        return plugin


def test_trained_models_are_files() -> None:
    specs = [spec for spec in plugin.autotune_parts() if spec.kind == "trained_model"]
    files = {spec.name: spec.resolve()(Context()) for spec in specs}
    assert list(files) == ["pacm-cpu", "pacm-cuda"]
    assert all(file.is_file() for file in files.values())


@pytest.mark.parametrize(
    ("parts", "file", "told"),
    [
        ({"strategy": "moa-pruner"}, None, "strategy 'moa-pruner'"),
        ({"strategy": "moa-pruner", "cost_model": "gbdt"}, None, "strategy 'moa-pruner'"),
        ({"strategy": "pruner", "cost_model": "moa-pacm"}, None, "cost model 'moa-pacm'"),
        ({"strategy": "moa-pruner"}, "pacm-cpu", ""),
        ({"strategy": "pruner"}, None, ""),
    ],
)
def test_what_is_meant_for_trained_weights_says_so_without_them(
    parts: Mapping[str, str], file: str | None, told: str
) -> None:
    chosen = {**parts, "search_space": TOY_SPACE}
    options = TuneOptions(
        backend=REFERENCE_BACKEND, threads=1, trials=8, parts=chosen, load_cost_model=file
    )
    found = resolve_run([Task(gemm(m=8, n=8, k=8))], options, {})
    assert found is not None and len(found.warnings) == bool(told)
    for warning in found.warnings:
        assert warning.startswith(f"{told} is meant for a cost model that was trained beforehand")
        assert "--load-cost-model; installed: pacm-cpu, pacm-cuda" in warning


def test_listing_and_proposing_import_no_torch() -> None:
    code = (
        "import sys, autotune_pruner.plugin as p, autotune_pruner.options, "
        "autotune_pruner.strategy, autotune_pruner.psa_options; "
        "p.autotune_parts(); print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr
