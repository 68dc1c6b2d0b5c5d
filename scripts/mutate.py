"""Makes mistakes in the package, one after another, and says which of them the tests miss.

    python scripts/mutate.py [COUNT [SEED]] [--rooms ROOM,...]
    python scripts/mutate.py --every MODULE [--properties] [--missed N]

The mistakes are made in a copy of the installed package, with a Python that has the projects and
pytest. By default COUNT in each room are at places chosen by chance; with ``--every
search/schedulers/gradients.py`` they are all that can be made in that module. What ``make test``
runs of the mutated room's tests has to fail: first the file that mirrors the module, then the
others; with ``--properties``, only tests whose cases hypothesis draws.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import autotune

ROOT = Path(__file__).resolve().parent.parent
QUICK = "not slow and not long"
# hypothesis marks the tests that it draws cases for.
PROPERTIES = f"hypothesis and {QUICK}"
NOTHING_COLLECTED = 5
MOST_BYTES = 8 << 30
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
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
OTHER_ENDS = {"min": "max", "max": "min"}


def places(tree: ast.Module) -> Iterator[tuple[int, ast.expr]]:
    """Places of possible mistakes: the line, and the node that holds the operator or the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            known = type(node.ops[0]) in OPPOSITES
        elif isinstance(node, (ast.BinOp, ast.BoolOp)):
            known = type(node.op) in OPPOSITES
        else:
            named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            known = named and node.func.id in OTHER_ENDS
        if known:
            yield node.lineno, node


def mistake(node: ast.expr) -> None:
    """Turns the node's first operator, or the function that it calls, into the opposite."""
    if isinstance(node, ast.Compare):
        node.ops[0] = OPPOSITES[type(node.ops[0])]()
    elif isinstance(node, ast.Call):
        node.func.id = OTHER_ENDS[node.func.id]
    else:
        node.op = OPPOSITES[type(node.op)]()


def rooms() -> list[str]:
    """Packages of the package that have tests of their own."""
    folders = sorted((ROOT / "tests").iterdir())
    return [
        it.name for it in folders if (ROOT / "src/autotune" / it.name / "__init__.py").exists()
    ]


def by_chance(
    packages: Path, chosen: Sequence[str], count: int, seed: int
) -> Iterator[tuple[str, Path, int]]:
    """Some mistakes of each room: the room, the module, and the number of the place in it."""
    for room in chosen:
        rng = random.Random(seed)
        modules = sorted((packages / "autotune" / room).rglob("*.py"))
        found = [it for module in modules for it in numbered(module)]
        for _ in range(count):
            yield room, *rng.choice(found)


def numbered(module: Path) -> list[tuple[Path, int]]:
    """The places of a module, by number."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return [(module, number) for number, _ in enumerate(places(tree))]


def first_failure(packages: Path, tests: Sequence[str], chosen: str) -> str | None:
    """The first test that fails, or the first of all if they do not end, with these packages."""
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = ("-x", "-q", "-p", "no:cacheprovider", "-m", chosen)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--hypothesis-profile", "unshrunk", *options, *tests],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=1200,
            preexec_fn=limit_memory,
        )
    except subprocess.TimeoutExpired:
        return tests[0]
    failed = re.search(r"^(?:FAILED|ERROR) ([^\[\s]+)", done.stdout, re.MULTILINE)
    if failed is None and done.returncode not in (0, NOTHING_COLLECTED):
        return tests[0]
    return failed[1] if failed else None


def limit_memory() -> None:
    """Keep a loop that a mistake made endless from taking all memory of the machine."""
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))


def catcher(room: str, module: Path, packages: Path, chosen: str) -> str | None:
    """The first of the room's tests that fails."""
    mirrors = [str(path) for path in (ROOT / "tests" / room).rglob(f"test_{module.stem}.py")]
    found = first_failure(packages, mirrors, chosen) if mirrors else None
    return found or first_failure(packages, [f"tests/{room}"], chosen)


def read_rooms(text: str) -> list[str]:
    """Read ``--rooms``; a name that is none is refused."""
    chosen = text.split(",")
    if unknown := [it for it in chosen if it not in rooms()]:
        known = ", ".join(rooms())
        raise argparse.ArgumentTypeError(f"no room {unknown[0]!r} has tests; rooms: {known}")
    return chosen


def options_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=6, help="mistakes in each room")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="of their places")
    parser.add_argument("--rooms", type=read_rooms, default=rooms(), metavar="ROOM,...")
    parser.add_argument("--every", metavar="MODULE", help="make all mistakes in this module")
    parser.add_argument("--properties", action="store_true", help="only tests of drawn cases")
    parser.add_argument("--missed", type=int, default=0, help="how many may be missed")
    return parser.parse_args()


def main() -> int:
    """Makes the mistakes one after another; 1 if more were missed than may be."""
    options, made, missed, sound = options_of(), Counter[str](), Counter[str](), set[str]()
    chosen = PROPERTIES if options.properties else QUICK
    with tempfile.TemporaryDirectory() as folder:
        packages = Path(folder)
        shutil.copytree(Path(autotune.__file__).parent, packages / "autotune")
        if options.every:
            module = packages / "autotune" / options.every
            room = str(Path(options.every).parent)
            wanted: Iterable[tuple[str, Path, int]] = ((room, *it) for it in numbered(module))
        else:
            wanted = by_chance(packages, options.rooms, options.count, options.seed)
        for room, module, number in wanted:
            original = module.read_text(encoding="utf-8")
            tree = ast.parse(original)
            line, node = list(places(tree))[number]
            before = ast.unparse(node)
            mistake(node)
            module.write_text(ast.unparse(tree), encoding="utf-8")
            caught = catcher(room, module, packages, chosen)
            module.write_text(original, encoding="utf-8")
            if caught and caught not in sound and first_failure(packages, [caught], chosen):
                raise SystemExit(f"error: {caught} fails without a mistake")
            made[room] += 1
            missed[room] += caught is None
            sound |= {caught} if caught else set()
            print(f"{module.relative_to(packages)}:{line}  {before}  ->  {ast.unparse(node)}")
            print(f"    caught by {caught}" if caught else "    MISSED", flush=True)
    for room, count in made.items():
        print(f"{room:12} {count - missed[room]} of {count} mistakes were caught")
    return int(missed.total() > options.missed)


if __name__ == "__main__":
    sys.exit(main())
