"""Libraries of a module: MLIR's own tool applies each to what it is for, and to nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.networks import module_library
from autotune_mlir.networks.reader import read_functions, run_module
from mlir_modules import MASKED, MIXED, written
from module_networks import load

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.networks import GraphProgram
from autotune.sketches import Candidate, Pack
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target
from autotune.testing.programs import sample_candidates

MLIR_OPT = shutil.which("mlir-opt-22")
TUNED = ("first", "again", "normalized", "added")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the module and its library."""
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def saved(mixed: GraphProgram, target: Target, folder: Path) -> tuple[str, ...]:
    """Writes the library of the module whose functions all have a schedule; returns remarks."""
    written(folder, MIXED)
    chosen = records_of(mixed, TUNED, target)
    return mixed.build(chosen, target, 1).save(folder / "library.mlir")


def records_of(
    network: GraphProgram, names: Sequence[str], target: Target, *, transposed: bool = False
) -> dict[str, Record | None]:
    """A record of the last sketch of each function, of one that transposes what it packs."""
    backend = MLIRBackend()
    chosen: dict[str, Record | None] = {}
    key = MeasureKey(target.fingerprint, "mlir", "1", backend.compiler_version(), 1, "warm-1")
    for number, task in enumerate(network.tasks):
        if task.name in names:
            workload = task.program
            assert isinstance(workload, Workload)
            drawn = sample_candidates(backend, workload, target)
            wanted = [it for it in drawn if transposed and packs_transposed(it)] or drawn
            outcome = Outcome("ok", 1e-6, (1e-6,))
            chosen[task.name] = Record(
                "run", number, wanted[-1], key, target.to_json(), "sketch-1", outcome, 0.0
            )
    return chosen


def packs_transposed(candidate: Candidate) -> bool:
    """Tell whether a whole operand is packed with another dimension than the last innermost."""
    steps = (it for it in candidate.sketch.core_steps if isinstance(it, Pack) and it.at is None)
    tensors = candidate.sketch.workload.tensors
    return any(it.block_dim not in (None, len(tensors[it.operand].shape) - 1) for it in steps)


def test_transposed_operands_and_truth_values(
    target: Target, read_here: None, tmp_path: Path
) -> None:
    """Functions with either are compiled, and left out of libraries."""
    program = load(written(tmp_path, MASKED))
    chosen = records_of(program, ("rows", "masked"), target, transposed=True)
    assert all(chosen.values())
    network = program.build(chosen, target, 1)
    inputs = program.example_inputs()
    (wanted,), (found,) = program.reference(inputs), network(*inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    path = tmp_path / "library.mlir"
    first, second, third = network.save(path)
    assert f"{path}: schedules of 0 functions" in first
    assert second.startswith(f"{path}: nothing for @masked: schedules of truth values")
    assert third.startswith(f"{path}: nothing for @rows: no script of the Transform dialect says")


def test_a_function_that_no_script_alone_schedules_is_left_out(
    mixed: GraphProgram, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_library, "schedule", lambda candidate, workload: "module {}")
    path = tmp_path / "library.mlir"
    lines = mixed.build(records_of(mixed, ("first",), target), target, 1).save(path)
    assert "schedules of 0 functions" in lines[0]
    assert lines[1].startswith(f"{path}: nothing for @first: schedule 'first_")
    assert lines[2].startswith(f"{path}: nothing for @again: schedule 'again_")


def applied(folder: Path, module: str) -> str:
    """Apply MLIR's own tool to a module in a folder with a library."""
    assert MLIR_OPT is not None
    library = f"--transform-preload-library=transform-library-paths={folder / 'library.mlir'}"
    done = subprocess.run(
        [MLIR_OPT, str(folder / module), library, "--transform-interpreter"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def functions(text: str) -> Mapping[str, str]:
    """The functions of a module by name."""
    parts = re.split(r"^  func\.func (?:private )?@(\w+)", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_it_says_what_the_library_is_for(saved: tuple[str, ...], folder: Path) -> None:
    first, second = saved
    library, prepared = folder / "library.mlir", folder / "library.payload.mlir"
    assert first.startswith(f"{library}: schedules of 4 functions, applied by mlir-opt MODULE --")
    assert "the operations of @added are not those that were scheduled, such as" in second
    assert second.endswith(f"take {prepared} in place of the module")
    text = library.read_text(encoding="utf-8")
    names = re.findall(r"named_sequence @(\w+)\(", text)
    assert names[0] == "__transform_main" and len(names) == len(set(names))
    # One sequence finds two equal functions.
    assert len([it for it in names if re.fullmatch(r"first_[0-9a-f]{8}", it)]) == 1


@pytest.mark.needs("mlir-opt")
def test_stock_mlir_opt_gives_functions_their_schedules_and_leaves_others(
    saved: tuple[str, ...], mixed: GraphProgram, folder: Path
) -> None:
    module, read = read_functions(
        (folder / "model.mlir").read_text(encoding="utf-8"), "model.mlir"
    )
    before, entries = functions(module), [read["main"]]
    inputs = mixed.example_inputs()
    wanted = mixed.reference(inputs)
    for module, tuned in (
        ("model.mlir", {"first", "again", "normalized"}),
        ("library.payload.mlir", set(TUNED)),
    ):
        found = applied(folder, module)
        after = functions(found)
        assert list(after) == list(before)
        for name, text in after.items():
            scheduled = "scf.for" in text and "linalg." not in text
            assert scheduled == (name in tuned), name
            assert name in TUNED or text.split() == before[name].split()
        # The whole module computes what it did.
        made = run_module(found, entries, (mixed.inputs, mixed.outputs), inputs)
        assert made is not None
        for want, got in zip(wanted, made, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.needs("mlir-opt")
def test_a_function_of_another_type_is_left_alone(saved: tuple[str, ...], folder: Path) -> None:
    written(folder, MIXED.replace("32x48", "32x64").replace("16x48", "16x64"), "other.mlir")
    text = (folder / "other.mlir").read_text(encoding="utf-8")
    written(folder, text.replace("48x16", "64x16").replace("1536", "2048"), "other.mlir")
    assert "scf.for" not in applied(folder, "other.mlir")


def test_nothing_of_others_is_replaced(
    mixed: GraphProgram, target: Target, read_here: None, tmp_path: Path
) -> None:
    path = written(tmp_path, MIXED, "library.payload.mlir")
    network = load(path).build({}, target, 1)
    with pytest.raises(InvalidValueError, match=r"library\.payload\.mlir' belongs to .* autotune"):
        network.save(tmp_path / "library.mlir")
    assert path.read_text(encoding="utf-8") == MIXED
    (remark,) = network.save(tmp_path / "none.mlir")
    assert "schedules of 0 functions" in remark
    network.save(tmp_path / "none.mlir")  # replaces its own
