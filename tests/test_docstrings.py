"""Docstrings begin with a verb or a noun phrase."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLUGINS = sorted(it.parent.name for it in ROOT.glob("plugins/*/pyproject.toml"))
ROOMS = (
    *("src/autotune", "tests", "benchmarks", "docs", "research", "scripts"),
    *(f"plugins/{name}/src" for name in PLUGINS),
    *(f"plugins/{name}/tests" for name in PLUGINS if name != "tvm"),
    *(f"plugins/tvm/tests/{name}" for name in ("networks", "passes", "rpc", "support", "trace")),
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
