"""``autotune doctor``: one report, and everything that it looks at."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toy_parts import REFERENCE_BACKEND

from autotune.cli.app import run
from autotune.plugins import PluginSpec
from autotune.plugins.manager import manager


class _ReferencePlugin:
    AUTOTUNE_API_VERSION = 2

    def autotune_parts(self) -> list[PluginSpec]:
        return [PluginSpec("backend", "reference", REFERENCE_BACKEND, "for this test")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the doctor finds where a plugin brings the reference backend."""
    path = tmp_path_factory.mktemp("doctor") / "doctor.json"
    manager().register(_ReferencePlugin(), "reference")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OMP_NUM_THREADS", "3")
            patch.setenv("AUTOTUNE_REFERENCE_THREADS", "5")
            assert run(("doctor", "--json", str(path))) in (0, 1)  # 1 without a backend of ours
    finally:
        manager.cache_clear()
    return json.loads(path.read_text())


@pytest.fixture
def findings(report: Any) -> dict[str, Any]:
    """Findings by their labels."""
    return {finding["label"]: finding for finding in report["findings"]}


def test_everything_is_looked_at(report: Any, findings: dict[str, Any]) -> None:
    assert {"system", "numpy", "target", "threads", "load"} <= set(findings)
    assert {"C compiler", "disk here", "timing"} <= set(findings)
    assert {it["status"] for it in report["findings"]} <= {"ok", "warning", "error"}
    assert report["target"]["kind"] == "cpu"


def test_thread_variables_of_every_installed_backend(findings: dict[str, Any]) -> None:
    assert "set to 3" in findings["OMP_NUM_THREADS"]["message"]
    assert "set to 5" in findings["AUTOTUNE_REFERENCE_THREADS"]["message"]


def test_what_observers_can_read(findings: dict[str, Any]) -> None:
    perf, energy = findings["observer perf"], findings["observer energy"]
    assert perf["status"] == energy["status"] == "ok"
    for name in ("page_faults", "instructions", "cpu_migrations"):
        assert f"{name}_per_call" in perf["message"]
    assert "energy_joules_per_call" in energy["message"]
