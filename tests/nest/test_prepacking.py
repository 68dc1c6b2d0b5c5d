"""Constants that are packed before the first call: no part of what is counted and timed."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload, conv2d, dense, gemm
from autotune.models import ModelContext
from autotune.models.features.nest import pooled_features
from autotune.models.pruning import PSA
from autotune.nest import derive_nest, describe, nest_tape
from autotune.sketches import (
    STEP_TYPES,
    Candidate,
    CandidateBatch,
    Pack,
    Prepack,
    Sketch,
    prepacked_operands,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset
from autotune.testing.programs import check_nest

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 20, 512, "test")
TARGET = preset("avx2")
WORKLOADS = {
    "gemm": gemm(m=20, n=40, k=24).with_constants("B"),
    "dense": dense(m=20, n=40, k=24).with_constants("W"),
    "dense of one row": dense(m=1, n=40, k=24).with_constants("W"),
    "conv2d": conv2d(h=8, w=8, ci=16, co=24, kh=3, kw=3, pad=1).with_constants("W"),
}


def sampled(workload: Workload, each: int = 3) -> list[Candidate]:
    space = SketchSpace(workload, TARGET, LIMITS)
    return list(space.sample(each * len(space.sketches()), np.random.default_rng(1)))


def given_packed(workload: Workload) -> list[Candidate]:
    """Candidates that are given packed operands."""
    return [it for it in sampled(workload) if prepacked_operands(it)]


def without_prepack(sketch: Sketch) -> Sketch:
    """The same schedule of a program that packs whenever it runs."""
    return evolve(sketch, steps=tuple(it for it in sketch.steps if not isinstance(it, Prepack)))


@pytest.mark.parametrize("name", WORKLOADS)
def test_nests_with_packed_constants_compute_the_workload(name: str) -> None:
    for candidate in given_packed(WORKLOADS[name]):
        check_nest(candidate, tolerance=1e-4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_packing_a_constant_is_no_part_of_a_call(name: str) -> None:
    for candidate in given_packed(WORKLOADS[name]):
        (operand,) = prepacked_operands(candidate)
        nest, whole = derive_nest(candidate.sketch), derive_nest(without_prepack(candidate.sketch))
        (packing,) = nest.packing
        assert packing.name == f"{operand}.pack" and not whole.packing
        assert [it.name for it in whole.statements if it.name != packing.name] == [
            it.name for it in nest.statements
        ]
        # The call reads the packed copy only, which exists before it.
        read = {access.buffer for it in nest.statements for access in it.accesses}
        assert packing.name in read and operand not in read
        (buffer,) = (it for it in nest.buffers if it.name == packing.name)
        assert buffer.depth == 0
        assert not any(f"{operand}.pack/" in it for it in nest_tape(candidate.sketch).tape.outputs)


@pytest.mark.parametrize("name", WORKLOADS)
def test_models_do_not_count_the_packing_of_constants(name: str) -> None:
    for candidate in given_packed(WORKLOADS[name])[:4]:
        sketch, whole = candidate.sketch, without_prepack(candidate.sketch)
        matrix = np.array([candidate.values], dtype=np.int64)
        batches = [CandidateBatch(((it, matrix),)) for it in (sketch, whole)]
        given, packing = (
            PSA(ModelContext(target=TARGET)).score(batch)[0]
            for it, batch in zip((sketch, whole), batches, strict=True)
        )
        assert given > packing
        fewer, more = (pooled_features(batch, TARGET)[0] for batch in batches)
        assert (fewer != more).any()


def test_the_packing_is_described_apart() -> None:
    (candidate, *_) = given_packed(WORKLOADS["gemm"])
    lines = describe(candidate.sketch, candidate.config).splitlines()
    assert lines[0] == "before the first call:"
    inside = [line for line in lines[1:] if line.startswith("  ")]
    assert any("B.pack: B.pack <- B" in line for line in inside)


def test_what_cannot_be_packed_before_is_refused() -> None:
    (candidate, *_) = given_packed(WORKLOADS["gemm"])
    sketch = candidate.sketch
    variable = evolve(sketch, workload=sketch.workload.with_constants())
    with pytest.raises(InvalidValueError, match="'B' is no constant"):
        derive_nest(variable)
    inside = tuple(evolve(it, at="j.0") if isinstance(it, Pack) else it for it in sketch.steps)
    with pytest.raises(InvalidValueError, match="no step packs all of 'B' before"):
        derive_nest(evolve(sketch, steps=inside))
