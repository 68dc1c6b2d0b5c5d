"""Builds every wheel, installs them into an empty environment, and tunes one small operator there.

Usage: python scripts/check_wheels.py FOLDER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
TRIALS = 4


def run(*command: str | Path, cwd: Path) -> None:
    """Runs a command, and fails with it."""
    print("+", *command, flush=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def require(condition: bool, message: str) -> None:
    """Ends the program with a message unless the condition holds."""
    if not condition:
        sys.exit(f"error: {message}")


def build(folder: Path) -> list[Path]:
    """Builds one wheel for each project."""
    for old in folder.glob("*.whl"):
        old.unlink()
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder)
    run(*pip, *PROJECTS, cwd=folder)
    wheels = sorted(folder.glob("*.whl"))
    require(len(wheels) == len(PROJECTS), f"{len(PROJECTS)} projects gave {len(wheels)} wheels")
    return wheels


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


def install(folder: Path, wheels: list[Path]) -> Path:
    """Installs the wheels into a new environment; returns its folder of programs.

    Files given by path are the only candidates for their names, so nothing on an index can take
    the place of a wheel that was just built.
    """
    environment = folder / "environment"
    venv.create(environment, clear=True, with_pip=True)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", *wheels, cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)
    return environment / "bin"


def tune(folder: Path, programs: Path) -> None:
    """Tunes a small matrix product and checks what it reports."""
    run(programs / "autotune", "plugins", cwd=folder)
    result, database = folder / "result.json", folder / "smoke.db"
    for old in folder.glob("smoke.db*"):
        old.unlink()
    result.unlink(missing_ok=True)
    options = ["--shape", "m=64,n=64,k=64", "--trials", str(TRIALS)]
    options += ["--database", str(database), "--json", str(result)]
    run(programs / "autotune", "tune", "gemm", *options, cwd=folder)
    require(database.exists(), "the database was not written")
    report = json.loads(result.read_text(encoding="utf-8"))
    require(report["trials"] <= TRIALS, f"{report['trials']} trials, more than asked for")
    require(report["outcomes"].get("ok", 0) > 0, f"nothing was right: {report['outcomes']}")
    latency = report["best"]["latency"]
    require(0 < latency < 1, f"the best latency is {latency!r} s")
    print(f"tuned: {report['trials']} trials, best {latency:.3g} s")


def main() -> None:
    """Runs every check in the folder that the command line names."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    wheels = build(folder)
    check_contents(wheels)
    tune(folder, install(folder, wheels))
    print("wheels: ok")


if __name__ == "__main__":
    main()
