"""Builds each project's wheel once, and installs it into one environment after another.

Usage: python scripts/wheels.py PROJECT ... [--no-deps PROJECT ...]
       (such as . plugins/tvm, or .[torch] with an extra)

Wheels stay in .tox/wheels for as long as a project's sources stay the same. They are given to pip
by path and in one command, which makes them the only candidates for their names: nothing on an
index can take the place of a project here.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".tox" / "wheels"
PROJECTS = [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src", "native")


def digest(project: Path, sources: Iterable[str] = SOURCES) -> str:
    """Of all that a project's wheel is made from, and of the Python that it is for."""
    found = hashlib.sha256(sys.version.encode())
    for source in map(project.joinpath, sources):
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file() and path.suffix not in (".pyc", ".so"):
                found.update(f"{path.relative_to(project)}\n".encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


def distribution(project: Path) -> str:
    """A project's name as its wheel spells it."""
    return "tensor_autotune" if project == ROOT else f"autotune_{project.name}"


def build(projects: Iterable[Path]) -> list[Path]:
    """The wheels of projects, of which those that are out of date are built.

    Environments may be made side by side: one builds, and the others wait for it.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(projects)


def _build(projects: Iterable[Path]) -> list[Path]:
    folders = {project: CACHE / distribution(project) / digest(project) for project in projects}
    missing = {project: folder for project, folder in folders.items() if not folder.exists()}
    if missing:
        fresh = CACHE / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        # What builds plugins is the same for all: where it is installed, not once for each.
        at_hand = importlib.util.find_spec("hatchling") is not None
        plain = [project for project in missing if project != ROOT and at_hand]
        others = [project for project in missing if project not in plain]
        for projects, how in ((plain, ["--no-build-isolation"]), (others, [])):
            if projects:
                pip("wheel", "--no-deps", *how, "--wheel-dir", fresh, *projects)
        made = {wheel.name.split("-")[0]: wheel for wheel in fresh.glob("*.whl")}
        for project, folder in missing.items():
            shutil.rmtree(folder.parent, ignore_errors=True)
            folder.mkdir(parents=True)
            wheel = made[distribution(project)]
            wheel.rename(folder / wheel.name)
    return [next(folder.glob("*.whl")) for folder in folders.values()]


def install(requests: Sequence[str], alone: Sequence[str]) -> None:
    """Bring this environment's projects up to date, some without what they depend on."""
    split = [request.partition("[") for request in (*requests, *alone)]
    wheels = build((ROOT / path).resolve() for path, _, _ in split)
    wanted = [f"{wheel}{''.join(extra[1:])}" for wheel, extra in zip(wheels, split, strict=True)]
    done = Path(sys.prefix) / "wheels.txt"
    if done.exists():
        if done.read_text(encoding="utf-8").splitlines() == wanted:
            return
        # One of the same version is otherwise left as it is.
        pip("uninstall", "--yes", *(wheel.name.split("-")[0] for wheel in wheels))
    pip("install", *wanted[: len(requests)])
    if alone:
        pip("install", "--no-deps", *wanted[len(requests) :])
    done.write_text("\n".join(wanted), encoding="utf-8")


def pip(*arguments: str | Path) -> None:
    """Runs pip, and fails with it."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *map(str, arguments)], check=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    given = [*sys.argv[1:], "--no-deps"]
    at = given.index("--no-deps")
    install(given[:at], given[at + 1 : len(sys.argv) - 1])
