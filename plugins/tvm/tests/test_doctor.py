"""Findings on an installation of TVM."""

from __future__ import annotations

import subprocess

import pytest
from autotune_tvm import doctor
from autotune_tvm.backend import TVMBackend
from autotune_tvm.doctor import KNOWN_GOOD, findings, known_bad_pairs

STATUSES = ("ok", "warning", "error")


@pytest.mark.parametrize(
    ("tvm", "ffi", "status"),
    [
        (*KNOWN_GOOD, "ok"),
        ("0.27.0.post1", "0.1.15.post2", "error"),
        ("0.27.0.post1", "0.1.15", "warning"),
        ("0.28.0", "0.1.14.post0", "warning"),
        ("0.27.0.post1", None, "error"),
    ],
)
def test_pairs(tvm: str, ffi: str | None, status: str) -> None:
    label, found, message = known_bad_pairs(tvm, ffi)
    assert (label, found) == ("versions", status)
    assert status == "ok" or f"apache-tvm-ffi=={KNOWN_GOOD[1]}" in message


def test_this_installation(backend: TVMBackend) -> None:
    found = backend.diagnose()
    assert all(status in STATUSES and label and message for label, status, message in found)
    assert not [finding for finding in found if finding[1] == "error"]
    assert any("LLVM" in message for _, _, message in found)


def test_threads_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    assert doctor._threads("1")[1] == "warning"
    assert "TVM_NUM_THREADS=1 while 4 CPUs" in doctor._threads("1")[2]
    monkeypatch.delenv("TVM_NUM_THREADS")
    assert "runs on 2 of 4 CPUs" in doctor._threads("2")[2]
    assert doctor._threads("4")[1] == "ok"


def test_a_crash_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        doctor, "_PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    )
    assert ("import", "error") in [finding[:2] for finding in findings()]
    assert "exit status -11" in findings()[-1][2]


def test_a_hang_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*args: object, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    assert findings()[-1][1] == "error"


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    assert findings() == [("versions", "error", "apache-tvm is not installed")]
