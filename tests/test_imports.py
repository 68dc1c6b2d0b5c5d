"""Tests of who may import whom, read off the source."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parent.parent
CORE = ROOT / "src" / "autotune"

# The rooms along the data flow: a module imports from its own room and from earlier ones only.
ROOMS = (
    "imports",
    "errors",
    "ir",
    "targets",
    "process",
    "plugins",
    "sketches",
    "nest",
    "lower",
    "spaces",
    "store",
    "models",
    "backends",
    "search",
    "runtime",
    "measure",
    "tuning",
    "external",
    "report",
    "networks",
    "evaluation",
    "cli",
    "testing",
    "__main__",
)

# Modules that import a package which the rest of the core does without.
ASKED_FOR = (
    ("nest/relaxed/torch_function.py", "torch"),
    ("measure/torch_routines.py", "torch"),
    ("networks/bench/torch_runtimes.py", "torch"),
    ("networks/torch_backend.py", "torch"),
    *(
        (f"networks/readers/torch/{module}.py", "torch")
        for module in (
            "program",
            "reader",
            "source",
        )
    ),
)

RANK = {room: rank for rank, room in enumerate(ROOMS)}
PLUGIN_SOURCES = sorted(
    path
    for pattern in ("plugins/*/src", "docs/examples/*/src", "tests/third_party/*/src")
    for folder in ROOT.glob(pattern)
    for path in folder.rglob("*.py")
)


@attrs.frozen
class Import:
    """An imported name: ``from module import name``, or ``import module`` without a name."""

    module: str
    name: str
    alias: str
    line: int

    @property
    def path(self) -> list[str]:
        return [*self.module.split("."), *([self.name] if self.name else [])]


@functools.cache
def read(path: Path) -> tuple[tuple[Import, ...], tuple[Import, ...]]:
    """A file's imports, and those that it asks for by name; parsed once for several tests."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    return tuple(imports(nodes)), tuple(asked_for(nodes))


def imports_in(path: Path) -> tuple[Import, ...]:
    """All of a file's imports."""
    return read(path)[0]


def imports(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    """Every import, also those inside functions and those for type checkers only."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                yield Import(item.name, "", item.asname or item.name.split(".")[0], node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used"
            for item in node.names:
                yield Import(node.module or "", item.name, item.asname or item.name, node.lineno)


def asked_for(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    """Every module of the core whose name is given to ``import_module``."""
    for node in nodes:
        called = getattr(node, "func", None)
        name = getattr(called, "attr", getattr(called, "id", ""))
        if isinstance(node, ast.Call) and name == "import_module":
            argument = node.args[0]
            text = argument.values[0] if isinstance(argument, ast.JoinedStr) else argument
            if isinstance(text, ast.Constant) and str(text.value).startswith("autotune."):
                yield Import(str(text.value).rstrip("."), "", "", node.lineno)


def module_of(path: Path) -> str:
    """Dotted name below ``autotune``; a package has the name of its folder."""
    parts = path.relative_to(CORE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(CORE.rglob("*.py"))}


def imported_modules(path: Path) -> Iterator[tuple[str, Import]]:
    """Every module of the core that a file imports, at run time or for types."""
    for found in imports_in(path):
        if found.path[0] != "autotune" or found.path[1:2] == ["_native"]:
            continue
        whole, module = ".".join(found.path[1:]), ".".join(found.module.split(".")[1:])
        yield (whole if whole in MODULES else module), found


def room_of(module: str) -> str:
    return module.split(".")[0]


def test_every_module_has_a_room() -> None:
    assert {room_of(module) for module in MODULES} - {""} == set(ROOMS)


def test_the_rooms_are_those_of_the_map() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.split("| room | content |")[1].split("\n\n")[0]
    rooms = re.findall(r"^\| `(\w+)(?:\.py)?` \|", table, re.MULTILINE)
    assert rooms == [room for room in ROOMS if room != "__main__"]


def test_imports_go_down_the_rooms_only() -> None:
    wrong = []
    for module, path in MODULES.items():
        if module == "":
            continue  # names are resolved there on first use
        for target, found in imported_modules(path):
            if target == "" or RANK[room_of(target)] > RANK[room_of(module)]:
                wrong.append(f"{path.relative_to(ROOT)}:{found.line}: {module} imports {target}")
        for found in read(path)[1]:
            if RANK[found.path[1]] > RANK[room_of(module)]:
                wrong.append(
                    f"{path.relative_to(ROOT)}:{found.line}: {module} asks for {found.module}"
                )
    assert not wrong, "\n".join(wrong)


def test_no_two_modules_import_each_other() -> None:
    """Within a room the order is free, but there is one: its packages re-export, nothing more."""
    graph = {
        module: {target for target, _ in imported_modules(path)} - {module}
        for module, path in MODULES.items()
        if path.name != "__init__.py"
    }
    settled = set(MODULES) - set(graph)
    while len(settled) < len(MODULES):
        free = {m for m, needs in graph.items() if m not in settled and needs <= settled}
        assert free, f"a circle of imports among {sorted(set(graph) - settled)}"
        settled |= free


def test_no_private_name_crosses_a_room() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{found.line}: {'.'.join(found.path)}"
        for module, path in MODULES.items()
        for target, found in imported_modules(path)
        if any(map(private, found.path)) and room_of(target) != room_of(module)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("banned", ["tvm", "tvm_ffi", "torch_mlir", "mlir", "torch", "pickle"])
def test_the_core_imports_no_compiler(banned: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{item.line}"
        for path in MODULES.values()
        for item in imports_in(path)
        if item.path[0] == banned and (str(path.relative_to(CORE)), banned) not in ASKED_FOR
    ]
    assert not found


@pytest.mark.parametrize(("module", "package"), ASKED_FOR)
def test_what_has_to_be_asked_for_is_imported_by_nobody(module: str, package: str) -> None:
    """Else the core would need a package that it does without."""
    assert any(item.path[0] == package for item in imports_in(CORE / module))
    name = "autotune." + module.removesuffix(".py").replace("/", ".")
    for path in MODULES.values():
        if (str(path.relative_to(CORE)), package) in ASKED_FOR:
            continue  # imports the package itself
        for item in imports_in(path):
            assert name not in (item.module, ".".join(item.path)), path


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


@pytest.mark.parametrize("path", PLUGIN_SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_plugins_use_public_names_only(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = [item for item in imports(ast.walk(tree)) if item.path[0] == "autotune"]
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
        "autotune_hill_climb",
    }
