"""Runs the examples of the documentation, smaller: what they show is that they work."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Callable, Sequence
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


def skip_without_compiler(example: str) -> None:
    """Skips where an example needs a compiler that this environment does not have."""
    if not re.search(r"\btune", example) or "reference_backend" in example:
        return
    mlir = re.search(r"\bmlir\b", example) is not None
    tvm = not mlir or re.search(r"\btvm\b", example) is not None
    for needed, packages in ((mlir, ("torch_mlir", "mlir")), (tvm, ("tvm",))):
        if needed and not any(map(importlib.util.find_spec, packages)):
            pytest.skip(f"{packages[0]} is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"), ids=lambda page: page.name)
def test_python(page: Path, run_code: Callable[[str], str]) -> None:
    examples = blocks(page, "python")
    for example in examples:
        skip_without_compiler(example)
    if importlib.util.find_spec("torch") is None:
        # The environment with torch runs them all.
        needs_torch = re.compile(r"\btorch\b|\bautotune_(felix|pruner)\b")
        examples = [example for example in examples if not needs_torch.search(example)]
    # In one process, as somebody would who follows the page.
    run_code(smaller("\n".join(examples)))


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("console"), ids=lambda page: page.name)
def test_commands(page: Path, run_command: Callable[[Sequence[str]], str]) -> None:
    text = "".join(blocks(page, "console"))
    skip_without_compiler(f"tune {text}")
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
