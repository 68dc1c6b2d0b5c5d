from __future__ import annotations

from collections.abc import Iterator

import pytest
from autotune_mlir.networks import module_reading, reader
from mlir_modules import MIXED, written
from module_networks import load

from autotune.networks import GraphProgram
from autotune.process import Message
from autotune.process.channel import Decoder, encode


@pytest.fixture(scope="session")
def read_here() -> Iterator[None]:
    """MLIR reads modules in this process: they are known to be survived."""

    def ask(question: Message) -> Message:
        (done,) = Decoder().feed(encode(module_reading.answer(question)))
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "ask_reader", ask)
        yield


@pytest.fixture(scope="session")
def mixed(read_here: None, tmp_path_factory: pytest.TempPathFactory) -> GraphProgram:
    """The module with everything in it."""
    return load(written(tmp_path_factory.mktemp("mixed"), MIXED))
