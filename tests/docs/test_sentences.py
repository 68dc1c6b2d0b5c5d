"""Sentences of pages: names exist, and commands that install something can be given."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "benchmarks/*.md", "research/*.md", "plugins/*/README.md")
    for path in ROOT.glob(pattern)
)
SOURCES = sorted(
    path
    for pattern in ("src", "plugins/*/src", "benchmarks", "research", "scripts")
    for folder in ROOT.glob(pattern)
    for path in folder.rglob("*.py")
)
NAME = re.compile(r"\bautotune\.([a-z_]\w*(?:\.\w+)+)")
LOGGERS = {
    found[1]
    for path in SOURCES
    for found in re.finditer(r"getLogger\(\"([\w.]+)", path.read_text(encoding="utf-8"))
}
# One that an index would be asked for, where folders begin with a dot.
ASKED = re.compile(r"pip install [^\n`]*?(?<![\w./])['\"]?((?:tensor-autotune|autotune-\w+)\S*)")


def told(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=told)
def test_names_of_the_package_exist(path: Path) -> None:
    missing = [name for name in names_of(path) if not exists(name)]
    assert not missing


def names_of(path: Path) -> Iterator[str]:
    """Dotted names below modules of the package; others are fields of files, and files."""
    for found in NAME.finditer(path.read_text(encoding="utf-8")):
        room = found[1].partition(".")[0]
        if (ROOT / "src" / "autotune" / room).is_dir():
            yield f"autotune.{found[1]}"


def exists(name: str) -> bool:
    """Tell whether a name is a module, or what a module or a class has; or that of a logger."""
    module, attributes = name, list[str]()
    while True:
        try:
            found: object = importlib.import_module(module)
            break
        except ModuleNotFoundError as error:
            if error.name is not None and not error.name.startswith("autotune"):
                return is_written(name)
            module, _, last = module.rpartition(".")
            attributes.insert(0, last)
    for attribute in attributes:
        found = getattr(found, attribute, None)
    return found is not None or name in LOGGERS


def is_written(name: str) -> bool:
    """Tell whether a module that needs a package which is not here defines a name."""
    file, left = ROOT / "src", name.split(".")
    while left and not file.with_suffix(".py").is_file():
        file /= left.pop(0)
    text = file.with_suffix(".py").read_text(encoding="utf-8")
    return all(re.search(rf"^(def|class) {it}\b", text, re.MULTILINE) for it in left)


def test_no_index_is_asked_for_what_is_in_none() -> None:
    wrong = [
        f"{told(path)}: {found[0]}"
        for path in (*PAGES, *SOURCES)
        for found in ASKED.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install tensor-autotune", True),
        ("pip install 'tensor-autotune[report]'", True),
        ("pip install torch autotune-pruner", True),
        ("pip install . ./plugins/pruner", False),
        ("pip install . './plugins/tvm[cuda]'", False),
        ("pip install kernel-tuner==1.5.0", False),
        ("`pip install .` for autotune-pruner", False),
    ],
)
def test_what_would_be_asked_of_an_index(text: str, wrong: bool) -> None:
    assert bool(ASKED.search(text)) == wrong
