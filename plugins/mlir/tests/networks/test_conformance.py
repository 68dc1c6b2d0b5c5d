from __future__ import annotations

from pathlib import Path

import pytest
from autotune_mlir.networks.frontend import MLIRFrontend
from mlir_modules import LAYERS, written

from autotune.networks import Frontend
from autotune.testing.frontend_suite import FrontendSuite, Source


@pytest.mark.usefixtures("read_here")
class TestMLIR(FrontendSuite):
    @pytest.fixture
    def frontend(self) -> Frontend:
        return MLIRFrontend()

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        return written(tmp_path, LAYERS), None
