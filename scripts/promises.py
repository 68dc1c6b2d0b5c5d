"""Writes the table of what is promised of faults, from the marks of the tests that show it.

Usage: python scripts/promises.py [--check]

A test has ``@pytest.mark.promise("the fault", "the promise")``. The table is in
``docs/reliability.md``; with ``--check`` nothing is written, and the status is 1 where it differs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- promises: begin -->\n", "<!-- promises: end -->\n"


def marks(path: Path) -> Iterator[tuple[str, str, str]]:
    """Fault, promise and name of every test of a file that is marked."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                fault, promise = (ast.literal_eval(argument) for argument in mark.args)
                yield fault, promise, f"{path.relative_to(ROOT)}::{node.name}"


def table() -> str:
    """The table, ordered by fault."""
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("plugins/*/tests/**/test_*.py")]
    found = sorted(mark for path in files for mark in marks(path))
    rows = [f"| {fault} | {promise} | `{test}` |\n" for fault, promise, test in found]
    return "".join(["| fault | promise | test |\n", "|---|---|---|\n", *rows])


def page() -> str:
    """The page with the table that the tests make."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{PAGE} has no place for the table")
    return before + begin + table() + end + after


def main() -> int:
    """Writes or checks the page."""
    new = page()
    if "--check" in sys.argv[1:]:
        return int(new != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
