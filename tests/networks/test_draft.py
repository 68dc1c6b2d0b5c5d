"""Schedules by the draft model alone."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload
from autotune.ir.workloads.builders import conv2d, gemm, softmax
from autotune.models.pruning import PSA
from autotune.networks.graph_program import draft_candidate
from autotune.plugins import Context
from autotune.sketches import CandidateBatch
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu

MACHINE = detect_cpu().with_cores(2)
WORKLOADS = [
    gemm(m=128, n=96, k=64),
    conv2d(n=1, h=14, w=14, ci=32, co=64, kh=3, kw=3),
    softmax(m=64, n=128),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_a_draft_is_as_good_as_the_best_of_the_whole_space(workload: Workload) -> None:
    space = SketchSpace(workload, MACHINE, NativeBackend().limits(MACHINE))
    drafted = draft_candidate(workload, MACHINE)
    assert drafted is not None
    batch = CandidateBatch.of([drafted])
    assert space.contains(batch).all()
    model = PSA(Context(target=MACHINE, workload=workload))
    others = model.score(space.sample(128, np.random.default_rng(0)))
    assert model.score(batch)[0] > 0.7 * np.nanmax(others)


def test_the_same_workload_gets_the_same_draft() -> None:
    first, second = (draft_candidate(gemm(m=64, n=64, k=64), MACHINE) for _ in range(2))
    assert first is not None and second is not None and first.digest == second.digest
