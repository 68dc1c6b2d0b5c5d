"""The plugins in docs/plugins.md: installed, listed, used, and run through their suites."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = sorted((DOCS / "examples").glob("autotune-*"))
BACKEND = "autotune.testing.reference_backend:ReferenceBackend"
PARTS = {
    "--strategy": "hill-climb",
    "--cost-model": "nearest",
    "--pruning-model": "least-traffic",
    "--task-scheduler": "slowest-first",
    "--space": "powers-of-two",
}

Run = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the examples."""
    folder = tmp_path_factory.mktemp("plugins")
    # Copies, because building leaves files behind.
    ignored = shutil.ignore_patterns("__pycache__")
    copies = [shutil.copytree(it, folder / "source" / it.name, ignore=ignored) for it in EXAMPLES]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(folder / "site"), *map(str, copies)], check=True)
    return folder


def path_with(site: Path) -> dict[str, str]:
    """The environment of a process that has the plugins."""
    return {"PYTHONPATH": ":".join([str(site / "site"), *filter(None, sys.path)])}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_forty_lines_and_is_shown(example: Path) -> None:
    modules = sorted((example / "src").rglob("*.py"))
    text = "".join(module.read_text(encoding="utf-8") for module in modules)
    assert 0 < sum(bool(line.strip()) for line in text.splitlines()) <= 40
    page = (DOCS / "plugins.md").read_text(encoding="utf-8")
    (part,) = (it for it in modules if it.name not in ("__init__.py", "plugin.py"))
    assert f"{{literalinclude}} {part.relative_to(DOCS)}\n" in page


def test_they_are_listed(site: Path, run: Run) -> None:
    listed = run(["-m", "autotune", "plugins"], path_with(site))
    found = {tuple(line.split()[:2]) for line in listed.splitlines()}
    kinds = ("strategy", "cost_model", "pruning_model", "task_scheduler", "search_space")
    assert found >= set(zip(kinds, PARTS.values(), strict=True))


def test_they_tune_by_name(site: Path, run: Run) -> None:
    command = ["-m", "autotune", "tune", "gemm", "--shape", "m=16,n=16,k=16", "--trials", "12"]
    command += ["--strategy-option", "parents=8", "--quiet", "--backend", BACKEND]
    command += [word for named in PARTS.items() for word in named]
    assert "trials: 12" in run(command, path_with(site))


def test_they_pass_their_suites(site: Path, run: Run) -> None:
    tests = sorted((site / "source").glob("*/tests"))
    assert len(tests) == len(PARTS)
    command = ["-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(site / "source")]
    output = run([*command, "-p", "no:cacheprovider", *map(str, tests)], path_with(site))
    assert " passed" in output
