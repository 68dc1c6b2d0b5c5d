"""Runs the examples of the documentation, smaller: what they show is that they work."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def smaller(example: str) -> str:
    """The example with small shapes and few trials."""
    example = re.sub(r"\b(512|256|128)\b", "64", example)
    return re.sub(r"(trials[= ])64", r"\g<1>8", example)


def pages_with(language: str) -> list[Path]:
    """Pages that have examples."""
    return [page for page in PAGES if blocks(page, language)]


_TORCH = re.compile(r"\btorch\b|\bautotune_(felix|pruner)\b")


def compilers_of(example: str) -> set[str]:
    """Compilers that an example tunes with."""
    if not re.search(r"\btune", example) or "reference_backend" in example:
        return set()
    named = {name for name in ("mlir", "tvm") if re.search(rf"\b{name}\b", example)}
    return named or {"tvm"}


def python_cases() -> Iterator[object]:
    """The examples of each page: those that need no torch, and all where one does."""
    for page in pages_with("python"):
        examples = blocks(page, "python")
        plain = [example for example in examples if not _TORCH.search(example)]
        if plain:
            yield case(page.name, plain, *compilers_of("\n".join(plain)))
        if len(plain) < len(examples):
            text = "\n".join(examples)
            others = [name for name in ("felix", "pruner") if f"autotune_{name}" in text]
            needed = {"torch", *others, *compilers_of(text)}
            yield case(f"{page.name}-torch", examples, *needed)


def case(name: str, examples: Sequence[str], *needed: str) -> object:
    marks = pytest.mark.needs(*sorted(needed))
    return pytest.param("\n".join(examples), id=name, marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize("code", list(python_cases()))
def test_python(code: str, run_code: Callable[[str], str]) -> None:
    # In one process, as somebody would who follows the page.
    run_code(smaller(code))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        case(page.name, found, *compilers_of("tune " + "\n".join(found)))
        for page in pages_with("console")
        for found in [blocks(page, "console")]
    ],
)
def test_commands(text: str, run_command: Callable[[Sequence[str]], str]) -> None:
    lines = smaller(text).splitlines()
    commands = [shlex.split(line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]
    assert commands and all(command[0] == "autotune" for command in commands)
    for _, *arguments in commands:
        if arguments != ["doctor"]:  # its verdict depends on the machine
            run_command(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith(("http://", "https://", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), link
