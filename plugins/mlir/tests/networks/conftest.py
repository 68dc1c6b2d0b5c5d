from __future__ import annotations

import pytest
from mlir_modules import MIXED, written
from module_networks import load

from autotune.networks import GraphProgram


@pytest.fixture(scope="session")
def mixed(read_here: None, tmp_path_factory: pytest.TempPathFactory) -> GraphProgram:
    """The module with everything in it."""
    return load(written(tmp_path_factory.mktemp("mixed"), MIXED))
