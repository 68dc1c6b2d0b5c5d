from __future__ import annotations

import pytest

from autotune.networks import Frontend
from autotune.testing.frontend_suite import FrontendSuite, Source
from autotune.testing.reference_frontend import ReferenceFrontend, three_layers


class TestReference(FrontendSuite):
    @pytest.fixture
    def frontend(self) -> Frontend:
        return ReferenceFrontend()

    @pytest.fixture
    def source(self) -> Source:
        return three_layers()
