"""Findings on an installation of MLIR's bindings."""

from __future__ import annotations

import subprocess

import pytest
from autotune_mlir import bindings, host
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.bindings import VARIABLE, bindings_version
from autotune_mlir.host import findings

STATUSES = ("ok", "warning", "error")


def test_this_installation(backend: MLIRBackend) -> None:
    found = backend.diagnose()
    assert [label for label, _, _ in found] == ["bindings", "code generator", "OpenMP"]
    assert all(status in STATUSES and message for _, status, message in found)
    assert not [finding for finding in found if finding[1] == "error"]
    assert found[0][1:] == ("ok", f"{bindings_version()}")
    assert found[1][2].startswith("LLVM ")


def test_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings.metadata, "version", lambda name: "20991231")
    label, status, message = findings()[0]
    assert (label, status) == ("bindings", "warning")
    assert f"20991231 was not tested; pip install {bindings.chosen().install}" in message


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(bindings.util, "find_spec", lambda name: None)
    (first, *others) = findings()
    assert first[:2] == ("bindings", "error")
    assert "pip install torch-mlir==" in first[2]
    assert [label for label, _, _ in others] == ["OpenMP"]


def test_a_crash_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert findings()[1][:2] == ("code generator", "error")
    assert "exit status -11" in findings()[1][2]


def test_a_hang_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*args: object, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(host.subprocess, "run", hang)
    assert findings()[1][1] == "error"
