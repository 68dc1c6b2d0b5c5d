"""Whatever a part of a plugin does ends a command with one line that names it and the call."""

from __future__ import annotations

from typing import Any

import pytest
from command_lines import IN_PROCESS
from toy_parts import REFERENCE_BACKEND, TOY_SPACE

GEMM = ("tune", "gemm", "--shape", "m=8,n=8,k=8")
FILE = ("tune", "program.txt")
PARTS = {
    "--backend": REFERENCE_BACKEND,
    "--space": TOY_SPACE,
    "--cost-model": "random",
    IN_PROCESS[0]: IN_PROCESS[1],
}


@pytest.mark.parametrize(
    ("flag", "part", "message"),
    [
        ("--space", "RaisingSpace", "search space 'toy' (faulty_parts) failed in sample(): Bang"),
        ("--space", "VerboseSpace", "failed in sample(): Bang: bang bang bang"),
        ("--space", "WordySpace", "returned 'many' from count(), not int"),
        ("--backend", "LeavingBackend", "failed in limits(): SystemExit: 0"),
        ("--backend", "NamelessBackend", "returned None from compiler_version(), not str"),
        ("--measurer", "RaisingMeasurer", "(faulty_parts) failed in collect(): Bang: collect"),
        ("--measurer", "CountingMeasurer", "returned [1] from collect(), not list[Outcome]"),
        (
            "--importer",
            "RaisingReader",
            "'RaisingReader' (faulty_parts) failed in read(): Bang",
        ),
        ("--importer", "CountingReader", "returned 5 from read(), not list[Workload]"),
        (
            "--importer",
            "EndingReader",
            "cannot read 'program.txt': the process that reads it: exited with",
        ),
    ],
)
def test_it_is_one_line(flag: str, part: str, message: str, cli: Any) -> None:
    (cli.folder / "program.txt").write_text("a program")
    chosen = {**PARTS, flag: f"faulty_parts:{part}"}
    words = [word for pair in chosen.items() for word in pair]
    done = cli(*(FILE if flag == "--importer" else GEMM), *words, "--threads", "1", "--quiet")
    assert done.status == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("autotune: error: ") and message in line
    assert len(line) < 4100
