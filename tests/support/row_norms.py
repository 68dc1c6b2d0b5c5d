"""Rows that are divided by a sum over them."""

from __future__ import annotations

from attrs import evolve
from written import written

from autotune.ir.workloads import Workload
from autotune.sketches import Sketch, SoftwarePipeline
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target
from autotune.targets.target import Cache


def rms_norm(m: int, n: int) -> Workload:
    """``X / sqrt(sum(X * X))`` of each row."""
    return written(
        "X[i, j]",
        "S[i; k] += X[i, k] * X[i, k]",
        "Y[i, j] = X[i, j] / sqrt(S[i])",
        name="rms_norm",
        i=m,
        j=n,
        k=n,
    )


def layer_norm(m: int, n: int) -> Workload:
    """``(X - mean) / sqrt(sum((X - mean) ** 2))`` of each row."""
    return written(
        "X[i, j]",
        "T[i; k] += X[i, k]",
        "V[i; k] += (X[i, k] - T[i] * part) * (X[i, k] - T[i] * part)",
        "Y[i, j] = (X[i, j] - T[i] * part) / sqrt(V[i])",
        name="layer_norm",
        i=m,
        j=n,
        k=n,
        part=1 / n,
    )


def scaled_rows(b: int, m: int, n: int) -> Workload:
    """Rows in two dimensions, times their sums: blocks take the fused loops over both."""
    return written(
        "X[b, i, k]",
        "S[b, i; k] += X[b, i, k]",
        "Y[b, i, k] = X[b, i, k] * S[b, i]",
        name="scaled_rows",
        b=b,
        i=m,
        k=n,
    )


def with_small_cache(target: Target) -> Target:
    """A processor of which the only cache holds less than most results."""
    return evolve(target, caches=(Cache(1, 1 << 10, False),))


def pipelined(workload: Workload, target: Target, limits: ScheduleLimits) -> list[Sketch]:
    """The sketches in which a row is written while the next one is computed."""
    return [
        sketch
        for sketch in SketchSpace(workload, target, limits).sketches()
        if any(isinstance(step, SoftwarePipeline) for step in sketch.core_steps)
    ]
