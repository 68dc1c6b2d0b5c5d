"""Sketches with instructions, printed for processors that have them and run on this one."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_instructions import emulated
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_machine import TileMachine

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload, batch_matmul, conv2d, gemm
from autotune.sketches import Candidate, Tensorize
from autotune.spaces import SketchSpace
from autotune.targets import Target, preset
from autotune.testing.programs import check_executable

BACKEND = NativeBackend()
TARGETS = ("cascadelake-1core", "alderlake-1core", "sapphirerapids-1core")

# Rows and depths that calls fill, and others.
ROWS = st.sampled_from((1, 3, 7, 14, 16, 28, 32, 33))
COLUMNS = st.sampled_from((1, 8, 16, 21, 32, 40))
DEPTH = st.sampled_from((4, 6, 32, 64, 67, 128))
DTYPES = st.sampled_from(("int8", "u8s8s32", "bfloat16"))
FLAG = st.integers(0, 1)

WORKLOADS = st.one_of(
    st.builds(gemm, m=ROWS, n=COLUMNS, k=DEPTH, dtype=DTYPES),
    st.builds(batch_matmul, b=st.just(2), m=ROWS, n=COLUMNS, k=DEPTH, dtype=DTYPES),
    st.builds(
        conv2d,
        h=st.integers(3, 7),
        w=st.sampled_from((7, 14, 16)),
        ci=st.sampled_from((4, 32, 64)),
        co=COLUMNS,
        pad=FLAG,
        stride=st.integers(1, 2),
        bias=FLAG,
        relu=FLAG,
        dtype=DTYPES,
    ),
)


def candidates_of(workload: Workload, target: Target, seed: int = 0) -> list[Candidate]:
    """One of each sketch, whatever this machine is."""
    space = SketchSpace(workload, target, BACKEND.limits(target))
    found = space.sample(2 * len(space.sketches()), np.random.default_rng(seed))
    return list({it.sketch.digest: it for it in found}.values())


def calls_of(candidate: Candidate) -> list[str]:
    """Names of the instructions that its steps call."""
    return [step.intrinsic for step in candidate.sketch.steps if isinstance(step, Tensorize)]


def check(candidate: Candidate, target: Target, threads: int = 1) -> TileMachine:
    """Check what a candidate computes between guarded pages; returns what its tiles did."""
    machine = TileMachine()
    machine.functions["syscall"](0, 0, 0)
    made = emulated(candidate, target, machine, threads)
    check_executable(made, candidate.sketch.workload, about=str(candidate.config))
    assert machine.faults == []
    assert machine.counts["ldtilecfg"] == machine.counts["tilerelease"]
    return machine


@pytest.mark.parametrize("name", TARGETS)
def test_every_sketch_computes_what_the_reference_does(name: str) -> None:
    target, called = preset(name), set()

    @settings(max_examples=max(3, settings().max_examples // 8))
    @given(WORKLOADS, st.integers(0, 2**16))
    def run(workload: Workload, seed: int) -> None:
        for candidate in candidates_of(workload, target, seed):
            check(candidate, target)
            called.update(calls_of(candidate))

    run()
    assert called
