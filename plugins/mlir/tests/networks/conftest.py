from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from autotune_mlir.networks import module_reading
from autotune_mlir.networks import program as module_program
from autotune_mlir.networks.program import ModuleProgram, load_network
from mlir_modules import MIXED, written

from autotune.process import Message


@pytest.fixture(scope="session")
def read_here() -> Iterator[None]:
    """MLIR reads modules in this process: they are known to be survived."""

    def ask(question: Message) -> Message:
        done: Message = json.loads(json.dumps(module_reading.answer(question)))
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module_program, "ask_reader", ask)
        yield


@pytest.fixture(scope="session")
def mixed(read_here: None, tmp_path_factory: pytest.TempPathFactory) -> ModuleProgram:
    """The module with everything in it."""
    return load_network(written(tmp_path_factory.mktemp("mixed"), MIXED), None)
