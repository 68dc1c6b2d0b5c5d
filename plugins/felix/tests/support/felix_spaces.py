"""Sketches for tests: of a CPU and a GPU that are described, not detected."""

from __future__ import annotations

from functools import cache

from autotune import make_workload
from autotune.sketches import Sketch
from autotune.spaces import SketchSpace
from autotune.spaces.feasible import FeasibleSet, build_feasible_set
from autotune.targets import preset
from autotune.testing.reference_backend import ReferenceBackend

SHAPES = {
    "gemm": {"m": 60, "n": 128, "k": 98},
    "conv2d": {"h": 14, "w": 14, "ci": 24, "co": 64, "pad": 1, "relu": 1},
    "softmax": {"m": 22, "n": 96},
}


@cache
def space(name: str, machine: str) -> SketchSpace:
    """The sketches of a workload on a ``"cpu"`` or ``"gpu"``."""
    target = preset({"cpu": "skylake-avx512", "gpu": "a100"}[machine])
    workload = make_workload(name, SHAPES[name])
    return SketchSpace(workload, target, ReferenceBackend().limits(target))


@cache
def every_sketch(*names: str) -> tuple[tuple[str, Sketch, FeasibleSet], ...]:
    """A name, the sketch and its feasible set for every sketch of workloads on both machines."""
    return tuple(
        (f"{machine} {name} {sketch.name}", sketch, build_feasible_set(sketch))
        for machine in ("cpu", "gpu")
        for name in names
        for sketch in space(name, machine).sketches()
    )


def sketches() -> tuple[tuple[str, Sketch, FeasibleSet], ...]:
    """Return what :func:`every_sketch` does for some whose parameters and constraints differ."""
    return tuple(item for item in every_sketch(*SHAPES) if item[0] in _DIFFERENT)


_DIFFERENT = (
    "cpu gemm direct",
    "cpu gemm packed-root-rows",
    "cpu conv2d plain-outer",
    "cpu softmax row-fusion-narrow",
    "gpu gemm shared",
    "gpu conv2d shared",
    "gpu softmax row-fusion-kept",
)
