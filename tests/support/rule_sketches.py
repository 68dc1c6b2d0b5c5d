"""Sketches that the built-in rules make of small workloads."""

from __future__ import annotations

from typing import Any

from autotune.ir.expressions import Load, var
from autotune.ir.workloads import Workload
from autotune.sketches import STEP_TYPES, Sketch, Step
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits
from autotune.spaces.rules import generate_sketches
from autotune.targets import preset

__all__ = [
    "COLUMNS",
    "DEPTH",
    "EVERY_PACKING",
    "LIMITS",
    "NOT_BLOCKED",
    "ROWS",
    "ROW_FUSIONS",
    "TARGET",
    "load",
    "sketches",
    "steps_of",
]

TARGET = preset("skylake-avx512-4core")

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "backend test")

ROWS, COLUMNS, DEPTH = 32, 48, 20


def sketches(workload: Workload, limits: ScheduleLimits = LIMITS) -> tuple[Sketch, ...]:
    return generate_sketches(workload, TARGET, limits, BUILT_IN_RULES).sketches


def steps_of(workload: Workload, kind: type[Any]) -> set[Step]:
    """Steps of one kind, which every sketch of the workload must agree on."""
    found = [
        {step for step in sketch.steps if isinstance(step, kind)} for sketch in sketches(workload)
    ]
    assert all(steps == found[0] for steps in found)
    return found[0]


def load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(var(axis) for axis in axes))


ROW_FUSIONS = [
    f"{place}-fusion{recompute}{partials}"
    for place in ("row", "block")
    for recompute in ("", "-recompute")
    for partials in ("", "-narrow", "-wide")
]

NOT_BLOCKED = ["direct", "plain-outer", "plain-rows"]

EVERY_PACKING = [
    *NOT_BLOCKED,
    "packed-root",
    "packed-panel",
    "packed-root-rows",
    "packed-panel-outer",
]
