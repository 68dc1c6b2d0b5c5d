"""The examples of docs/examples/external, with few trials and without a compiler of tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.cli.app import run
from autotune.external import read_spec

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples" / "external"


def tune(spec: str, folder: Path, *arguments: str) -> str:
    usual = ("--strategy", "random", "--threads", "1", "--quiet")
    files = ("--database", str(folder / "a.db"), "--json", str(folder / "out.json"))
    assert run(("tune-external", str(EXAMPLES / spec), *usual, *files, *arguments)) == 0
    return (folder / "out.json").read_text()


def test_flags_of_a_c_program(tmp_path: Path) -> None:
    report = tune("flags.toml", tmp_path, "--trials", "3", "--set", "tile_i=4,256")
    assert '"ok": 3' in report and '"march": "' in report


@pytest.mark.slow
@pytest.mark.needs("numba")
def test_a_numba_kernel(tmp_path: Path) -> None:
    assert '"ok": 3' in tune("transpose.toml", tmp_path, "--trials", "3")


def test_every_spec_is_one() -> None:
    specs = {path.name: read_spec(path).space().count() for path in EXAMPLES.glob("*.toml")}
    assert specs == {"flags.toml": 2236, "transpose.toml": 142}
