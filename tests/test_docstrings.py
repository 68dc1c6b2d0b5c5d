"""Docstrings begin with a verb or a noun phrase."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLUGINS = sorted(it.parent.name for it in ROOT.glob("plugins/*/pyproject.toml"))
ROOMS = (
    *("src/autotune", "tests", "benchmarks", "docs", "research", "scripts"),
    *(f"plugins/{name}/{part}" for name in PLUGINS for part in ("src", "tests")),
)
NEITHER = re.compile(r"(How|One|Those|What|Where|Whether|Which|When|Who|Why|As)\b")


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_begin_with_a_verb_or_a_noun_phrase(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in files
        for text in docstrings(ast.parse(path.read_text(encoding="utf-8")))
        if NEITHER.match(text)
    ]
    assert files and not found


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of a module and its classes and functions, and strings behind assignments."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""
            for before, after in pairwise(node.body):
                match before, after:
                    case (
                        (ast.Assign() | ast.AnnAssign()),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        yield text
