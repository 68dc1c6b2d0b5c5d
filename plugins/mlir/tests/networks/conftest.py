from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from autotune_mlir.networks import program as module_program
from autotune_mlir.networks.program import ModuleProgram, load_network
from mlir_modules import MIXED, written

from autotune.process import Message

_ANSWERS: dict[str, Message] = {}


@pytest.fixture(scope="session")
def read_once() -> Iterator[None]:
    """Starts a process to read a text the first time only."""
    ask = module_program.ask_reader

    def answer(question: Message) -> Message:
        key = repr({**question, "file": Path(question["file"]).name})
        if key not in _ANSWERS:
            _ANSWERS[key] = ask(question)
        return _ANSWERS[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module_program, "ask_reader", answer)
        yield


@pytest.fixture(scope="session")
def mixed(read_once: None, tmp_path_factory: pytest.TempPathFactory) -> ModuleProgram:
    """The module with everything in it."""
    return load_network(written(tmp_path_factory.mktemp("mixed"), MIXED), None)
