from __future__ import annotations

import re
from pathlib import Path

import pytest
from autotune_tvm.networks.frontend import RelaxFrontend
from relax_networks import small_network

from autotune.networks import Frontend
from autotune.testing.frontend_suite import FrontendSuite, Source


class TestRelax(FrontendSuite):
    @pytest.fixture
    def frontend(self) -> Frontend:
        return RelaxFrontend()

    @pytest.fixture
    def source(self) -> Source:
        return small_network(), None


def test_the_documentation_lists_the_passes() -> None:
    page = Path(__file__).parents[4] / "docs" / "networks.md"
    text = page.read_text().split("## The graph before it is cut")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == RelaxFrontend.passes
