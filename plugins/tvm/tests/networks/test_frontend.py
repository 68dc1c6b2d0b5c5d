from __future__ import annotations

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
