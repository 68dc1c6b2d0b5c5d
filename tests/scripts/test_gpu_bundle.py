"""The bundle for machines without registries: its parts, and what its check says where it ends."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

SCRIPTS = Path(__file__).parents[2] / "scripts"
NO_GPU = 3


@pytest.fixture(scope="module")
def bundles() -> Iterator[tuple[Any, Any]]:
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield importlib.import_module("gpu_bundle"), importlib.import_module("gpu_reassemble")
    finally:
        sys.path.remove(str(SCRIPTS))
        for name in ("gpu_bundle", "gpu_reassemble", "wheels"):
            sys.modules.pop(name, None)


def make_bundle(bundle: Any, folder: Path, contents: list[bytes], limit: int) -> Path:
    """A bundle of files with such contents, called ``0.whl`` and so on."""
    files = folder / "files"
    files.mkdir(parents=True)
    for number, content in enumerate(contents):
        (files / f"{number}.whl").write_bytes(content)
    made = folder / "bundle"
    made.mkdir()
    manifest = bundle.write_parts(sorted(files.iterdir()), made, limit)
    (made / "manifest.json").write_text(json.dumps({"files": manifest}))
    return made


@given(
    contents=st.lists(st.binary(max_size=200), min_size=1, max_size=6), limit=st.integers(1, 90)
)
def test_parts_join_to_what_they_were(
    bundles: Any, tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], limit: int
) -> None:
    bundle, reassemble = bundles
    folder = tmp_path_factory.mktemp("parts")
    made = make_bundle(bundle, folder, contents, limit)
    for load in made.glob("load-*"):
        assert sum(part.stat().st_size for part in load.iterdir()) <= limit
    assert reassemble.main([str(made), str(folder / "joined")]) == 0
    joined = sorted((folder / "joined").iterdir())
    assert [path.read_bytes() for path in joined] == contents


@pytest.mark.parametrize("fault", ["changed", "missing", "outside", "named"])
def test_a_damaged_bundle_is_refused(
    bundles: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    bundle, reassemble = bundles
    made = make_bundle(bundle, tmp_path, [b"x" * 100], 60)
    first, _ = sorted(made.glob("load-*/*.part*"))
    manifest = json.loads((made / "manifest.json").read_text())
    if fault == "changed":
        first.write_bytes(b"y" * 60)
    elif fault == "missing":
        first.unlink()
    elif fault == "outside":
        manifest["files"][0]["parts"][0]["path"] = "../files/0.whl"
    else:
        manifest["files"][0]["name"] = "../0.whl"
    (made / "manifest.json").write_text(json.dumps(manifest))
    assert reassemble.main([str(made), str(tmp_path / "joined")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    assert {
        "changed": "damaged",
        "missing": "No such file",
        "outside": "outside of the bundle",
    }.get(fault, "no name of a file") in said


def test_what_is_said_to_be_present_must_be_needed(bundles: Any, tmp_path: Path) -> None:
    bundle, _ = bundles
    for name in ("numpy-2.5.5-cp312-cp312-linux.whl", "scikit_build_core-1.1-py3-none-any.whl"):
        (tmp_path / name).touch()
    with pytest.raises(SystemExit, match="numppy is not needed.*needed: numpy, scikit-build-core"):
        bundle.leave_out(tmp_path, ["numppy"])
    bundle.leave_out(tmp_path, ["scikit-build-core"])
    assert [path.name[:5] for path in tmp_path.iterdir()] == ["numpy"]


def test_requirements_are_those_of_the_projects_but_for_themselves(bundles: Any) -> None:
    bundle, _ = bundles
    names = {bundle.name_of(it) for it in bundle.requirements()}
    assert {"apache-tvm", "apache-tvm-ffi", "attrs", "pytest", "nvidia-cuda-nvrtc"} <= names
    assert not names & {"tensor-autotune", "torch", "mlir-python-bindings"}


def check(
    folder: Path, *arguments: str, gpu: bool, first: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run gpu_check.sh where nvidia-smi lists a GPU, or none, and Python looks in ``first``."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    smi = programs / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: Pretended'\n" if gpu else "#!/bin/sh\nexit 9\n")
    smi.chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": sys.executable}
    environment |= {} if first is None else {"PYTHONPATH": str(first)}
    return subprocess.run(
        ["sh", str(SCRIPTS / "gpu_check.sh"), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_without_a_gpu_the_check_says_so(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"files": []}')
    done = check(tmp_path, str(tmp_path), gpu=False)
    assert done.returncode == NO_GPU
    assert done.stderr == "error: no GPU: nvidia-smi is not there, or lists none\n"
    assert not done.stdout and not (tmp_path / "gpu-check").exists()


def test_the_check_refuses_what_is_no_bundle(tmp_path: Path) -> None:
    done = check(tmp_path, str(tmp_path / "none"), gpu=True)
    assert done.returncode == 2 and "is no bundle" in done.stderr
    assert check(tmp_path, gpu=True).returncode == 2


def test_a_step_that_fails_is_in_the_table_and_ends_the_check(
    bundles: Any, tmp_path: Path
) -> None:
    made = make_bundle(bundles[0], tmp_path, [b"x" * 10], 60)
    (made / "load-0" / "0.whl").write_bytes(b"y" * 10)
    (made / "gpu_reassemble.py").write_bytes((SCRIPTS / "gpu_reassemble.py").read_bytes())
    done = check(tmp_path, str(made), gpu=True)
    assert done.returncode == 1 and "0.whl is damaged" in done.stdout
    table = (tmp_path / "gpu-check" / "table").read_text().splitlines()
    assert len(table) == 1 and table[0].startswith("unpack") and "failed, status 1" in table[0]
    assert done.stdout.splitlines()[-1] == table[0]


def bundle_of_a_core(bundle: Any, folder: Path, bench: str = "") -> Path:
    """A bundle whose core has a version that the interpreter may have, too, and nothing else.

    Args:
        bundle: The script that makes bundles.
        folder: Where it is made.
        bench: What its source has as the command of benchmarks.
    """
    files, made = folder / "files", folder / "bundle"
    files.mkdir()
    made.mkdir()
    about = "tensor_autotune-0.1.0.dist-info"
    named = "Metadata-Version: 2.1\nName: tensor-autotune\nVersion: 0.1.0\n"
    with zipfile.ZipFile(files / "tensor_autotune-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("autotune/__init__.py", "")
        wheel.writestr(f"{about}/METADATA", named)
        kinds = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{about}/WHEEL", kinds)
        wheel.writestr(f"{about}/RECORD", "")
    (folder / "bench.py").write_text(bench)
    with tarfile.open(files / "autotune-source.tar.gz", "w:gz") as source:
        source.add(folder / "bench.py", "benchmarks/bench.py")
    manifest = bundle.write_parts(sorted(files.iterdir()), made, 1 << 20)
    (made / "manifest.json").write_text(json.dumps({"files": manifest}))
    (made / "gpu_reassemble.py").write_bytes((SCRIPTS / "gpu_reassemble.py").read_bytes())
    return made


def installed(folder: Path, *arguments: str, first: Path | None = None) -> str:
    """The check's line on installing."""
    done = check(folder, *arguments, gpu=True, first=first)
    return next(line for line in done.stdout.splitlines() if line.startswith("install: "))


@pytest.mark.slow
def test_what_is_tested_is_the_bundles(bundles: Any, tmp_path: Path) -> None:
    """Also where the interpreter has the same version; or it is refused."""
    made = bundle_of_a_core(bundles[0], tmp_path)
    assert installed(tmp_path, str(made)) == "install: ok"
    (core,) = (tmp_path / "gpu-check" / "venv").glob("lib/*/site-packages/autotune/__init__.py")
    assert core.read_text() == ""
    older = tmp_path / "older" / "autotune"
    older.mkdir(parents=True)
    (older / "__init__.py").touch()
    assert installed(tmp_path, str(made), first=older.parent) == "install: failed, status 1"
    log = (tmp_path / "gpu-check" / "logs" / "install.log").read_text()
    assert f"error: autotune would be that of {older}/__init__.py, and not the bundle's" in log


@pytest.mark.slow
def test_printed_kernels_are_judged_first(bundles: Any, tmp_path: Path) -> None:
    bench = """
import sys
row, *options = sys.argv[1:]
if row == "cuda_printed":
    print("conv 2 of 2 right, 0.97 of TVM's time, at most 1.02")
    print("conv14 shared: cuda ok, tvm ok, 1.02 of TVM's time")
    print(f"HIGH  bulk: time, of TVM's: 1.2, wanted <= 1.1 {options}")
    sys.exit(1)
"""
    done = check(tmp_path, str(bundle_of_a_core(bundles[0], tmp_path, bench)), gpu=True)
    said = done.stdout.splitlines()
    at = said.index("printed: failed, status 1")
    tests = next(n for n, line in enumerate(said) if line.startswith("tests: failed"))
    assert at < tests < said.index("device: ok")
    assert "conv 2 of 2 right, 0.97 of TVM's time, at most 1.02" in said[at:]
    (high,) = {line for line in said if line.startswith("HIGH")}
    assert "'--quick', '--check', '--limit', '200', '--json'" in high
    table = (tmp_path / "gpu-check" / "table").read_text().splitlines()
    assert [line.split()[0] for line in table][:4] == ["unpack", "install", "printed", "tests"]


@pytest.mark.long
def test_a_whole_bundle_installs_and_runs(tmp_path: Path) -> None:
    running = "{}.{}".format(*sys.version_info[:2])
    command = [sys.executable, str(SCRIPTS / "gpu_bundle.py"), "bundle", f"--python={running}"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=900)
    loads = list((tmp_path / "bundle").glob("load-*"))
    assert len(loads) > 1
    for load in loads:
        assert sum(path.stat().st_size for path in load.iterdir()) <= 48 << 20
    done = check(tmp_path, "bundle", gpu=True)
    steps = (tmp_path / "gpu-check" / "table").read_text().splitlines()
    results = {line.split()[0]: line.split(" s  ")[1] for line in steps}
    assert results["unpack"] == results["install"] == "ok", done.stdout
    # The GPU is a pretended one: its tests are skipped, which the check takes for a failure.
    assert results["tests"] == "failed, status 1" and done.returncode == 1
    # Printed kernels come first, and need the device.
    assert list(results)[2:4] == ["printed", "tests"]
    assert results["printed"] == "failed, status 2", done.stdout
    log = (tmp_path / "gpu-check" / "logs" / "tests.log").read_text()
    assert " skipped" in log and " error" not in log, log
    packages = "gpu-check/venv/lib/python*/site-packages"
    assert list(tmp_path.glob(f"{packages}/nvidia/cu13/lib/libnvrtc.so.*"))
    assert list(tmp_path.glob(f"{packages}/nvidia/cu13/include/cuda_fp16.h"))
    assert "printed candidates that do not compile" in done.stdout
