"""Runs the examples of docs/gallery: two without a compiler, nearly all with fewer trials, slowly,
and all as they are, before a release."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from command_lines import IN_PROCESS

import autotune

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
LONG = {"compare_strategies"}
EXAMPLES = sorted(GALLERY.glob("*.py"))
NEEDS = {"export_mlir": ("mlir",), "own_primfunc": ("tvm",), "records_pandas": ("pandas",)}
REFERENCE = "autotune.testing.reference_backend:ReferenceBackend"


def case(example: Path, *others: str) -> object:
    needed = (*NEEDS.get(example.stem, ()), *others)
    return pytest.param(example, id=example.stem, marks=pytest.mark.needs(*needed))


@pytest.mark.parametrize(
    "example", [case(GALLERY / f"{name}.py") for name in ("own_strategy", "records_pandas")]
)
def test_on_the_reference_backend(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(GALLERY)
    monkeypatch.setattr(autotune, "tune", _on_reference(autotune.tune))
    runpy.run_path(str(example), run_name="__main__")


def _on_reference(tune: Callable[..., object]) -> Callable[..., object]:
    def called(
        program: object, parts: Mapping[str, str] = MappingProxyType({}), **settings: object
    ) -> object:
        # Candidates are neither built nor run: no example shows how they are measured.
        chosen = {**parts, "measurer": IN_PROCESS[1]}
        return tune(program, backend=REFERENCE, parts=chosen, **settings)

    return called


FEWER = {"trials=16": "trials=8", "trials=32": "trials=12", "trials=48": "trials=24"}
"""Enough for a round of each task, and for one that is interrupted in its second round."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [case(path, "tvm") for path in EXAMPLES if path.stem not in LONG]
)
def test_with_fewer_trials(example: Path, tmp_path: Path, run_code: Callable[[str], str]) -> None:
    text, count = re.subn(r"trials=\d+", lambda found: FEWER[found[0]], example.read_text())
    assert count
    (tmp_path / example.name).write_text(text)
    assert run_code(f"import runpy; runpy.run_path({example.name!r}, run_name='__main__')")


@pytest.mark.long
@pytest.mark.parametrize("example", [case(path, "tvm") for path in EXAMPLES])
def test_as_it_is(example: Path, run: Callable[..., str]) -> None:
    assert run([str(example)])


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_listed(example: Path) -> None:
    assert example.name in (GALLERY.parent / "gallery.md").read_text(encoding="utf-8")
