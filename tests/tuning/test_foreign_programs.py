"""Programs of others are read in a process that may die of them, and only then in this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from attrs import evolve

from autotune.backends import ProgramFile
from autotune.errors import AutotuneError, InvalidValueError, UnknownNameError
from autotune.ir.workloads import gemm
from autotune.store.records import Record
from autotune.targets import preset
from autotune.testing.reference_backend import REFERENCE_BACKEND, ReferenceBackend
from autotune.testing.sample_records import KEY, sample_record
from autotune.tuning import foreign_programs
from autotune.tuning.foreign_programs import (
    check_build,
    export_records,
    import_by,
    import_file,
    imported_records,
    show_record,
)
from autotune.tuning.result import compile_record

DYING = "dying_backend:DyingBackend"
SIZES = "file_parts:Sizes"
HANGING = '{"faults": [{"fault": "hang", "phase": "lower", "every": 1}]}'


def foreign(backend: str, program: str | None) -> Record:
    return sample_record(key=evolve(KEY, backend=backend), program=program)


def taken(path: Path, backend: str) -> None:
    with imported_records(path, "text", backend, preset("zen4"), 0.0):
        pass


def test_what_is_well_read_arrives() -> None:
    record = foreign(REFERENCE_BACKEND, "{}")
    assert show_record(record, REFERENCE_BACKEND)
    check_build(record, REFERENCE_BACKEND)


def test_an_importer_reads_a_file_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "sizes.txt"
    path.write_text("4\n8\n")
    expected = evolve(gemm(m=8, n=8, k=8), name="gemm8")
    assert import_by(SIZES, str(path), "gemm8").digest == expected.digest
    with pytest.raises(InvalidValueError, match="has several functions: name one of gemm4, gemm8"):
        import_by(SIZES, str(path), None)
    with pytest.raises(UnknownNameError, match="Did you mean 'gemm8'"):
        import_by(SIZES, str(path), "gemm88")


def test_errors_keep_their_class_and_text(tmp_path: Path) -> None:
    record = foreign(REFERENCE_BACKEND, "no script")
    with pytest.raises(InvalidValueError, match="^not a script: 'no script'"):
        check_build(record, REFERENCE_BACKEND)
    with pytest.raises(UnknownNameError, match="export format 'none'"):
        export_records([record], "none", tmp_path / "out", REFERENCE_BACKEND)


@pytest.mark.parametrize("how", ["show", "build", "export", "import", "take"])
def test_a_compiler_that_dies_is_an_error(tmp_path: Path, how: str) -> None:
    record, path = foreign(DYING, "module {" * 8), tmp_path / "foreign.mlir"
    path.write_text("module {" * 8)
    with pytest.raises(
        InvalidValueError, match="the process that reads it: killed by SIGSEGV"
    ) as caught:
        {
            "show": lambda: show_record(record, DYING),
            "build": lambda: compile_record(record, backend=DYING),
            "export": lambda: export_records([record], "text", tmp_path / "out", DYING),
            "import": lambda: import_file(ProgramFile(path, "mlir"), DYING),
            "take": lambda: taken(path, DYING),
        }[how]()
    assert "\n" not in str(caught.value)


def test_a_compiler_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_programs, "SECONDS", 3.0)
    with pytest.raises(
        InvalidValueError, match="cannot be compiled: the process that reads it: no answer in 3"
    ):
        compile_record(foreign(REFERENCE_BACKEND, HANGING), backend=REFERENCE_BACKEND)


def test_only_what_a_record_holds_is_compiled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("autotune.tuning.result.check_build", lambda *_: asked.append("x"))
    compile_record(foreign(REFERENCE_BACKEND, None), backend=REFERENCE_BACKEND)
    compile_record(foreign(REFERENCE_BACKEND, "{}"), "{}", backend=REFERENCE_BACKEND)
    assert asked == []
    compile_record(foreign(REFERENCE_BACKEND, "{}"), backend=REFERENCE_BACKEND)
    assert asked == ["x"]


def test_a_backend_that_only_a_record_names_is_never_asked() -> None:
    for ask in (show_record, check_build):
        with pytest.raises(UnknownNameError, match="installed plugins only"):
            ask(foreign(DYING, "module {"), None)


def test_objects_of_a_compiler_are_read_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such objects are in this process already."""
    from autotune.tuning.programs import import_on_each

    read: list[int] = []

    class Backend(ReferenceBackend):
        def imports(self, program: object) -> bool:
            return True

        def import_program(self, program: object) -> object:  # type: ignore[override]
            read.append(os.getpid())
            raise InvalidValueError("read")

    failures: dict[str, AutotuneError] = {}
    assert import_on_each(object(), {"it": Backend()}, failures, []) == {}
    assert read == [os.getpid()] and str(failures["it"]) == "read"
