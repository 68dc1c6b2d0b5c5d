"""Scripts whose temporary directory is a file system of their own, which is soon full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from needs import skip_here
from python_processes import python_environment

_ALONE = ["unshare", "--user", "--map-root-user", "--mount"]


def run_on_small_disk(script: str, folder: Path, options: str) -> str:
    """Standard output of a script that runs with ``TMPDIR`` on a small file system.

    Args:
        script: Python source.
        folder: An empty folder, where the file system is mounted for the script alone.
        options: Of ``tmpfs``, such as ``size=4m``.
    """
    try:
        allowed = subprocess.run([*_ALONE, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        skip_here("no file system may be mounted")
    mount = f'mount -t tmpfs -o {options} none "$TMPDIR" && exec "$@"'
    finished = subprocess.run(
        [*_ALONE, "sh", "-c", mount, "sh", sys.executable, "-c", script],
        env=python_environment(TMPDIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
