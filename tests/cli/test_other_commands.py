"""The commands beside ``tune``, and the group itself."""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

import pytest
from attrs import evolve
from command_lines import IN_PROCESS, tune_square
from python_processes import run_python
from toy_parts import REFERENCE_BACKEND

from autotune.cli.app import SUMMARIES
from autotune.store.jsonl import record_line
from autotune.testing.sample_records import KEY, sample_record


def test_every_command_has_an_example_and_json(cli: Any) -> None:
    records = ("list", "runs", "export", "import", "check", "failures")
    for name in (*SUMMARIES, *(f"records {name}" for name in records)):
        done = cli(*name.split(), "--help")
        assert done.status == 0
        assert "Example" in done.stdout and f"autotune {name}" in done.stdout
        assert "--json" in done.stdout


def test_a_command_without_a_database_uses_the_usual_one(cli: Any) -> None:
    assert cli("records", "import", os.devnull).status == 0
    assert cli.files() == {"autotune.db"}
    shown = " ".join(cli("best", "--help").stdout.split())
    assert "by default that of autotune.database, or autotune.db." in shown


def test_help_lists_the_commands(cli: Any) -> None:
    done = cli("--help")
    assert done.status == 0
    assert all(name in done.stdout and text in done.stdout for name, text in SUMMARIES.items())
    assert cli("--version").stdout.startswith("autotune ")


def _seconds_of_children() -> float:
    """Processor seconds of ended children, which a busy machine hardly changes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_is_quick_and_imports_little() -> None:
    code = (
        "import sys; from autotune.cli.app import run; status = run(['--help']); "
        "sys.exit([m for m in ('numpy', 'rich', 'tvm') if m in sys.modules] or status)"
    )
    for _ in range(3):  # it may be the first to compile what it imports
        before = _seconds_of_children()
        run_python("-c", code)
        used = _seconds_of_children() - before
        if used < 0.5:
            break
    assert used < 0.5


def test_plugins_lists_what_is_registered(cli: Any) -> None:
    done = cli("plugins", "--json", "-")
    parts = json.loads(done.stdout)
    assert {"kind", "name", "distribution", "version", "status", "error"} == set(parts[0])
    assert ("strategy", "evolutionary") in {(part["kind"], part["name"]) for part in parts}
    assert "evolutionary" in cli("plugins").stdout


def test_workloads_lists_builders(cli: Any) -> None:
    builders = {item["name"]: item for item in json.loads(cli("workloads", "--json", "-").stdout)}
    sizes = [{"name": n, "default": None} for n in ("m", "n", "k")]
    assert builders["gemm"]["shape"] == [*sizes, {"name": "requantize", "default": 0}]
    assert {"name": "stride", "default": 1} in builders["conv2d"]["shape"]
    assert "kh (default 3)" in cli("workloads").stdout


def test_best_queries_the_records(tuned_cli: Any) -> None:
    assert tuned_cli(*tune_square(4), *IN_PROCESS, "--trials", "4").status == 0
    every = json.loads(tuned_cli("best", "--json", "-").stdout)
    assert len(every) == 2
    done = tuned_cli("best", "gemm", "--shape", "m=4", "--json", "-")
    (record,) = json.loads(done.stdout)
    assert record["workload"]["parameters"]["m"] == 4
    assert tuned_cli("best", "gemm", "--limit", "1").stdout.count("gemm") == 1
    assert "gemm m=8 n=8 k=8 float32" in tuned_cli("best").stdout


def test_a_query_without_an_answer_is_status_1(tuned_cli: Any) -> None:
    done = tuned_cli("best", "conv2d", "--json", "-")
    assert done.status == 1 and json.loads(done.stdout) == []
    assert tuned_cli("best", "--threads", "99").status == 1
    assert tuned_cli("show", "softmax").status == 1
    for command in ("best", "show", "explain"):
        done = tuned_cli(command, "gem")
        assert done.status == 1
        assert "matches; workloads with one: gemm. Did you mean 'gemm'?" in done.stderr


def test_show_explains_a_schedule(tuned_cli: Any) -> None:
    report = json.loads((tuned_cli.folder / "out.json").read_text())
    name = f"{report['run']['id']}/{report['best']['record']['trial']}"
    for which in (["gemm"], ["--record", name]):
        done = tuned_cli("show", *which, "--backend", REFERENCE_BACKEND)
        assert done.status == 0, done.stderr
        assert "Steps" in done.stdout and "Script" in done.stdout and "Loop nest" in done.stdout
        assert "tile" in done.stdout and name in done.stdout
    shown = json.loads(tuned_cli("show", "--json", "-", "--backend", REFERENCE_BACKEND).stdout)
    assert set(shown) == {"record", "steps", "script", "nest"}
    only = tuned_cli("show", "--part", "steps").stdout
    assert "Steps" in only and "Script" not in only
    done = tuned_cli("show", "--constraints", "--json", "-")
    data = json.loads(done.stdout)
    assert set(data) == {"record", "constraints", "problem"}
    assert f"{len(data['problem']['constraints'])} constraints, " in data["constraints"]
    assert tuned_cli("show", "--record", "nonsense").status == 2


def test_a_record_names_installed_parts_only(cli: Any) -> None:
    (cli.folder / "hostile.py").write_text("raise SystemExit('it was imported')")
    foreign = sample_record(key=evolve(KEY, backend="hostile:x"))
    (cli.folder / "foreign.jsonl").write_bytes(record_line(foreign))
    assert cli("records", "import", "foreign.jsonl").status == 0
    for command in (("show",), ("records", "export", "out", "--format", "metaschedule")):
        done = cli(*command)
        assert done.status == 2 and "unknown backend 'hostile:x'" in done.stderr
        assert "Records name parts of installed plugins only" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert cli("show", "--part", "steps").status == 0
    assert "hostile" not in sys.modules
    done = cli("show", "--record", "run-1/0", "--backend", REFERENCE_BACKEND)
    assert done.status == 2 and "the record is of backend 'hostile:x', not of" in done.stderr


DYING = "dying_backend:DyingBackend"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "--part", "script", "--backend", DYING), "record run-1/0 has no script"),
        (
            ("records", "export", "out", "--format", "text", "--backend", DYING),
            "the records cannot be exported",
        ),
        (("tune", "--mlir", "foreign.mlir", "--backend", DYING), "foreign.mlir cannot be read"),
        (
            ("tune", "foreign.mlir", "--importer", "dying_backend:DyingImporter"),
            "importer 'dying_backend:DyingImporter' cannot read 'foreign.mlir'",
        ),
    ],
    ids=["show", "export", "import", "importer"],
)
def test_a_compiler_that_dies_of_a_program_is_one_line(
    arguments: tuple[str, ...], message: str, cli: Any
) -> None:
    foreign = sample_record(key=evolve(KEY, backend=DYING), program="module {" * 8)
    (cli.folder / "foreign.jsonl").write_bytes(record_line(foreign))
    (cli.folder / "foreign.mlir").write_text("module {" * 8)
    assert cli("records", "import", "foreign.jsonl").status == 0
    done = cli(*arguments)
    assert done.status == 2 and len(done.stderr.splitlines()) == 1
    assert message in done.stderr and "SIGSEGV" in done.stderr


def test_show_lists_the_tape_of_a_schedule(tuned_cli: Any) -> None:
    done = tuned_cli("show", "--tape", "--json", "-")
    shown = json.loads(done.stdout)
    assert set(shown) == {"record", "tape"}
    assert shown["tape"].startswith("inputs\n")
    for name, value in shown["record"]["config"].items():
        assert f"  {name} = {value}\n" in shown["tape"]
    assert set(tuned_cli("show", "--part", "tape").stdout.splitlines()) >= {
        "Tape",
        *shown["tape"].splitlines(),
    }


def test_show_explains_a_sketch_without_a_record(cli: Any) -> None:
    gemm = ("show", "gemm", "--shape", "m=8,n=32,k=8", "--backend", REFERENCE_BACKEND)
    done = cli(*gemm, "--tape", "--sketch", "direct", "--target", "skylake-avx512-2core")
    assert done.status == 0, done.stderr
    assert "  loop/0 = " in done.stdout and "Loop nest" not in done.stdout
    both = cli(*gemm, "--sketch", "direct", "--json", "-", "--target", "skylake-avx512-2core")
    assert set(json.loads(both.stdout)) == {"sketch", "nest", "tape"}


def test_show_prints_the_constraints_of_a_sketch(cli: Any) -> None:
    gemm = ("show", "gemm", "--shape", "m=8,n=32,k=8", "--backend", REFERENCE_BACKEND)
    sketch = (*gemm, "--constraints", "--sketch", "direct", "--target", "skylake-avx512-2core")
    done = cli(*sketch, "--json", "-")
    assert done.status == 0, done.stderr
    data = json.loads(done.stdout)
    assert set(data) == {"sketch", "constraints", "problem"}
    assert f"{len(data['problem']['variables'])} variables, " in data["constraints"]
    (line,) = [x for x in data["constraints"].splitlines() if "C.i.0 * C.i.1 * C.i.2" in x]
    assert line.split("  ")[0] == "8 = C.i.0 * C.i.1 * C.i.2"
    assert line.endswith("hard  workload, tile C i")


GAPS = ("--backend", "backend_with_gaps:BackendWithGaps", "--target", "skylake-avx512-2core")


def test_the_sketches_of_a_space_are_listed(cli: Any) -> None:
    done = cli("show", "gemm", "--shape", "m=8,n=32,k=16", *GAPS, "--sketches", "--json", "-")
    data = json.loads(done.stdout)
    names = {it["name"]: it["configurations"] for it in data["sketches"]}
    assert done.status == 0 and set(names) == {"direct"}
    assert all(names.values()) and not set(names) & set(data["left_out"])
    assert "left out: packed-root, which needs pack" in done.stderr
    assert data["left_out"]["packed-root"] == "needs pack"
    assert data["notes"] == []


def test_what_is_left_out_of_a_space_is_shown_with_the_reason(cli: Any) -> None:
    gemm = ("show", "gemm", "--shape", "m=8,n=32,k=16", *GAPS, "--sketch")
    assert cli(*gemm, "direct").status == 0
    done = cli(*gemm, "packed-root")
    assert done.status == 2
    assert "the space leaves out sketch 'packed-root', which needs pack" in done.stderr
    done = cli(*gemm, "packed")
    assert done.status == 2
    assert "Left out: plain-outer needs pack; plain-rows needs pack; " in done.stderr


def test_a_sketch_is_offered_where_there_are_no_records(cli: Any) -> None:
    done = cli("show", "gemm", "--shape", "m=8,n=8,k=8", "--constraints")
    assert done.status == 2 and "there is no such file" in done.stderr
    assert "name it by --sketch" in done.stderr
