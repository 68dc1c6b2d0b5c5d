from __future__ import annotations

from types import ModuleType

import pytest
from autotune_perf import plugin

from autotune.testing.plugin_suite import PluginSuite


class TestPlugin(PluginSuite):
    @pytest.fixture
    def plugin(self) -> ModuleType:
        return plugin
