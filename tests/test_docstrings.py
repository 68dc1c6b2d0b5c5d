"""Docstrings begin with a verb or a noun phrase."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = (
    "src/autotune",
    *(f"plugins/{it.parent.name}/src" for it in sorted(ROOT.glob("plugins/*/pyproject.toml"))),
    *("benchmarks", "docs", "research", "scripts", "tests/support"),
    *(f"tests/{name}" for name in ("benchmarks", "cli", "docs", "report", "research", "scripts")),
)
NEITHER = re.compile(r"(How|One|Those|What|Where|Whether)\b")


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_begin_with_a_verb_or_a_noun_phrase(room: str) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    files = sorted((ROOT / room).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, documented) and NEITHER.match(text := ast.get_docstring(node) or "")
    ]
    assert files and not found
