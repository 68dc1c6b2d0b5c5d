"""Rows that are divided by a sum over them."""

from __future__ import annotations

from attrs import evolve

from autotune.ir.expressions import Binary, Constant, Load, Unary, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import Sketch, SoftwarePipeline
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target
from autotune.targets.target import Cache

__all__ = ["layer_norm", "pipelined", "rms_norm", "scaled_rows", "with_small_cache"]


def rms_norm(m: int, n: int) -> Workload:
    """``X / sqrt(sum(X * X))`` of each row."""
    x, squares = _load("X", "i", "j"), Binary("mul", _load("X", "i", "k"), _load("X", "i", "k"))
    stages = (
        _sum("S", m, n, squares),
        _rows("Y", m, n, Binary("div", x, Unary("sqrt", _load("S", "i")))),
    )
    return Workload("rms_norm", (Tensor("X", (m, n), "float32"),), stages, ("Y",))


def layer_norm(m: int, n: int) -> Workload:
    """``(X - mean) / sqrt(sum((X - mean) ** 2))`` of each row."""
    parts = Constant(1 / n, "float32")
    mean = Binary("mul", _load("T", "i"), parts)
    off = Binary("sub", _load("X", "i", "k"), mean)
    centred = Binary("sub", _load("X", "i", "j"), mean)
    stages = (
        _sum("T", m, n, _load("X", "i", "k")),
        _sum("V", m, n, Binary("mul", off, off)),
        _rows("Y", m, n, Binary("div", centred, Unary("sqrt", _load("V", "i")))),
    )
    return Workload("layer_norm", (Tensor("X", (m, n), "float32"),), stages, ("Y",))


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


def _load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(var(axis) for axis in axes))


def _sum(name: str, m: int, n: int, body: Binary | Load) -> Stage:
    axes = (Axis("i", m), Axis("k", n, "reduce"))
    return Stage(Tensor(name, (m,), "float32"), axes, body, "add")


def _rows(name: str, m: int, n: int, body: Binary) -> Stage:
    return Stage(Tensor(name, (m, n), "float32"), (Axis("i", m), Axis("j", n)), body)


def scaled_rows(b: int, m: int, n: int) -> Workload:
    """Rows in two dimensions, times their sums: blocks take the fused loops over both."""
    tensors = {name: Tensor(name, (b, m, n)[: 2 + (name != "S")], "float32") for name in "XSY"}
    axes = [Axis("b", b), Axis("i", m), Axis("k", n)]
    x, s = (Load(name, tuple(map(var, order))) for name, order in (("X", "bik"), ("S", "bi")))
    sums = Stage(tensors["S"], (*axes[:2], Axis("k", n, "reduce")), x, "add")
    stages = (sums, Stage(tensors["Y"], tuple(axes), Binary("mul", x, s)))
    return Workload("scaled_rows", (tensors["X"],), stages, ("Y",))
