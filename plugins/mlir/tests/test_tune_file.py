"""``autotune tune --mlir FILE``, and looking up what it found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from autotune_mlir import bindings
from command_lines import Command
from mlir_programs import function
from other_names import check_answers_from_records
from renamed_workloads import respelled

import autotune
from autotune.backends import ProgramFile
from autotune.ir.workloads import dense

ACCUMULATE = """
func.func @attend(%q: tensor<32x16xf32>, %k: tensor<16x32xf32>, %c: tensor<32x32xf32>)
    -> tensor<32x32xf32> {
  %0 = linalg.matmul ins(%q, %k : tensor<32x16xf32>, tensor<16x32xf32>)
    outs(%c : tensor<32x32xf32>) -> tensor<32x32xf32>
  return %0 : tensor<32x32xf32>
}
"""
OTHER = ACCUMULATE.replace("@attend", "@score").replace("16", "8")
SMALL = ("--trials", "2", "--round-size", "2", "--threads", "1", "--cost-model", "random")


def test_a_file_is_tuned_and_found_again(command: Command, tmp_path: Path) -> None:
    (tmp_path / "a.mlir").write_text(ACCUMULATE + OTHER)
    choice = ("--mlir", "a.mlir", "--function", "attend")
    first = command("tune", *choice, *SMALL, "--json", "1.json")
    assert first.status == 0, first.stderr
    report = json.loads((tmp_path / "1.json").read_text())
    assert report["task"]["name"] == "attend"
    assert report["best"]["latency"] > 0
    assert "naive loop nest (mlir)" in first.stdout
    again = command("tune", *choice, *SMALL, "--backend", "mlir", "--json", "2.json")
    assert "answered from records" in again.stdout
    # The same program is found by its file, by its name, and not by another's.
    for query in (choice, ("attend",)):
        listed = command("best", *query, "--json", "-")
        (record,) = json.loads(listed.stdout)
        assert record["workload"]["name"] == "attend"
    assert command("best", "--mlir", "a.mlir", "--function", "score").status == 1
    shown = command("show", *choice, "--part", "script")
    assert "llvm.func @run(%arrays: !llvm.ptr) -> i32" in shown.stdout


def test_sketches_of_a_file_are_shown(
    read_in_process: None, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "a.mlir").write_text(ACCUMULATE)
    done = command("show", "--mlir", "a.mlir", "--sketch", "direct")
    assert done.status == 0, done.stderr
    assert "matmul.d0" in done.stdout


@pytest.mark.slow
def test_a_file_is_tuned_from_python(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_text(ACCUMULATE)
    result = autotune.tune(
        ProgramFile(path, "mlir"),
        backend="mlir",
        trials=2,
        threads=1,
        parts={"cost_model": "random"},
        database=tmp_path / "records.db",
    )
    assert result.best is not None and result.workload.name == "attend"


ERRORS = {
    "syntax": (
        function("%0 = linalg.matmul\nreturn %0"),
        (),
        r"not MLIR: a\.mlir:\d+:\d+: ",
    ),
    "function": (ACCUMULATE, ("--function", "atend"), r"'atend'.*Did you mean 'attend'"),
    "twice": (ACCUMULATE, ("gemm",), r"--mlir and WORKLOAD exclude each other"),
    "shape": (ACCUMULATE, ("--shape", "m=4"), r"--mlir and --shape exclude each other"),
    "backend": (
        ACCUMULATE,
        ("--backend", "tvm"),
        r"backend 'tvm' does not import a .*ProgramFile; pass backend='mlir'",
    ),
    "no file": (None, (), r"cannot read 'a\.mlir': No such file or directory"),
}


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        pytest.param(*case, id=name, marks=pytest.mark.needs("tvm") if name == "backend" else ())
        for name, case in ERRORS.items()
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    text: str | None,
    more: tuple[str, ...],
    message: str,
    read_in_process: None,
    command: Command,
    tmp_path: Path,
) -> None:
    if text is not None:
        (tmp_path / "a.mlir").write_text(text)
    before = set(tmp_path.iterdir())
    done = command("tune", "--mlir", "a.mlir", *more, *SMALL)
    assert (done.status, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("autotune: error: ")
    assert re.search(message, line), line
    assert set(tmp_path.iterdir()) == before


def test_without_bindings_it_says_what_to_install(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.mlir").write_text(ACCUMULATE)
    monkeypatch.setattr(bindings.util, "find_spec", lambda name: None)
    bindings.load.cache_clear()
    done = command("tune", "--mlir", "a.mlir", *SMALL)
    bindings.load.cache_clear()
    assert done.status == 2
    assert "pip install torch-mlir==20261001" in done.stderr


@pytest.mark.slow
def test_a_record_is_applied_under_other_names(tmp_path: Path) -> None:
    workload = dense(m=16, n=32, k=24)
    other = respelled(workload, 7)
    check_answers_from_records(workload, other, other, tmp_path, backend="mlir")
