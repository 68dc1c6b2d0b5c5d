"""Targets that can be compiled for, and those that run on this host."""

from __future__ import annotations

from functools import lru_cache

from autotune.errors import UnsupportedTarget
from autotune.targets import Target, check_is_x86_64, check_runs_here, detect_cpu
from autotune_mlir import openmp

__all__ = ["check_measuring", "check_target", "disabled_features"]


def check_target(target: Target) -> None:
    """Refuse what this plugin cannot compile for, without importing MLIR.

    Raises:
        UnsupportedTarget: it is no x86-64 CPU.
    """
    if target.kind != "cpu":
        raise UnsupportedTarget(
            f"backend 'mlir' compiles for CPUs; target {target.name!r} is of kind {target.kind!r}"
        )
    check_is_x86_64(target, "mlir")


def check_measuring(target: Target, threads: int) -> None:
    """Refuse what cannot be run and timed here.

    Raises:
        UnsupportedTarget: it is no x86-64 CPU, this machine lacks one of its features, or there
            is no OpenMP runtime and ``threads`` is more than one.
    """
    check_target(target)
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
