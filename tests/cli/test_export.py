"""``autotune export``: which record goes into which file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS, TUNE, refused

from autotune.cli.app import run
from autotune.cli.export import FORMATS as CLI_FORMATS


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the records of a processor that has neither few registers nor many."""
    folder = tmp_path_factory.mktemp("tuned")
    files = ("--database", str(folder / "autotune.db"), "--target", "haswell")
    assert run((*TUNE, *IN_PROCESS, "--trials", "20", "--quiet", *files)) == 0
    return folder


def test_formats_are_those_that_are_made() -> None:
    from autotune.backends.native.exports import FORMATS

    assert tuple(FORMATS) == CLI_FORMATS


def test_the_fastest_record_becomes_c(tuned_cli: Any) -> None:
    best = json.loads(tuned_cli("best", "gemm", "--json", "-").stdout)[0]
    done = tuned_cli("export", "gemm.c", "gemm", "--json", "out.json", "--force")
    assert done.status == 0
    assert "written to gemm.c and gemm.h" in done.stdout
    report = json.loads(Path("out.json").read_text())
    assert report["files"] == ["gemm.c", "gemm.h"]
    assert report["function"] == "gemm"
    (variant,) = report["variants"]
    assert variant["record"] == f"{best['run_id']}/{best['trial']}"
    assert '#include "gemm.h"' in Path("gemm.c").read_text()


def test_files_are_named_by_their_path_and_functions_by_name(tuned_cli: Any) -> None:
    assert tuned_cli("export", "other.c", "gemm", "--name", "matmul").status == 0
    assert '#include "other.h"' in Path("other.c").read_text()
    assert "int matmul(" in Path("other.h").read_text()


def test_it_may_be_repeated_and_replaces_nothing_else(tuned_cli: Any) -> None:
    for _ in range(2):
        assert tuned_cli("export", "gemm.c", "gemm").status == 0
    for name in ("gemm.c", "gemm.h"):
        Path(name).write_text("mine\n")
    assert "exists and is no exported kernel" in refused(tuned_cli("export", "gemm.c", "gemm"))
    message = refused(tuned_cli("export", "gemm.c", "gemm", "--force"))
    assert "'gemm.h' exists and is no header of an export" in message
    assert Path("gemm.c").read_text() == Path("gemm.h").read_text() == "mine\n"


def test_several_targets_share_an_object(tuned_cli: Any) -> None:
    targets = ("--target", "x86-64-v4", "--target", "x86-64-v3")
    done = tuned_cli("export", "gemm.o", "gemm", "--format", "object", *targets, "--json", "-")
    assert done.status == 0
    names = [variant["target"] for variant in json.loads(done.stdout)["variants"]]
    assert names == ["x86-64-v4-4core", "x86-64-v3-4core"]


OBJECT = ("export", "gemm.o", "gemm", "--format", "object")
REFUSED = (
    ((*OBJECT, "--target", "riscv64-linux-gnu"), "target triple 'riscv64-linux-gnu'; supported:"),
    ((*OBJECT, "--target", "x86-64-v9"), "unknown target 'x86-64-v9'"),
    ((*OBJECT, "--target", "x86-64"), "has 16 vector registers of 16 bytes"),
    ((*OBJECT, "--target", "h100"), "target 'h100' is of kind 'cuda'"),
    ((*OBJECT, "--target", "haswell", "--target", "avx2"), "have the same extensions"),
    ((*OBJECT, "--name", "int"), "'int' is no name of a function in C"),
    (("export", "gemm.txt", "gemm"), "a file of format c ends in .c, and 'gemm.txt' does not"),
    (("export", "-", "gemm"), "it cannot go to standard output"),
    (("export", "gemm.c", "gemm", "--format", "obj"), "'obj' is not one of 'c', 'object', "),
    (("export", "autotune.db", "gemm"), "is the file that --database names"),
)


@pytest.mark.parametrize(("line", "said"), REFUSED, ids=[said[:24] for _, said in REFUSED])
def test_what_cannot_be_exported_is_one_line(
    tuned_cli: Any, line: tuple[str, ...], said: str
) -> None:
    before = tuned_cli.files()
    assert said in refused(tuned_cli(*line))
    assert tuned_cli.files() == before


def test_without_a_compiler_nothing_is_linked(
    tuned_cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    for name in ("shared", "tvm-ffi"):
        message = refused(tuned_cli("export", "gemm.so", "gemm", "--format", name))
        assert "there is no 'no-such-compiler'" in message


def test_without_a_record_nothing_is_written(tuned_cli: Any) -> None:
    done = tuned_cli("export", "conv.c", "conv2d")
    assert done.status == 1
    assert "workloads with one: gemm" in done.stderr
    assert "conv.c" not in tuned_cli.files()
