"""Records as files for other tools: MLIR's own, C compilers, and processes without MLIR."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve
from autotune_mlir import bindings
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.compiler import lower
from autotune_mlir.emit import payload as emitted
from autotune_mlir.parsing import parse_payload
from autotune_mlir.schedule.planning import check_said
from autotune_mlir.transform_library import (
    NamedSchedule,
    apply_command,
    check_applied,
    library_text,
)
from autotune_mlir.transform_scripts import apply_schedule
from mlir_modules import product
from mlir_schedules import executable_of
from split_reductions import weighted_sums
from thinning import thinned

from autotune.backends import InvalidSchedule, ProgramFile
from autotune.cli.app import run
from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
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
from autotune.sketches import names_used
from autotune.store.records import Outcome, Record
from autotune.store.sqlite import open_database
from autotune.targets import detect_cpu
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

# Calls every function of a shared library on matrices of small integers, where nothing of MLIR,
# not even numpy, can be imported; `-I -S` leaves only the standard library.
CALLER = """
import ctypes, mmap, sys
path, m, n, k, *names = sys.argv[1:]
m, n, k = int(m), int(n), int(k)
library = ctypes.CDLL(path)
def array(values):
    memory = mmap.mmap(-1, 4 * len(values))  # begins at a page
    return memory, (ctypes.c_float * len(values)).from_buffer(memory)
a = [float(i % 7 - 3) for i in range(m * k)]
b = [float(i % 5 - 2) for i in range(k * n)]
for name in names:
    (_, x), (_, y), (_, z) = held = array(a), array(b), array([0.0] * (m * n))
    x[:], y[:] = a, b
    pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, (x, y, z)))
    assert getattr(library, name)(pointers) == 0
    for i in range(m):
        for j in range(n):
            assert z[i * n + j] == sum(a[i * k + p] * b[p * n + j] for p in range(k)), (i, j)
loaded = open("/proc/self/maps").read()
assert not [name for name in ("_mlir_libs", "libMLIR", "libLLVM") if name in loaded]
print("right:", len(names))
"""

C_CALLER = """
#include <stdio.h>
#include "made.h"
#include "made.h" /* twice does no harm */
_Alignas(64) static float a[{m} * {k}], b[{k} * {n}], c[{m} * {n}];
int main(void) {{
    for (int i = 0; i < {m} * {k}; ++i) a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < {k} * {n}; ++i) b[i] = (float)(i % 5 - 2);
    if ({name}_call(a, b, c) != 0) return 1;
    for (int i = 0; i < {m}; ++i)
        for (int j = 0; j < {n}; ++j) {{
            float sum = 0;
            for (int p = 0; p < {k}; ++p) sum += a[i * {k} + p] * b[p * {n} + j];
            if (sum != c[i * {n} + j]) return 2;
        }}
    puts("right");
    return 0;
}}
"""


def records_of(
    workload: Workload,
    backend: MLIRBackend,
    count: int,
    threads: int,
    program: str | None = None,
) -> list[Record]:
    """Random candidates of every sketch, as if measured: the first is the fastest."""
    return candidate_records(workload, detect_cpu(), backend, count, program, threads)


def numbers_are_right(payload: str, workload: Workload) -> None:
    """Compiles a scheduled program as it is, and compares it with numpy."""
    check_executable(executable_of(lower(payload, threads=1), workload), workload)


def ours(library: str, payload: str, name: str) -> str:
    """What this plugin makes of a program with one schedule of a library."""
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
    """What MLIR's own tool makes of a program."""
    assert MLIR_OPT is not None
    command = apply_command(library, entry, payload).split()
    done = subprocess.run(
        [MLIR_OPT, *command[1:]], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_said(record: Record) -> bool:
    """Whether the Transform dialect has operations for all that a candidate does."""
    try:
        check_said(record.candidate, record.candidate.sketch.workload)
    except InvalidSchedule:
        return False
    return True


@pytest.mark.parametrize("name", thinned(WORKLOADS, 3))
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
        if "split_reduction.indexed" in names_used(record.candidate.sketch)
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
    functions = backend.export_records(records, "object", tmp_path / "made.o")
    assert functions.refused == () and functions.exported == len(records)
    twice = tmp_path / "twice.mlir"
    twice.write_text(MATMUL + MATMUL.replace("@mine", "@other"), encoding="utf-8")
    with pytest.raises(AssertionError, match="expected to contain 1 payload"):
        stock_mlir_opt(report.files[0], str(twice), f"{entry}_untagged")


def loops(text: str) -> list[str]:
    """The kinds of loops and of operations that compute, in order."""
    return re.findall(r"\b(scf\.for\w*|linalg\.\w+|arith\.mulf|vector\.\w*fma)\b", text)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.needs("openmp"))])
def test_a_shared_library_runs_where_there_is_no_mlir(
    threads: int, backend: MLIRBackend, tmp_path: Path
) -> None:
    records = records_of(WORKLOADS["gemm"], backend, 1, threads)
    path = tmp_path / "made.so"
    report = backend.export_records(records, "shared-library", path)
    assert report.refused == () and report.exported == len(records)
    assert report.files == (str(path), str(tmp_path / "made.h"))
    names = declared(tmp_path / "made.h")
    assert len(names) == len(records)
    assert defined(path, "-D") == set(names)  # and nothing else
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CALLER, str(path), "32", "48", "16", *names],
        env={},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout == f"right: {len(names)}\n", done.stderr


def declared(header: Path) -> list[str]:
    """Functions that a header declares."""
    return re.findall(r"^int (\w+)\(void \*\*arrays\);$", header.read_text(), re.MULTILINE)


def defined(path: Path, *options: str) -> set[str]:
    """Functions that a file defines for others."""
    command = ["nm", *options, "--defined-only", "--extern-only", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[2] for line in lines if line.split()[1] == "T"}


def test_an_object_file_is_called_from_c(backend: MLIRBackend, tmp_path: Path) -> None:
    records = records_of(WORKLOADS["gemm"], backend, 1, 1)[:1]
    report = backend.export_records(records, "object", tmp_path / "made.o")
    assert report.files == (str(tmp_path / "made.o"), str(tmp_path / "made.h"))
    (name,) = declared(tmp_path / "made.h")
    caller = C_CALLER.format(m=32, n=48, k=16, name=name)
    (tmp_path / "main.c").write_text(caller, encoding="utf-8")
    for language in ((), ("-x", "c++", "-D_Alignas=alignas")):
        command = ["cc", "-Wall", "-Werror", *language, "-c", "main.c", "-o", "main.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        subprocess.run(["cc", "main.o", "made.o", "-lm", "-o", "main"], cwd=tmp_path, check=True)
        done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, check=True)
        assert done.stdout == b"right\n"


def test_several_functions_share_an_object_file(backend: MLIRBackend, tmp_path: Path) -> None:
    records = [
        *records_of(WORKLOADS["gemm"], backend, 1, 1)[:2],
        *records_of(WORKLOADS["dense"], backend, 1, 1)[:1],
    ]
    report = backend.export_records([*records, records[0]], "object", tmp_path / "made.o")
    assert report.exported == 4 and report.refused == ()
    names = declared(tmp_path / "made.h")
    assert len(names) == 3 and defined(tmp_path / "made.o") >= set(names)
    assert sorted(name.rpartition("_")[0] for name in names) == ["dense", "gemm", "gemm"]


def test_a_header_is_replaced_by_its_own_file_only(backend: MLIRBackend, tmp_path: Path) -> None:
    records = records_of(WORKLOADS["gemm"], backend, 1, 1)
    header = tmp_path / "made.h"
    for count in (1, 2):
        backend.export_records(records[:count], "shared-library", tmp_path / "made.so")
        assert len(declared(header)) == count
    for text in (header.read_text(), "#include <math.h>\n"):
        header.write_text(text)
        with pytest.raises(InvalidValueError, match="other functions than 'made.o' would have"):
            backend.export_records(records[:1], "object", tmp_path / "made.o")
        assert header.read_text() == text and not (tmp_path / "made.o").exists()
    header.unlink()
    for name, format in (("made.so", "shared-library"), ("made.o", "object")):
        backend.export_records(records[:1], format, tmp_path / name)
    assert "exported to made.so" in header.read_text() and len(declared(header)) == 1


def test_functions_are_linked_by_a_c_compiler(
    backend: MLIRBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = records_of(WORKLOADS["gemm"], backend, 1, 1)
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    for format, some in (("shared-library", records[:1]), ("object", records[:2])):
        with pytest.raises(AutotuneError, match="there is no 'no-such-compiler': install one"):
            backend.export_records(some, format, tmp_path / "made")
    assert list(tmp_path.iterdir()) == []
    backend.export_records(records[:1], "object", tmp_path / "made.o")  # nothing to link
    monkeypatch.setenv("CC", "false")
    with pytest.raises(AutotuneError, match="false failed"):
        backend.export_records(records[:1], "shared-library", tmp_path / "made")
    assert {path.name for path in tmp_path.iterdir()} == {"made.o", "made.h"}


def test_what_cannot_be_exported_is_named(backend: MLIRBackend, tmp_path: Path) -> None:
    good, failed, elsewhere = records_of(WORKLOADS["gemm"], backend, 1, 1)[:3]
    failed = evolve(failed, outcome=Outcome("crash"))
    foreign = {**elsewhere.target, "features": ["sse2", "no-such-feature"]}
    elsewhere = evolve(elsewhere, target=foreign)
    records = [good, failed, elsewhere]
    report = backend.export_records(records, "object", tmp_path / "made.o")
    assert report.exported == 1
    assert [name for name, _ in report.refused] == [
        f"run/{failed.trial}",
        f"run/{elsewhere.trial}",
    ]
    assert report.refused[0][1] == "its outcome is 'crash', not ok"
    assert "lacks no-such-feature" in report.refused[1][1]
    # A schedule is text, and can be written for any machine.
    assert backend.export_records(records, "transform-library", tmp_path / "a").exported == 2
    none = backend.export_records([failed], "transform-library", tmp_path / "b")
    assert none.exported == 0 and none.files == () and not (tmp_path / "b").exists()


@pytest.mark.parametrize("format", ["transform-library", "object", "shared-library"])
def test_paths_that_cannot_be_written(format: str, backend: MLIRBackend, tmp_path: Path) -> None:
    records = records_of(WORKLOADS["gemm"], backend, 1, 1)[:1]
    with pytest.raises(InvalidValueError, match="there is no folder"):
        backend.export_records(records, format, tmp_path / "none" / "made")
    with pytest.raises(InvalidValueError, match="is a folder"):
        backend.export_records(records, format, tmp_path)
    if format != "transform-library":
        with pytest.raises(InvalidValueError, match="is the name of a header"):
            backend.export_records(records, format, tmp_path / "made.h")
    with pytest.raises(UnknownNameError, match="Did you mean 'object'"):
        backend.export_records(records, "objekt", tmp_path / "made")


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
    assert "made.h" in export("made.so", "--format", "shared-library")
    assert run(("records", "export", "autotune.db", "--format", "object", "--best-only")) == 2
    assert "the file that --database names" in capsys.readouterr().err


def test_names_are_made_of_anything(backend: MLIRBackend, tmp_path: Path) -> None:
    """A workload's name is a user's: it may hold what neither C nor MLIR takes."""
    made: list[str] = []
    for name in ("2 mm*/\n}", "größe-1", "_x"):
        workload = evolve(WORKLOADS["gemm"], name=name)
        records: Sequence[Record] = records_of(workload, backend, 1, 1)[:1]
        report = backend.export_records(records, "object", tmp_path / "made.o")
        assert report.refused == ()
        (found,) = declared(tmp_path / "made.h")
        made.append(found)
        command = ["cc", "-Werror", "-fsyntax-only", "-x", "c", str(tmp_path / "made.h")]
        subprocess.run(command, check=True)
        assert backend.export_records(records, "transform-library", tmp_path / "a").exported == 1
    assert [name.rpartition("_")[0] for name in made] == [
        "kernel_2_mm____",
        "gr__e_1",
        "kernel__x",
    ]
