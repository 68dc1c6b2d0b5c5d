"""Shared by the tests of the MLIR backend; all of them need MLIR's bindings."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from autotune_mlir import bindings, openmp
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing import importer
from autotune_mlir.importing.import_worker import HANDLERS
from autotune_mlir.networks import reader
from command_lines import Command, Done

from autotune.cli.app import run
from autotune.process import Message
from autotune.process.channel import Decoder, encode
from autotune.targets import Target, detect_cpu

# Read when the runtime is loaded: the same as in a worker.
for _name, _value in openmp.worker_environment(2).items():
    os.environ.setdefault(_name, _value)

bindings.load()


@pytest.fixture(scope="session")
def target() -> Target:
    """Return the target of this machine."""
    return detect_cpu()


@pytest.fixture(scope="session")
def backend() -> MLIRBackend:
    """The backend, MLIR loaded."""
    backend = MLIRBackend()
    backend.warm_up()
    return backend


def answered_here(question: Message) -> Message:
    """The answer of the process that reads MLIR, from this one."""
    (done,) = Decoder().feed(encode(HANDLERS[question["op"]](question)))
    return done


@pytest.fixture
def read_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLIR reads programs in this process: they are known to be survived."""
    monkeypatch.setattr(importer, "ask_reader", answered_here)


@pytest.fixture(scope="session")
def read_here() -> Iterator[None]:
    """The same of modules, for all tests from now on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "ask_reader", answered_here)
        yield


@pytest.fixture
def command(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs the command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        capfd.readouterr()
        status = run(arguments)
        sys.stderr.flush()
        return Done(status, *capfd.readouterr())

    return call
