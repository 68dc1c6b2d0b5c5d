"""Sketches that the built-in rules make of small workloads."""

from __future__ import annotations

from typing import Any

from autotune.ir.expressions import Binary, Constant, Load, ScalarExpr, Unary, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import STEP_TYPES, Sketch, Step
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits
from autotune.spaces.rules import generate_sketches
from autotune.targets import preset

__all__ = [
    "A",
    "B",
    "COLUMNS",
    "DEPTH",
    "EVERY_PACKING",
    "LIMITS",
    "NOT_BLOCKED",
    "ROWS",
    "ROW_FUSIONS",
    "TARGET",
    "X",
    "chain",
    "exponential",
    "load",
    "matrix",
    "pointwise",
    "product",
    "relu",
    "row_reduction",
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


def matrix(name: str, rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    return Tensor(name, (rows, columns), "float32")


def pointwise(name: str, body: ScalarExpr, rows: int = ROWS, columns: int = COLUMNS) -> Stage:
    return Stage(matrix(name, rows, columns), (Axis("i", rows), Axis("j", columns)), body)


def product(name: str = "C") -> Stage:
    axes = (Axis("i", ROWS), Axis("j", COLUMNS), Axis("k", DEPTH, "reduce"))
    body = Binary("mul", load("A", "i", "k"), load("B", "k", "j"))
    return Stage(matrix(name), axes, body, "add")


def row_reduction(name: str, source: str, combiner: str = "add") -> Stage:
    axes = (Axis("i", ROWS), Axis("k", COLUMNS, "reduce"))
    return Stage(Tensor(name, (ROWS,), "float32"), axes, load(source, "i", "k"), combiner)


A, B, X = matrix("A", ROWS, DEPTH), matrix("B", DEPTH, COLUMNS), matrix("X")


def relu(tensor: str) -> ScalarExpr:
    return Binary("max", load(tensor, "i", "j"), Constant(0.0, "float32"))


def exponential(tensor: str) -> ScalarExpr:
    return Unary("exp", load(tensor, "i", "j"))


def chain(*stages: Stage, outputs: tuple[str, ...] = (), inputs: tuple[Tensor, ...]) -> Workload:
    return Workload("made", inputs, stages, outputs or (stages[-1].name,))


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
