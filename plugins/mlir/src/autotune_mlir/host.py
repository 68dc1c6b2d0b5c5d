"""Targets that this host compiles for and runs, and findings on its installation of MLIR."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache

from autotune.errors import AutotuneError, UnsupportedTarget
from autotune.targets import Target, check_is_x86_64, check_runs_here, detect_cpu
from autotune_mlir import bindings, openmp

__all__ = ["check_measuring", "disabled_features", "findings"]


def check_measuring(target: Target, threads: int) -> None:
    """Refuse what cannot be run and timed here.

    Raises:
        UnsupportedTarget: it is no x86-64 CPU, this machine lacks one of its features, or there
            is no OpenMP runtime and ``threads`` is more than one.
    """
    check_is_x86_64(target, "mlir")
    check_runs_here(target, "mlir")
    if threads > 1 and openmp.find() is None:
        raise UnsupportedTarget(
            f"{openmp.ADVICE}; programs for one thread need none (`--threads 1`)"
        )


def disabled_features(target: Target) -> tuple[str, ...]:
    """Features of this machine that a program for ``target`` has to do without, by LLVM's names.

    The JIT compiler takes the host for the target by default.
    """
    if target.processor == detect_cpu().processor:
        return ()
    return tuple(sorted(_host_features() - set(target.features)))


@lru_cache(maxsize=1)
def _host_features() -> frozenset[str]:
    return frozenset(detect_cpu().features)


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
