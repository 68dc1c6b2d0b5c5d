"""``autotune fleet``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotune.cli.app import run
from autotune.testing.reference_backend import REFERENCE_BACKEND

FLEET = ("fleet", "--backend", REFERENCE_BACKEND, "--target", "zen4", "--threads", "1")


def test_this_machine_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fleet.json"
    assert run((*FLEET, "--runner-option", "builders=1", "--json", str(path))) == 0
    data = json.loads(path.read_text())
    machine, builder = data["machines"]
    assert data["runner"] == "local"
    assert machine["roles"] == ["time"] and builder["roles"] == ["build"]
    assert machine["fingerprint"]["protocol"] == "warm-3" and machine["takes_part"]
    out = capsys.readouterr().out
    assert machine["name"] in out and machine["fingerprint"]["digest"] in out


def test_an_unknown_runner_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run((*FLEET, "--runner", "lokal")) == 2
    assert "unknown runner 'lokal'" in capsys.readouterr().err
