"""Who may import whom, read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "src" / "autotune"

# A package may import from its own row and from earlier ones, never from a later one.
ORDER = (
    ("errors",),
    # Small helpers that know nothing but errors.
    ("interrupts", "isolation", "options", "stopwatch"),
    ("expressions",),
    ("workloads", "targets"),
    ("intrinsics",),
    ("sketches",),
    ("nest",),
    ("relaxed", "pam"),
    ("spaces",),
    ("constraints",),
    ("records",),
    ("pruning_models", "cost_models", "strategies", "task_schedulers", "backends", "observers"),
    ("measure", "database", "exchange"),
    # Also every module directly in `autotune` that is not named here.
    ("events", "guarded_models", "hooks", "plugins", "tuner"),
    ("dataset", "mining"),
    ("cli", "report", "testing", "__main__"),
)
# A worker process finds its backend and observers by name, as the host does. Hooks and plugins
# know nothing but errors.
EXCEPTIONS = {
    ("measure", "hooks"),
    ("measure", "plugins"),
    ("observers", "hooks"),
    ("observers", "plugins"),
}

# Modules that import a package which the rest of the core does without.
ASKED_FOR = (("relaxed/torch_function.py", "torch"), ("constraints/cpsat.py", "ortools"))

RANK = {name: rank for rank, row in enumerate(ORDER) for name in row}
PLUGIN_SOURCES = sorted(
    path
    for folder in (*ROOT.glob("plugins/*/src"), *ROOT.glob("tests/third_party/*/src"))
    for path in folder.rglob("*.py")
)


@attrs.frozen
class Import:
    """One imported name: ``from module import name``, or ``import module`` without a name."""

    module: str
    name: str
    alias: str
    line: int

    @property
    def path(self) -> list[str]:
        return [*self.module.split("."), *([self.name] if self.name else [])]


def imports(tree: ast.AST) -> Iterator[Import]:
    """Every import, also those inside functions and those for type checkers only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                yield Import(item.name, "", item.asname or item.name.split(".")[0], node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            for item in node.names:
                yield Import(node.module or "", item.name, item.asname or item.name, node.lineno)


def parts_of_core() -> set[str]:
    """Packages and modules directly in ``autotune``."""
    modules = {path.stem for path in CORE.glob("*.py")}
    packages = {path.parent.name for path in CORE.glob("*/__init__.py")}
    return (modules | packages | {"_native"}) - {"__init__"}


def rank(part: str) -> int:
    is_package = (CORE / part).is_dir()
    assert part in RANK or not is_package, f"package {part!r} has no place in the order"
    return RANK.get(part, RANK["tuner"])


def edges() -> Iterator[tuple[str, str, str]]:
    """Importing part, imported part, and where."""
    known = parts_of_core()
    for path in sorted(CORE.rglob("*.py")):
        part = path.relative_to(CORE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue  # names are resolved there on first use
        for found in imports(ast.parse(path.read_text())):
            if found.path[0] != "autotune":
                continue
            target = found.path[1] if len(found.path) > 1 else "the package itself"
            if target not in known:
                target = "the package itself"
            if target not in (part, "_native"):
                yield part, target, f"{path.relative_to(ROOT)}:{found.line}"


def test_imports_go_one_way() -> None:
    wrong = []
    for part, target, where in edges():
        if (part, target) in EXCEPTIONS:
            continue
        last = len(ORDER) - 1
        above = last if target == "the package itself" else rank(target)
        if above > rank(part):
            wrong.append(f"{where}: {part} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_exceptions_are_needed() -> None:
    assert {(part, target) for part, target, _ in edges()} >= EXCEPTIONS


def test_every_package_has_a_place() -> None:
    packages = {path.parent.name for path in CORE.glob("*/__init__.py")}
    assert packages <= set(RANK)
    assert set(RANK) - {"__main__"} <= parts_of_core()


def test_no_two_parts_import_each_other() -> None:
    """Within one row the order is free, but there is one."""
    graph: dict[str, set[str]] = {part: set() for part in parts_of_core()}
    for part, target, _ in edges():
        graph[part].add(target)
    settled: set[str] = {"the package itself"}
    while len(settled) < len(graph) + 1:
        free = {part for part, needs in graph.items() if part not in settled and needs <= settled}
        assert free, f"a circle of imports among {sorted(set(graph) - settled)}"
        settled |= free


@pytest.mark.parametrize("banned", ["tvm", "tvm_ffi", "torch_mlir", "mlir", "torch", "pickle"])
def test_the_core_imports_no_compiler(banned: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{item.line}"
        for path in sorted(CORE.rglob("*.py"))
        for item in imports(ast.parse(path.read_text()))
        if item.path[0] == banned and (str(path.relative_to(CORE)), banned) not in ASKED_FOR
    ]
    assert not found


@pytest.mark.parametrize(("module", "package"), ASKED_FOR)
def test_what_has_to_be_asked_for_is_imported_by_nobody(module: str, package: str) -> None:
    """Else the core would need a package that it does without."""
    assert any(item.path[0] == package for item in imports(ast.parse((CORE / module).read_text())))
    name = "autotune." + module.removesuffix(".py").replace("/", ".")
    for path in CORE.rglob("*.py"):
        for item in imports(ast.parse(path.read_text())):
            assert name not in (item.module, ".".join(item.path)), path


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


@pytest.mark.parametrize("path", PLUGIN_SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_plugins_use_public_names_only(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = [item for item in imports(tree) if item.path[0] == "autotune"]
    wrong = [f"line {item.line}: {'.'.join(item.path)}" for item in found]
    wrong = [text for text, item in zip(wrong, found, strict=True) if any(map(private, item.path))]
    names = {item.alias for item in found}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            base = node.value
            while isinstance(base, ast.Attribute):
                base = base.value
            if isinstance(base, ast.Name) and base.id in names:
                wrong.append(f"line {node.lineno}: {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)


def test_there_are_plugins_to_check() -> None:
    assert {path.parent.name for path in PLUGIN_SOURCES} >= {
        "autotune_tvm",
        "autotune_mlir",
        "autotune_example",
    }
