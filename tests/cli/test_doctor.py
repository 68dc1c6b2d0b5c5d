"""``autotune doctor``: one report, and everything that it looks at."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import attrs
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from toy_parts import REFERENCE_BACKEND

from autotune.cli.app import run
from autotune.cli.doctor import dependency_findings
from autotune.plugins import PluginSpec
from autotune.plugins.manager import manager


class _ReferencePlugin:
    AUTOTUNE_API_VERSION = 4

    def autotune_parts(self) -> list[PluginSpec]:
        return [PluginSpec("backend", "reference", REFERENCE_BACKEND, "for this test")]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Findings of the doctor where a plugin brings the reference backend."""
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


@pytest.mark.needs("perf")
def test_what_observers_can_read(findings: dict[str, Any]) -> None:
    perf, energy = findings["observer perf"], findings["observer energy"]
    assert perf["status"] == energy["status"] == "ok"
    for name in ("page_faults", "instructions", "cpu_migrations"):
        assert f"{name}_per_call" in perf["message"]
    assert "energy_joules_per_call" in energy["message"]


def test_every_package_that_is_asked_for_is_listed_with_its_version(
    findings: dict[str, Any],
) -> None:
    plugins = {status.distribution for status in manager().report() if status.distribution}
    for distribution in {"tensor-autotune", *plugins}:
        assert findings[distribution]["message"] == metadata.version(distribution)
        for requirement in map(Requirement, metadata.requires(distribution) or ()):
            extras = ["", *metadata.metadata(distribution).get_all("Provides-Extra", ())]
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": extra}) for extra in extras):
                continue
            name = canonicalize_name(requirement.name)
            message = findings[name]["message"]
            try:
                assert message.startswith(metadata.version(name))
            except metadata.PackageNotFoundError:
                assert message.startswith("not installed")
            if name != "tensor-autotune":
                assert distribution in message and str(requirement.specifier) in message


def test_what_is_missing_is_a_warning_where_it_is_needed_for_more_than_an_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = tmp_path / "probe-1.dist-info" / "METADATA"
    described.parent.mkdir()
    described.write_text(
        "Metadata-Version: 2.1\nName: probe\nVersion: 1\n"
        "Requires-Dist: No_Such.Package[all] (>=2)\n"
        "Requires-Dist: old-backport; python_version < '3.0'\n"
        "Requires-Dist: another-one==3; python_version >= '3.0' and extra == 'more'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = [attrs.astuple(it) for it in dependency_findings(("probe",))]
    assert found == [
        ("probe", "ok", "1"),
        ("another-one", "ok", "not installed, for probe[more] (==3)"),
        ("no-such-package", "warning", "not installed, for probe (>=2)"),
    ]
