"""Other Python processes, which find what this one can import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def python_environment(**variables: str | None) -> dict[str, str]:
    """The variables of this process and its import path, with these instead or as well.

    Those that are None are left out.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    changed = {**os.environ, "PYTHONPATH": path, **variables}
    return {name: value for name, value in changed.items() if value is not None}


def start_python(
    *arguments: str, cwd: Path | None = None, **variables: str | None
) -> subprocess.Popen[str]:
    """Start ``python ...`` in a session of its own, with pipes for its three streams."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=python_environment(**variables),
        start_new_session=True,
    )


def run_python(*arguments: str, cwd: Path | None = None, **variables: str | None) -> str:
    """Standard output of ``python ...``, which has to end well."""
    with start_python(*arguments, cwd=cwd, **variables) as process:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, f"{arguments}\n{output}\n{errors}"
    return output
