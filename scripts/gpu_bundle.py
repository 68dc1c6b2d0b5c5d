"""Makes what a machine with a GPU and without any registry needs to check this project there.

    python scripts/gpu_bundle.py FOLDER [--python 3.12] [--present NAME,...] [--part-mib 48]

The folder, which must be empty, gets the sources of the last commit, wheels of the plugins (and of
the core, where Python is the running one; elsewhere it is built there, in a quarter of a minute),
and of all that these and the tests need for Linux on x86-64, but for what is ``--present`` there.
Files are cut into parts, and these spread over folders ``load-N`` of at most ``--part-mib``, for
machines that take only so much at a time. `gpu_check.sh` of the bundle joins and runs all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from wheels import PROJECTS, ROOT, build, pip

SCRIPTS = ("gpu_check.sh", "gpu_reassemble.py")
SOURCE = "autotune-source.tar.gz"
# MLIR has no part in programs for GPUs.
PLUGINS = [it for it in PROJECTS if it not in (ROOT, ROOT / "plugins" / "mlir")]
REQUIREMENTS = (
    *("pytest>=8,<10", "pytest-timeout>=2.4,<3", "pytest-xdist>=3.6,<4", "hypothesis>=6.100"),
    *("scikit-build-core>=0.11,<2", "nanobind>=2.4,<4", "cmake", "ninja"),
    *("nvidia-cuda-nvrtc", "nvidia-cuda-cccl", "nvidia-cuda-runtime"),
)
# What is never carried: the project's own, which is built here, and what is too large.
NEVER = ("tensor-autotune", "torch")
# pip matches these exactly.
PLATFORMS = (*(f"manylinux_2_{it}_x86_64" for it in range(39, 4, -1)), "manylinux2014_x86_64")
OLD_PLATFORMS = ("manylinux2010_x86_64", "manylinux1_x86_64")
MIB = 1 << 20


def main() -> int:
    """Run; returns the exit status."""
    options = options_of()
    folder: Path = options.folder
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"error: {folder} is not empty")
    with tempfile.TemporaryDirectory(prefix="gpu-bundle-") as scratch:
        files = Path(scratch)
        archive_sources(files / SOURCE)
        for wheel in build(projects(options.python)):
            shutil.copy(wheel, files)
        download(requirements(), options.python, files)
        leave_out(files, options.present)
        manifest = write_parts(sorted(files.iterdir()), folder, options.part_mib * MIB)
    for script in SCRIPTS:
        shutil.copy(ROOT / "scripts" / script, folder)
    text = json.dumps({"python": options.python, "files": manifest}, indent=1)
    (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")
    for load in sorted(folder.glob("load-*")):
        size = sum(path.stat().st_size for path in load.iterdir())
        print(f"{load.name}: {size / MIB:5.1f} MiB, {len(list(load.iterdir()))} files")
    print(f"there: sh {folder.name}/gpu_check.sh {folder.name}")
    return 0


def options_of() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", type=python_version, metavar="X.Y")
    parser.add_argument(
        "--present",
        default=frozenset(),
        type=lambda text: frozenset(map(normal, text.split(","))),
        metavar="NAME,...",
        help="distributions that the machine has",
    )
    parser.add_argument("--part-mib", default=48, type=part_size, metavar="MIB")
    return parser.parse_args()


def python_version(text: str) -> str:
    """``3.10`` or later, in two numbers."""
    match = re.fullmatch(r"3\.(\d{1,2})", text)
    if match is None or int(match[1]) < 10:
        raise argparse.ArgumentTypeError(f"{text!r} is no version such as 3.12, 3.10 or later")
    return text


def part_size(text: str) -> int:
    """1 to 63 MiB."""
    if not text.isdecimal() or not 1 <= int(text) <= 63:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 63")
    return int(text)


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def projects(python: str) -> list[Path]:
    """Projects whose wheels are built here: the core's is for one version of Python."""
    running = "{}.{}".format(*sys.version_info[:2])
    return [ROOT, *PLUGINS] if python == running else PLUGINS


def archive_sources(path: Path) -> None:
    """Pack the last commit."""
    command = ["git", "archive", "--format=tar.gz", "--output", str(path), "HEAD"]
    subprocess.run(command, cwd=ROOT, check=True)


def requirements() -> list[str]:
    """Dependencies of the core, the plugins and the tests, but for each other."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    found = list(REQUIREMENTS)
    for project in (ROOT, *PLUGINS):
        with (project / "pyproject.toml").open("rb") as file:
            found += tomllib.load(file)["project"]["dependencies"]
    return [it for it in dict.fromkeys(found) if name_of(it) not in NEVER]


def name_of(requirement: str) -> str:
    """``attrs`` of ``attrs>=23.2``."""
    return normal(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])


def download(wanted: Sequence[str], python: str, folder: Path) -> None:
    """Wheels of requirements, and of what these need, for Linux on x86-64."""
    platforms = [f"--platform={it}" for it in (*PLATFORMS, *OLD_PLATFORMS)]
    pip(
        *("download", "--only-binary=:all:", f"--python-version={python}"),
        *("--implementation=cp", *platforms, f"--dest={folder}", *wanted),
    )


def leave_out(folder: Path, present: Iterable[str]) -> None:
    """Remove wheels of what the machine has.

    Raises:
        SystemExit: there is no wheel of such a name: it may be misspelled.
    """
    wheels = {normal(path.name.split("-")[0]): path for path in folder.glob("*.whl")}
    for name in present:
        if name not in wheels:
            known = ", ".join(sorted(wheels))
            raise SystemExit(
                f"error: {name} is not needed, so need not be present; needed: {known}"
            )
        wheels[name].unlink()


def write_parts(files: Sequence[Path], folder: Path, limit: int) -> list[dict[str, object]]:
    """Cut files into parts, spread these over ``load-N`` of at most ``limit`` bytes each.

    Returns:
        What the manifest says of each file.
    """
    manifest: list[dict[str, object]] = []
    number, room = 0, limit
    for file in files:
        content = file.read_bytes()
        parts = []
        begin = 0
        while begin < len(content) or not parts:
            # A file that fits into a folder of its own is not cut.
            if room < min(limit, len(content) - begin):
                number, room = number + 1, limit
            piece = content[begin : begin + room]
            begin, room = begin + len(piece), room - len(piece)
            whole = len(piece) == len(content)
            name = file.name if whole else f"{file.name}.part{len(parts):02}"
            path = folder / f"load-{number}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(piece)
            parts.append({"path": f"{path.parent.name}/{name}", "size": len(piece)})
        digest = hashlib.sha256(content).hexdigest()
        manifest.append(
            {"name": file.name, "size": len(content), "sha256": digest, "parts": parts}
        )
    return manifest


if __name__ == "__main__":
    sys.exit(main())
