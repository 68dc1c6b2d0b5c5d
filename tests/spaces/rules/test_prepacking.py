"""Tests of which packings of constants the space has."""

from __future__ import annotations

import pytest

from autotune.ir.workloads import Workload, conv2d, dense, depthwise_conv2d, gemm
from autotune.sketches import STEP_TYPES, Pack, Prepack, Sketch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "test")
WITHOUT = ScheduleLimits(frozenset(STEP_TYPES) - {"prepack"}, 1 << 20, 512, "test")


def sketches(workload: Workload, limits: ScheduleLimits = LIMITS) -> dict[str, Sketch]:
    space = SketchSpace(workload, preset("avx2"), limits)
    return {sketch.name: sketch for sketch in space.sketches()}


def test_a_constant_is_packed_whole_and_before_the_first_call() -> None:
    found = sketches(gemm(m=32, n=48, k=32).with_constants("B"))
    assert "packed-panel" not in found  # it would be the program of "packed-root"
    packed = {name for name in found if name.startswith("packed")}
    assert packed == {"packed-root", "packed-root-rows", "packed-panel-outer"}
    for name, sketch in found.items():
        packs = [it for it in sketch.core_steps if isinstance(it, Pack) and it.operand == "B"]
        ahead = [it for it in sketch.core_steps if isinstance(it, Prepack)]
        assert [it.at for it in packs] == [None] * len(packs) and len(packs) == len(ahead)
        assert bool(ahead) == (name in packed)


def test_the_other_operands_stay_what_they_were() -> None:
    for names in ((), ("A",)):
        found = sketches(gemm(m=32, n=48, k=32).with_constants(*names))
        assert "packed-panel" in found
        assert not any(isinstance(it, Prepack) for s in found.values() for it in s.core_steps)


def test_a_backend_without_the_step_packs_constants_in_every_call() -> None:
    plain = sketches(dense(m=8, n=48, k=32), WITHOUT)
    constant = sketches(dense(m=8, n=48, k=32).with_constants("W"), WITHOUT)
    assert {name: it.steps for name, it in plain.items()} == {
        name: it.steps for name, it in constant.items()
    }


def test_a_constant_is_worth_packing_although_nothing_is_reused() -> None:
    """A product with a vector reads each weight once: only packed ones lie in the loops' order."""
    workload = dense(m=1, n=48, k=32)
    assert not any("packed" in name for name in sketches(workload))
    assert "packed-root" in sketches(workload.with_constants("W"))
    assert "packed-root" in sketches(dense(m=8, n=48, k=8).with_constants("W"))


@pytest.mark.parametrize(
    "workload", [conv2d(h=8, w=8, ci=4, co=16), depthwise_conv2d(h=8, w=8, c=16)]
)
def test_weights_of_convolutions(workload: Workload) -> None:
    found = sketches(workload.with_constants("W"))
    ahead = {name for name, it in found.items() if any(isinstance(s, Prepack) for s in it.steps)}
    assert ahead == {name for name in found if name.startswith("packed")}
