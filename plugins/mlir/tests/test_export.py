"""Records as libraries of schedules for MLIR's own tools."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from attrs import evolve
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.compiler import lower
from autotune_mlir.emit import payload as emitted
from autotune_mlir.parsing import parse_payload
from autotune_mlir.schedule.plan import check_said
from autotune_mlir.transform_library import (
    NamedSchedule,
    apply_command,
    apply_schedule,
    check_applied,
    library_text,
)
from mlir_modules import product
from mlir_schedules import executable_of
from split_reductions import weighted_sums
from thinning import thinned

from autotune.backends import InvalidSchedule, ProgramFile
from autotune.cli.app import run
from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.sketches import PadExtent, is_indexed, lane_splits
from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import preset
from autotune.testing.programs import check_executable
from autotune.testing.sample_records import candidate_records

MLIR_OPT = shutil.which("mlir-opt-22")
NAMED = re.compile(r"^  transform\.named_sequence @(\w+_[0-9a-f]{8})\(", re.MULTILINE)

WORKLOADS = {
    "gemm": gemm(m=32, n=48, k=16),
    "batch_matmul": batch_matmul(b=2, m=16, n=16, k=16),
    "dense": dense(m=16, n=32, k=16),
    "conv2d": conv2d(h=6, w=8, ci=4, co=16, pad=1, bias=1, relu=1),
    "depthwise_conv2d": depthwise_conv2d(h=6, w=6, c=16, pad=1),
    "odd dense": dense(m=13, n=35, k=16),
    "odd conv2d": conv2d(h=7, w=7, ci=4, co=24, pad=1),
    "softmax": softmax(m=8, n=32),
    "elementwise": elementwise(m=8, n=32),
    # Calls of an instruction, where this machine has it, which other pipelines do not make.
    "bytes": gemm(m=13, n=48, k=20, dtype="int8"),
}


def records_of(
    workload: Workload,
    backend: MLIRBackend,
    count: int,
    threads: int,
    program: str | None = None,
) -> list[Record]:
    """Random candidates of every sketch, as if measured: the first is the fastest.

    They are for what every machine of tests has: bytes on others have instructions that no
    schedule of MLIR can say.
    """
    target = preset("x86-64-v3-1core")
    return candidate_records(workload, target, backend, count, program, threads)


def numbers_are_right(payload: str, workload: Workload) -> None:
    """Compiles a scheduled program as it is, and compares it with numpy."""
    check_executable(executable_of(lower(payload, threads=1), workload), workload)


def ours(library: str, payload: str, name: str) -> str:
    """Apply one schedule of a library to a program with this plugin."""
    module = parse_payload(payload)
    apply_schedule(module, re.sub(rf"@{name}(?!\w)", "@__transform_main", library))
    return str(module)


def payload_of(library: Path, name: str) -> Path:
    """The program of a schedule, by the command that stands above it."""
    text = library.read_text(encoding="utf-8")
    command = rf"mlir-opt (\S+) \S+ --transform-interpreter=entry-point={name}$"
    (file,) = re.findall(command, text, re.MULTILINE)
    return library.with_name(file)


def stock_mlir_opt(library: str, payload: str, entry: str) -> str:
    """Apply MLIR's own tool to a program."""
    assert MLIR_OPT is not None
    command = apply_command(library, entry, payload).split()
    done = subprocess.run(
        [MLIR_OPT, *command[1:]], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_said(record: Record) -> bool:
    """Tell whether the Transform dialect has operations for all that a candidate does."""
    try:
        check_said(record.candidate, record.candidate.sketch.workload)
    except InvalidSchedule:
        return False
    return True


@pytest.mark.parametrize("name", thinned(WORKLOADS, 6))
def test_every_schedule_is_applied_by_the_interpreter_pass(
    name: str, backend: MLIRBackend, tmp_path: Path
) -> None:
    workload = WORKLOADS[name]
    records = records_of(workload, backend, 1, 1)
    path = tmp_path / "tuned.mlir"
    # Every schedule is applied by MLIR's passes, and compared, before it is taken.
    report = backend.export_records([*records, *records], "transform-library", path)
    refused = dict(report.refused)
    assert all(is_said(it) or "no script" in refused[it.name] for it in records)
    records = [record for record in records if record.name not in refused]
    assert records and report.exported == 2 * len(records)
    library = path.read_text(encoding="utf-8")
    names = NAMED.findall(library)
    assert len(names) == len(set(names)) == len(records)  # those that came twice are there once
    assert library.count("named_sequence @") > len(names)  # the parts of each go by its name
    payloads = {str(payload_of(path, name)) for name in names}
    assert report.files[0] == str(path) and set(report.files[1:]) == payloads
    assert set(map(str, tmp_path.iterdir())) == {*report.files}
    assert len(payloads) == 1
    assert f"{payload_of(path, names[0])} " in report.usage
    assert f"entry-point={names[0]}" in report.usage
    for record in records:
        assert f"record run/{record.trial}" in library
    for payload in payloads:
        name = next(it for it in reversed(names) if str(payload_of(path, it)) == payload)
        text = Path(payload).read_text(encoding="utf-8")
        numbers_are_right(ours(library, text, name), workload)


def test_a_schedule_that_a_release_gets_wrong_says_so(
    backend: MLIRBackend, tmp_path: Path
) -> None:
    records = records_of(weighted_sums(3, 96), backend, 1, 1)
    path = tmp_path / "tuned.mlir"
    records = [record for record in records if is_said(record)]
    assert backend.export_records(records, "transform-library", path).refused == ()
    indexed = [
        record
        for record in records
        if any(
            is_indexed(workload.stage(step.stage))
            for workload, step in lane_splits(
                record.candidate.sketch.workload, record.candidate.sketch.core_steps
            )
        )
    ]
    assert len(indexed) == path.read_text().count("// needs MLIR 23:")
    assert indexed or not bindings.chosen().keeps_partial_indices


@pytest.mark.needs("mlir-opt")
@pytest.mark.parametrize("name", thinned(WORKLOADS, 3))
def test_stock_mlir_opt_applies_schedules(name: str, backend: MLIRBackend, tmp_path: Path) -> None:
    workload = WORKLOADS[name]
    records = [record for record in records_of(workload, backend, 1, 1) if is_said(record)]
    few = records[:: -(-len(records) // 3)]  # of sketches that differ most
    path = tmp_path / "tuned.mlir"
    backend.export_records(few, "transform-library", path)
    library = path.read_text(encoding="utf-8")
    for entry in NAMED.findall(library):
        file = payload_of(path, entry)
        payload = file.read_text(encoding="utf-8")
        found = stock_mlir_opt(str(path), str(file), entry)
        numbers_are_right(found, workload)
        # Releases of MLIR differ in how they write small things, and not in the loops.
        assert loops(found) == loops(ours(library, payload, entry)) != loops(payload)
    untagged = tmp_path / "untagged.mlir"
    untagged.write_text(re.sub(r'autotune\.\w+ = "[^"]*"', "", payload), encoding="utf-8")
    assert stock_mlir_opt(str(path), str(untagged), f"{entry}_untagged") == found


MATMUL = product("mine", "public")


@pytest.mark.needs("mlir-opt")
def test_a_schedule_is_applied_to_the_program_that_was_tuned(
    backend: MLIRBackend, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.mlir"
    mine.write_text(MATMUL, encoding="utf-8")
    imported = backend.import_program(ProgramFile(mine, "mlir"))
    records = records_of(imported.workload, backend, 1, 1, imported.program)[::3]
    report = backend.export_records(records, "transform-library", tmp_path / "tuned.mlir")
    assert report.refused == () and report.exported == len(records)
    library, payload = (Path(file).read_text(encoding="utf-8") for file in report.files)
    assert payload == emitted(imported.workload)
    for entry in NAMED.findall(library):
        found = stock_mlir_opt(report.files[0], str(mine), f"{entry}_untagged")
        assert "@mine" in found and loops(found) == loops(ours(library, payload, entry))
    twice = tmp_path / "twice.mlir"
    twice.write_text(MATMUL + MATMUL.replace("@mine", "@other"), encoding="utf-8")
    with pytest.raises(AssertionError, match="expected to contain 1 payload"):
        stock_mlir_opt(report.files[0], str(twice), f"{entry}_untagged")


def loops(text: str) -> list[str]:
    """The kinds of loops and of operations that compute, in order."""
    return re.findall(r"\b(scf\.for\w*|linalg\.\w+|arith\.mulf|vector\.\w*fma)\b", text)


def is_padded(record: Record) -> bool:
    """Tell whether a schedule goes on beyond the extent of an axis."""
    assert record.candidate is not None
    return any(isinstance(step, PadExtent) for step in record.candidate.sketch.steps)


def test_tiles_that_are_margin_alone_are_named(backend: MLIRBackend, tmp_path: Path) -> None:
    target = preset("skylake-avx512-1core")
    drawn = candidate_records(WORKLOADS["gemm"], target, backend, 2)
    padded = [it for it in drawn if is_padded(it)]
    report = backend.export_records(padded, "transform-library", tmp_path / "a")
    assert 0 < len(report.refused) < len(padded) == report.exported + len(report.refused)
    assert all("which adds whole tiles of" in why for _, why in report.refused)


def test_what_cannot_be_exported_is_named(backend: MLIRBackend, tmp_path: Path) -> None:
    drawn = records_of(WORKLOADS["gemm"], backend, 3, 1)
    good, failed, elsewhere = [it for it in drawn if not is_padded(it)][:3]
    failed = evolve(failed, outcome=Outcome("crash"))
    foreign = {**elsewhere.target, "features": ["sse2", "no-such-feature"]}
    elsewhere = evolve(elsewhere, target=foreign)
    records = [good, failed, elsewhere]
    # A schedule is text, and can be written for any machine.
    report = backend.export_records(records, "transform-library", tmp_path / "a")
    assert report.exported == 2
    assert report.refused == ((f"run/{failed.trial}", "its outcome is 'crash', not ok"),)
    none = backend.export_records([failed], "transform-library", tmp_path / "b")
    assert none.exported == 0 and none.files == () and not (tmp_path / "b").exists()


def test_paths_that_cannot_be_written(backend: MLIRBackend, tmp_path: Path) -> None:
    records = records_of(WORKLOADS["gemm"], backend, 1, 1)[:1]
    with pytest.raises(InvalidValueError, match="there is no folder"):
        backend.export_records(records, "transform-library", tmp_path / "none" / "made")
    with pytest.raises(InvalidValueError, match="is a folder"):
        backend.export_records(records, "transform-library", tmp_path)
    with pytest.raises(UnknownNameError, match="Did you mean 'transform-library'"):
        backend.export_records(records, "transform-libary", tmp_path / "made")


def test_a_schedule_that_others_apply_differently_is_refused() -> None:
    payload = "module { func.func @kernel() { return } }"
    head = "module attributes {transform.with_named_sequence} {"
    sequence = (
        "transform.named_sequence @__transform_main(%root: !transform.any_op "
        "{transform.readonly}) { transform.yield }"
    )
    check_applied(NamedSchedule("good", f"{head} {sequence} }}", payload, ""))
    missing = sequence.replace(
        "transform.yield",
        "transform.include @gone failures(propagate) "
        "(%root) : (!transform.any_op) -> () transform.yield",
    )
    with pytest.raises(InvalidSchedule):
        check_applied(NamedSchedule("bad", f"{head} {missing} }}", payload, ""))
    with pytest.raises(InvalidSchedule, match="no module of named sequences"):
        library_text([NamedSchedule("odd", "module {}", payload, "")])


def test_records_are_exported_from_the_command_line(
    backend: MLIRBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    records = records_of(WORKLOADS["gemm"], backend, 1, 1)
    with open_database("autotune.db") as database:
        for record in records:
            database.append_record(record)

    def export(*arguments: str) -> str:
        assert run(("records", "export", *arguments, "--best-only")) == 0
        return capsys.readouterr().out

    said = export("tuned.mlir", "--format", "transform-library")
    assert "1 record written to tuned.mlir" in said and "mlir-opt tuned.gemm_" in said
    assert len(NAMED.findall(Path("tuned.mlir").read_text(encoding="utf-8"))) == 1
    assert run(("records", "export", "autotune.db", "--format", "transform-library")) == 2
    assert "the file that --database names" in capsys.readouterr().err


def test_names_are_made_of_anything(backend: MLIRBackend, tmp_path: Path) -> None:
    """A workload's name is a user's: it may hold what MLIR does not take."""
    made: list[str] = []
    for name in ("2 mm*/\n}", "größe-1", "_x"):
        records = records_of(evolve(WORKLOADS["gemm"], name=name), backend, 1, 1)[:1]
        report = backend.export_records(records, "transform-library", tmp_path / "a")
        assert report.exported == 1
        made += NAMED.findall((tmp_path / "a").read_text(encoding="utf-8"))
    assert [name.rpartition("_")[0] for name in made] == [
        "kernel_2_mm____",
        "gr__e_1",
        "kernel__x",
    ]
