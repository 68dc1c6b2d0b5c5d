"""Installs the wheels into empty environments, and tunes one small operator there.

Usage: python scripts/check_wheels.py FOLDER    (empty, or none yet)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

from wheels import PROJECTS, build

TRIALS = 6


def run(*command: str | Path, cwd: Path) -> None:
    """Runs a command, and fails with it."""
    print("+", *command, flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def require(condition: bool, message: str) -> None:
    """Ends the program with a message unless the condition holds."""
    if not condition:
        sys.exit(f"error: {message}")


def check_contents(wheels: list[Path]) -> None:
    """Checks that the core's wheel has what it needs and nothing of the repository's own."""
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        stray = [name for name in names if name.split("/")[0] in ("tests", "docs", "native")]
        require(not stray, f"{wheel.name} holds {stray[:3]}")
        if wheel.name.startswith("tensor_autotune"):
            for needed in ("autotune/py.typed", "autotune/_native."):
                found = any(name.startswith(needed) for name in names)
                require(found, f"{wheel.name} lacks {needed}")


def install(environment: Path, *wheels: Path) -> Path:
    """Installs wheels into an environment, made if there is none; returns its folder of programs.

    Files given by path are the only candidates for their names, so nothing on an index can take
    the place of a wheel that was just built.
    """
    python = environment / "bin" / "python"
    if not python.exists():
        venv.create(environment, with_pip=True)
    run(python, "-m", "pip", "install", "--quiet", *wheels, cwd=environment.parent)
    run(python, "-m", "pip", "check", cwd=environment.parent)
    return environment / "bin"


def tune(folder: Path, programs: Path, *backends: str) -> None:
    """Tunes a small matrix product and checks what is reported.

    Args:
        folder: Where records and results go.
        programs: The environment's folder of programs.
        backends: Names; that of the core is not asked for: it is the default.
    """
    run(programs / "autotune", "plugins", cwd=folder)
    name = "-".join(backends)
    result, database = folder / f"{name}.json", folder / f"{name}.db"
    # One thread: programs for several need an OpenMP runtime, which no wheel brings.
    options = ["--shape", "m=64,n=64,k=64", "--threads", "1", "--trials", str(TRIALS)]
    # So small that each of three backends gets a round.
    options += ["--round-size", str(TRIALS // 3)]
    options += ["--database", str(database), "--json", str(result)]
    if backends != ("native",):
        options += ["--backend", ",".join(backends)]
    run(programs / "autotune", "tune", "gemm", *options, cwd=folder)
    require(database.exists(), "the database was not written")
    winner = json.loads(result.read_text(encoding="utf-8"))
    reports = [winner, *(rival["result"] for rival in winner["rivals"])]
    found = sorted(report["backend"]["name"] for report in reports)
    require(found == sorted(backends), f"tuned by {found}, not by {backends}")
    trials = sum(report["trials"] for report in reports)
    require(trials <= TRIALS, f"{trials} trials, more than asked for")
    for report in reports:
        require(report["outcomes"].get("ok", 0) > 0, f"nothing was right: {report['outcomes']}")
    latency = winner["best"]["latency"]
    require(0 < latency < 1, f"the best latency is {latency!r} s")
    print(f"tuned by {name}: {trials} trials, best {latency:.3g} s")


def require_absent(programs: Path, *packages: str) -> None:
    """Checks that an environment has none of the packages, so that nothing can import them."""
    test = f"import importlib.util as u; print(*[n for n in {packages!r} if u.find_spec(n)])"
    command = [str(programs / "python"), "-c", test]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    require(not found, f"{programs.parent.name} has {found}")


def check_backends(folder: Path, wheels: Mapping[str, Path]) -> None:
    """Tunes with the core alone, with either plugin where the other is absent, and with all."""
    core, mlir, tvm = (
        wheels[name] for name in ("tensor_autotune", "autotune_mlir", "autotune_tvm")
    )
    only_tvm = install(folder / "only-tvm", core)
    require_absent(only_tvm, "mlir", "torch_mlir", "autotune_mlir", "tvm", "tvm_ffi")
    tune(folder, only_tvm, "native")
    install(folder / "only-tvm", tvm)
    require_absent(only_tvm, "mlir", "torch_mlir", "autotune_mlir")
    tune(folder, only_tvm, "tvm")
    programs = install(folder / "only-mlir", core, mlir)
    require_absent(programs, "tvm", "tvm_ffi", "autotune_tvm")
    tune(folder, programs, "mlir")
    install(folder / "only-mlir", tvm)
    tune(folder, programs, "native", "tvm", "mlir")


def main() -> None:
    """Runs every check in the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    require(not any(folder.iterdir()), f"{folder} is not empty")
    wheels = build(PROJECTS)
    check_contents(wheels)
    check_backends(folder, {wheel.name.split("-")[0]: wheel for wheel in wheels})
    print("wheels: ok")


if __name__ == "__main__":
    main()
