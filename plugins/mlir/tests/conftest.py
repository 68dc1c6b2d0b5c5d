"""Shared by the tests of the MLIR backend; all of them need MLIR's bindings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from autotune_mlir import bindings, openmp
from autotune_mlir.backend import MLIRBackend
from mlir_commands import Command, Done

from autotune.cli.app import run
from autotune.targets import Target, detect_cpu

# Read when the runtime is loaded: the same as in a worker.
for _name, _value in openmp.worker_environment(2).items():
    os.environ.setdefault(_name, _value)

bindings.load()


@pytest.fixture(scope="session")
def target() -> Target:
    """This machine."""
    return detect_cpu()


@pytest.fixture(scope="session")
def backend() -> MLIRBackend:
    """The backend, MLIR loaded."""
    backend = MLIRBackend()
    backend.warm_up()
    return backend


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
