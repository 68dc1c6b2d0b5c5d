"""Rows that are written while the next one is computed."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("tvm")

from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import lower_module
from autotune_tvm.scheduled import scheduled_module
from row_norms import layer_norm, pipelined, rms_norm, with_small_cache
from tvm_lowered import lowered_nest, numbers_of

from autotune.ir.workloads import Workload, softmax
from autotune.nest import derive_nest
from autotune.sketches import Candidate, SoftwarePipeline
from autotune.spaces import SketchSpace
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate, request_for

BACKEND = TVMBackend()
TARGET = with_small_cache(detect_cpu())
WORKLOADS = (softmax(m=48, n=256), rms_norm(32, 192), layer_norm(48, 64))


def candidates(workload: Workload, cores: int = 1) -> list[Candidate]:
    """One of each sketch in which a row is written during the next one."""
    target = TARGET.with_cores(cores)
    limits = BACKEND.limits(target)
    names = {sketch.name for sketch in pipelined(workload, target, limits)}
    found: dict[str, Candidate] = {}
    space = SketchSpace(workload, target, limits)
    for candidate in space.sample(200, np.random.default_rng(cores)):
        if candidate.sketch.name in names:
            found.setdefault(candidate.sketch.name, candidate)
    assert len(found) == 2
    return list(found.values())


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_the_same_is_computed(workload: Workload, cores: int) -> None:
    for candidate in candidates(workload, cores):
        check_candidate(BACKEND, candidate, TARGET.with_cores(cores), threads=cores)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda it: it.name)
def test_allocations_are_those_of_the_nest(workload: Workload) -> None:
    for candidate in candidates(workload):
        lowered = lowered_nest(scheduled_module(request_for(candidate, TARGET)))
        shapes = [numbers_of(it.shape, candidate) for it in derive_nest(candidate.sketch).buffers]
        assert Counter(shapes) == Counter(lowered.allocations)


def test_pieces_of_a_row_take_turns_with_those_of_the_next() -> None:
    """And the last row follows behind the loop; without the step there is no condition."""
    candidate = next(
        it for it in candidates(WORKLOADS[0]) if it.config["Y.j.0"] > 1 and it.config["E.j.0"] > 1
    )
    without = [it for it in candidate.sketch.steps if not isinstance(it, SoftwarePipeline)]
    sketch = evolve(candidate.sketch, steps=tuple(without))
    text, other = (
        str(lower_module(scheduled_module(request_for(it, TARGET)), TARGET, 1))
        for it in (candidate, Candidate(sketch, candidate.values))
    )
    stores = r'call_extern\("void", "autotune_stream_float32_\d+"'
    assert len(re.findall(stores, other)) == 1
    assert len(re.findall(stores, text)) == 2
    assert re.search(r"if i_1 > 0:\n(.*\n)*? *T\." + stores, text) or "0 < i_1" in text
