"""Programs that one process compiles and another one runs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from autotune_tvm.artefact import LIBRARY
from autotune_tvm.backend import TVMBackend

from autotune.backends import BuildFailed, BuildRequest, Executable
from autotune.ir.workloads import Workload, dense, gemm, random_inputs
from autotune.plugins.parts import create_part
from autotune.sketches import prepacked_operands
from autotune.spaces import SearchSpace, SpaceContext
from autotune.targets import detect_cpu
from autotune.testing.programs import check_executable, run_executable


def outputs_of(executable: Executable, workload: Workload) -> np.ndarray:
    drawn = random_inputs(workload, np.random.default_rng(0))
    check_executable(executable, workload, drawn)
    (output,) = run_executable(executable, workload, drawn)
    return output


@pytest.mark.parametrize("constants", [(), ("W",)])
def test_a_stored_program_is_the_program(tmp_path: Path, constants: tuple[str, ...]) -> None:
    """Also one that is given constants packed."""
    workload = dense(m=20, n=40, k=24).with_constants(*constants)
    target = detect_cpu().with_cores(1)
    backend = TVMBackend()
    context = SpaceContext(
        target=target, workload=workload, limits=backend.limits(target), backend="tvm"
    )
    space: SearchSpace = create_part("search_space", "sketch", context)
    candidates = space.sample(64, np.random.default_rng(3))
    candidate = next(it for it in candidates if bool(prepacked_operands(it)) == bool(constants))
    request = BuildRequest(workload, None, candidate, target, 1)
    built = backend.build(request)
    built.export(tmp_path / "one")
    built.export(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    loaded = backend.load_program(request, tmp_path / "one")
    assert loaded.digest == built.digest != ""
    assert np.array_equal(outputs_of(built, workload), outputs_of(loaded, workload))


def test_a_damaged_file_is_one_error(tmp_path: Path) -> None:
    workload = gemm(m=8, n=8, k=8)
    target = detect_cpu().with_cores(1)
    backend = TVMBackend()
    request = BuildRequest(workload, None, None, target, 1)
    path = tmp_path / "program"
    backend.build(request).export(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(BuildFailed, match="program in program cannot be loaded"):
        backend.load_program(request, path)
    path.write_text("no archive")
    with pytest.raises(BuildFailed, match="program in program cannot be loaded"):
        backend.load_program(request, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(LIBRARY, b"no library")
    with pytest.raises(BuildFailed, match="program in program cannot be loaded"):
        backend.load_program(request, path)
