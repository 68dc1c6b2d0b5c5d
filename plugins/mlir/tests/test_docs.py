"""Claims of docs/mlir.md, compared with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from autotune_mlir import bindings, compiler, openmp
from autotune_mlir.backend import LIMITS, MLIRBackend

from autotune.sketches import STEP_TYPES

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.fixture(scope="module")
def page() -> str:
    return (DOCS / "mlir.md").read_text(encoding="utf-8")


def test_bindings(page: str) -> None:
    rows = re.findall(r"^\| (`.*) \| `(\w+)` \| (\d+)", page, re.MULTILINE)
    assert [package for _, package, _ in rows] == list(bindings.DISTRIBUTIONS)
    for cell, package, release in rows:
        known = bindings.DISTRIBUTIONS[package]
        assert re.findall(r"`([^`]+)`", cell) == known.install.split()
        if known is bindings.chosen():
            assert compiler.llvm_version().startswith(f"{release}.")
    assert "(default)" in rows[0][0]


def test_settings(page: str) -> None:
    for name in (bindings.VARIABLE, openmp.VARIABLE, compiler.OPT_LEVEL_VARIABLE):
        assert f"`{name}" in page
    for command in re.findall(r"`(\w+ install [\w-]+)`", openmp.INSTALL):
        assert f"`{command}`" in page


def test_export_formats(page: str) -> None:
    used = re.findall(r"--format ([\w-]+)", page)
    assert sorted(used) == sorted(MLIRBackend().export_formats())


def test_what_is_not_replayed_has_a_reason(page: str) -> None:
    """Together with the table of steps: every step is replayed, or the page says why not."""
    _, _, table = page.partition("| not replayed | reason |\n|---|---|\n")
    rows = [row.strip("| ").split(" | ") for row in table.partition("\n\n")[0].splitlines()]
    listed = [name for names, _ in rows for name in re.findall(r"`([^`]+)`", names)]
    assert sorted(listed) == sorted(set(STEP_TYPES) - LIMITS.steps)
    assert all(len(reason) > 20 for _, reason in rows)


def test_limits() -> None:
    text = (DOCS / "search-space.md").read_text(encoding="utf-8")
    assert f"MLIR: at most {LIMITS.unrolled_statements};" in text
    assert f"MLIR: at most {LIMITS.stack_bytes // 1024} KiB;" in text
