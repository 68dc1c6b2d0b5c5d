"""Targets that can be compiled for, and those that run on this host."""

from __future__ import annotations

from functools import lru_cache

from autotune.errors import UnsupportedTarget
from autotune.targets import Target, check_is_x86_64, check_runs_here, detect_cpu
from autotune_mlir import openmp
from autotune_mlir.passes.vector_instructions import VectorInstructions

__all__ = ["check_measuring", "check_target", "disabled_features", "vector_instructions"]


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


def vector_instructions(target: Target) -> VectorInstructions:
    """What a target does to vectors by single instructions."""
    features = set(target.features)
    least_masked_bits, scaled_lanes = 128, frozenset[int]()
    if features & {"avx", "avx2", "avx512f"}:
        least_masked_bits = 32
    if features >= {"avx512bw", "avx512vl"}:
        least_masked_bits = 8
    if "avx512f" in features:
        scaled_lanes = frozenset({4, 8, 16} if "avx512vl" in features else {16})
    return VectorInstructions(least_masked_bits, scaled_lanes)


@lru_cache(maxsize=1)
def _host_features() -> frozenset[str]:
    return frozenset(detect_cpu().features)
