"""What is there where torch is not installed."""

from __future__ import annotations

import sys

import pytest

from autotune.errors import PluginError
from autotune.plugins import Context
from autotune.plugins.parts import create_part
from autotune.targets import preset


def test_the_networks_name_the_extra_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "autotune_felix.felix_mlp", raising=False)
    context = Context(target=preset("sapphirerapids-4core"), seed=0)
    wanted = r"'felix-mlp'.*: it learns in torch.*pip install 'autotune-felix\[felix-mlp\]'"
    with pytest.raises(PluginError, match=wanted):
        create_part("cost_model", "felix-mlp", context)
    assert create_part("cost_model", "felix-gp", context)
