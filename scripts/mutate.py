"""Makes mistakes at places chosen by chance, and says which of them the tests of the room miss.

Usage: python scripts/mutate.py [COUNT [SEED]]    (with a Python that has the projects and pytest)

The mistakes are made in a copy of the installed package. What ``make test`` runs of the mutated
room's tests has to fail: first the file that mirrors the module, then the others.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import autotune

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("tuning", "measure", "store", "nest")
OPPOSITES: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def places(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """Where a mistake can be made: the line, and the node that holds the operator."""
    for node in ast.walk(tree):
        operators = node.ops if isinstance(node, ast.Compare) else [getattr(node, "op", None)]
        if type(operators[0]) in OPPOSITES and isinstance(node, ast.expr):
            yield node.lineno, node


def mistake(node: ast.AST) -> None:
    """Turns the node's first operator into its opposite."""
    if isinstance(node, ast.Compare):
        node.ops[0] = OPPOSITES[type(node.ops[0])]()  # type: ignore[assignment]
    else:
        node.op = OPPOSITES[type(node.op)]()  # type: ignore[attr-defined]


def first_failure(packages: Path, tests: Iterable[str]) -> str | None:
    """The first test that fails or does not end with these packages."""
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not long")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=1200,
        )
    except subprocess.TimeoutExpired:
        return next(iter(tests))
    failed = re.search(r"^(?:FAILED|ERROR) ([^\[\s]+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else None


def catcher(room: str, module: Path, packages: Path) -> str | None:
    """The first of the room's tests that fails."""
    mirrors = [str(path) for path in (ROOT / "tests" / room).rglob(f"test_{module.stem}.py")]
    found = first_failure(packages, mirrors) if mirrors else None
    return found or first_failure(packages, [f"tests/{room}"])


def main(count: int = 24, seed: int = 0) -> int:
    """Makes the mistakes one after another; how many were missed."""
    rng, missed = random.Random(seed), 0
    installed = Path(autotune.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder)
        shutil.copytree(installed, packages / "autotune")
        for number in range(count):
            room = ROOMS[number % len(ROOMS)]
            modules = sorted((packages / "autotune" / room).rglob("*.py"))
            trees = {module: ast.parse(module.read_text(encoding="utf-8")) for module in modules}
            every = [(module, *place) for module in modules for place in places(trees[module])]
            module, line, node = rng.choice(every)
            before, original = ast.unparse(node), module.read_text(encoding="utf-8")
            mistake(node)
            module.write_text(ast.unparse(trees[module]), encoding="utf-8")
            caught = catcher(room, module, packages)
            module.write_text(original, encoding="utf-8")
            if caught and first_failure(packages, [caught]):
                raise SystemExit(f"error: {caught} fails without a mistake")
            missed += caught is None
            print(f"{module.relative_to(packages)}:{line}  {before}  ->  {ast.unparse(node)}")
            print(f"    caught by {caught}" if caught else "    MISSED")
    print(f"{count - missed} of {count} mistakes were caught")
    return missed


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
