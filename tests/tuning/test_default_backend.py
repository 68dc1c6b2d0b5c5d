"""Tests of which backend a run uses that names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from backend_with_gaps import BackendWithoutImports

import autotune
from autotune.backends import Backend
from autotune.backends.native import NativeBackend
from autotune.ir.workloads import gemm
from autotune.plugins import PluginSpec
from autotune.plugins import manager as plugins
from autotune.targets import preset
from autotune.testing.reference_backend import ReferenceBackend, ReferenceProgram
from autotune.tuning import programs as choice
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import backend_for, default_backend

SQUARE, WIDE = gemm(m=8, n=8, k=8), gemm(m=4, n=16, k=8)
HERE = preset("haswell-2core")
AMONG_OTHERS = "autotune.testing.reference_backend:ReferenceBackend"


def install(monkeypatch: pytest.MonkeyPatch, made: dict[str, Backend]) -> None:
    """Let these be the installed backends."""
    monkeypatch.setattr(plugins.manager(), "names", lambda kind: tuple(made))
    monkeypatch.setattr(choice, "compiling_backends", lambda: tuple(made))
    monkeypatch.setattr(choice, "create_held_part", lambda kind, name: made[name])


@pytest.mark.parametrize(
    ("installed", "target", "default"),
    [
        (["native"], "haswell-2core", "native"),
        (["native", "tvm"], "haswell-2core", "native"),
        (["mlir", "native", "tvm"], "haswell-2core", "native"),
        (["native", "tvm"], "a100", "tvm"),
        (["cuda", "native", "tvm"], "a100", "tvm"),
        (["cuda", "mlir", "native"], "a100", "cuda"),
        (["mlir", "native"], "a100", "mlir"),
        (["native"], "a100", "native"),
    ],
)
def test_the_first_that_compiles_for_the_target(
    installed: list[str], target: str, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {name: ReferenceBackend() for name in installed}
    install(monkeypatch, {**made, "native": NativeBackend()})
    assert default_backend(preset(target)) == default


def test_a_program_is_for_the_backend_that_imports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"native": BackendWithoutImports(), "other": ReferenceBackend()})
    options, program = TuneOptions(target=HERE), ReferenceProgram(SQUARE)
    assert backend_for([SQUARE], options) == "native"
    assert backend_for([SQUARE, program], options) == "other"
    assert backend_for(["nobody's"], options) == "native"


def test_a_part_that_works_with_one_backend_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PluginSpec("search_space", "of_one", "a:b", "A space of one backend", backend="other")
    monkeypatch.setattr(choice, "spec_of", lambda kind, name: spec)
    assert backend_for([SQUARE], TuneOptions(target=HERE)) == "other"


def tuned(database: Path, workload: object) -> None:
    autotune.tune(
        workload, trials=2, round_size=2, threads=1, backend=AMONG_OTHERS, database=database
    )


def test_what_was_tuned_stays_with_its_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "compiling_backends", lambda: ("native", AMONG_OTHERS))
    database = tmp_path / "records.db"

    def chosen(*workloads: object, **more: Any) -> str:
        return backend_for(workloads, TuneOptions(threads=1, database=database, **more))

    assert chosen(SQUARE) == "native"
    tuned(database, SQUARE)
    assert chosen(SQUARE) == AMONG_OTHERS
    assert chosen(SQUARE, fresh=True) == "native"
    assert chosen(SQUARE, WIDE) == chosen(WIDE) == "native"
    tuned(database, WIDE)
    assert chosen(SQUARE, WIDE) == AMONG_OTHERS
    database.write_bytes(b"no database")
    assert chosen(SQUARE) == "native"
