"""The plugin that docs/plugins.md shows: installed, listed, used, and run through its suite."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "autotune-hill-climb"
BACKEND = "autotune.testing.reference_backend:ReferenceBackend"

Run = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example."""
    folder = tmp_path_factory.mktemp("plugin")
    # A copy, because building leaves files behind.
    copy = shutil.copytree(
        EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__")
    )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(folder / "site"), str(copy)], check=True)
    return folder


def path_with(site: Path) -> dict[str, str]:
    """The environment of a process that has the plugin."""
    return {"PYTHONPATH": ":".join([str(site / "site"), *filter(None, sys.path)])}


def test_the_strategy_has_thirty_lines() -> None:
    text = (EXAMPLE / "src" / "autotune_hill_climb" / "strategy.py").read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 30


def test_it_is_listed(site: Path, run: Run) -> None:
    listed = run(["-m", "autotune", "plugins"], path_with(site))
    assert any(line.split()[:2] == ["strategy", "hill-climb"] for line in listed.splitlines())


def test_it_tunes_by_name(site: Path, run: Run) -> None:
    command = ["-m", "autotune", "tune", "gemm", "--shape", "m=64,n=64,k=64", "--trials", "40"]
    command += ["--strategy", "hill-climb", "--strategy-option", "parents=8", "--quiet"]
    assert "40 ok" in run([*command, "--backend", BACKEND], path_with(site))


def test_it_passes_the_suite(site: Path, run: Run) -> None:
    tests = site / "source" / "tests"
    command = ["-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(tests), str(tests)]
    output = run([*command, "-p", "no:cacheprovider"], path_with(site))
    assert " passed" in output
