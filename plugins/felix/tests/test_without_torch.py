"""What is there where torch is not installed."""

from __future__ import annotations

import re
import sys

import pytest

from autotune.errors import PluginError
from autotune.models import ModelContext
from autotune.plugins.installing import install_extra
from autotune.plugins.parts import create_part
from autotune.targets import preset


@pytest.mark.parametrize(
    ("name", "module"), [("felix-mlp", "felix_mlp"), ("felix-mlp-published", "published_mlp")]
)
def test_the_networks_name_the_extra_that_they_need(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, f"autotune_felix.{module}", raising=False)
    context = ModelContext(target=preset("sapphirerapids-4core"), seed=0)
    hint = re.escape(install_extra("felix-mlp", "autotune-felix"))
    wanted = rf"'{name}'.*: it learns in torch.*: run {hint}, or choose felix-gp"
    with pytest.raises(PluginError, match=wanted):
        create_part("cost_model", name, context)
    assert create_part("cost_model", "felix-gp", context)
