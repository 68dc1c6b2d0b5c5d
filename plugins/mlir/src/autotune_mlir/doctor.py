"""Findings of `autotune doctor` on this installation of MLIR."""

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
from autotune_mlir.versions import llvm_version
MLIRBackend().warm_up()
print(llvm_version())
"""
_PROBE_SECONDS = 60


def findings() -> list[Finding]:
    """Every finding; MLIR is tried in a process of its own, so that a crash is one of them."""
    return [*_bindings(), _openmp()]


def _bindings() -> list[Finding]:
    label = "bindings"
    try:
        chosen = bindings.chosen()
        version = bindings.bindings_version()
    except AutotuneError as error:
        return [(label, "error", str(error))]
    if version.replace(" ", "==") in chosen.install.split():
        return [(label, "ok", version), _tried()]
    advice = f"{version} was not tested; pip install {chosen.install}"
    return [(label, "warning", advice), _tried()]


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
        return ("code generator", "error", f"trying it failed: {error}")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
        problem = f"compiling fails with exit status {done.returncode}: {last}"
        return ("code generator", "error", problem)
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
