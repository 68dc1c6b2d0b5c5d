"""Runs the examples of docs/gallery: two without a compiler, and all as they are, slowly."""

from __future__ import annotations

import importlib.util
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

import autotune

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"
LONG = {"compare_strategies"}
EXAMPLES = sorted(GALLERY.glob("*.py"))
NEEDS = {"export_mlir": "torch_mlir", "own_primfunc": "tvm", "records_pandas": "pandas"}
REFERENCE = "autotune.testing.reference_backend:ReferenceBackend"


def skip_without(example: Path, *others: str) -> None:
    for module in (NEEDS.get(example.stem, "autotune"), *others):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize("name", ["own_strategy", "records_pandas"])
def test_on_the_reference_backend(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = GALLERY / f"{name}.py"
    skip_without(example)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(GALLERY)
    monkeypatch.setattr(autotune, "tune", _on_reference(autotune.tune))
    runpy.run_path(str(example), run_name="__main__")


def _on_reference(tune: Callable[..., object]) -> Callable[..., object]:
    return lambda program, **settings: tune(program, backend=REFERENCE, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, marks=pytest.mark.long if path.stem in LONG else (), id=path.stem)
        for path in EXAMPLES
    ],
)
def test_as_it_is(example: Path, run: Callable[..., str]) -> None:
    skip_without(example, "tvm")
    assert run([str(example)])
    assert example.name in (GALLERY.parent / "gallery.md").read_text(encoding="utf-8")
