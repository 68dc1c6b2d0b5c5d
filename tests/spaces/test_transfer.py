from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.ir.workloads import Workload, conv2d, gemm, softmax
from autotune.sketches import STEP_TYPES, Candidate, CandidateBatch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.transfer import corresponding_sketch, moved_candidate
from autotune.targets import preset
from autotune.testing.reference_backend import ReferenceBackend
from autotune.testing.toy_space import ToySpace

TARGET = preset("haswell")
SIZES = st.sampled_from([1, 2, 8, 32, 64])


def space_of(workload: Workload) -> SketchSpace:
    limits: ScheduleLimits = ReferenceBackend().limits(TARGET)
    return SketchSpace(workload, TARGET, limits)


@given(SIZES, SIZES, st.integers(0, 2**32 - 1))
def test_what_is_moved_is_feasible_and_moves_back_where_nothing_changed(
    size: int, other: int, seed: int
) -> None:
    source, goal = ToySpace(size), ToySpace(other)
    for candidate in source.sample(4, np.random.default_rng(seed)):
        moved = moved_candidate(candidate, goal)
        assert moved is not None
        assert goal.contains(CandidateBatch.of([moved])).all()
        parallel = [len(it.sketch.steps) for it in (candidate, moved)]
        assert parallel[0] == parallel[1], "the sketch with the same steps"
        if size == other:
            assert moved == candidate


def test_the_outermost_tile_takes_what_the_axis_grows_by() -> None:
    source = space_of(gemm(m=64, n=64, k=64))
    goal = space_of(gemm(m=256, n=64, k=64))
    for candidate in source.sample(40, np.random.default_rng(0)):
        other = moved_candidate(candidate, goal)
        assert other is not None
        grown = {"C.i.0", "C.i.extent"} & set(candidate.config)
        expected = {
            name: value * (4 if name in grown else 1) for name, value in candidate.config.items()
        }
        assert other.config == expected


def test_sketches_from_before_rows_were_padded_move_to_those_with_no_padding() -> None:
    def on_a_gpu(size: int, without: str = "") -> SketchSpace:
        limits = ScheduleLimits(frozenset(STEP_TYPES) - {without}, 65536, 512, "test")
        return SketchSpace(gemm(m=size, n=64, k=64), preset("a100"), limits)

    before, goal = on_a_gpu(64, "shared_layout"), on_a_gpu(256)
    for candidate in before.sample(20, np.random.default_rng(0)):
        moved = moved_candidate(candidate, goal)
        assert moved is not None and moved.sketch.name == candidate.sketch.name
        assert goal.contains(CandidateBatch.of([moved])).all()
        if candidate.sketch.name == "shared":
            grown = {**candidate.config, "C.i.0": 4 * candidate.config["C.i.0"], "C.A.pad": 0}
            assert moved.config == grown
    # Where rows can be padded they stay as they are.
    (there, *_) = goal.sketches()
    padded = next(it for it in goal.sample(40, np.random.default_rng(1)) if it.config["C.A.pad"])
    assert moved_candidate(padded, goal) == padded
    assert corresponding_sketch(there, before.sketches()) is None


def test_sketches_from_before_fetches_were_pipelined_move_to_those_that_wait() -> None:
    def on_a_gpu(size: int, without: str = "") -> SketchSpace:
        limits = ScheduleLimits(frozenset(STEP_TYPES) - {without}, 65536, 512, "test")
        return SketchSpace(gemm(m=size, n=64, k=64, dtype="float16"), preset("a100"), limits)

    before, goal = on_a_gpu(64, "pipeline_fetches"), on_a_gpu(256)
    old = [it for it in before.sample(20, np.random.default_rng(0)) if "tensor" in it.sketch.name]
    assert old
    for candidate in old:
        moved = moved_candidate(candidate, goal)
        assert moved is not None and moved.sketch.name == candidate.sketch.name
        assert goal.contains(CandidateBatch.of([moved])).all()
        assert moved.config["C.stages"] == 1


def test_strides_and_paddings_are_numbers_of_the_same_sketch() -> None:
    source = space_of(conv2d(h=28, w=28, ci=32, co=32, pad=1, bias=1, relu=1))
    goal = space_of(conv2d(h=56, w=56, ci=32, co=64, stride=2, pad=1, bias=1, relu=1))
    found = [corresponding_sketch(sketch, goal.sketches()) for sketch in source.sketches()]
    assert any(found)
    for sketch, other in zip(source.sketches(), found, strict=True):
        assert other is None or other.name == sketch.name


@pytest.mark.parametrize("other", [softmax(m=64, n=64), conv2d(h=8, w=8, ci=8, co=8)])
def test_what_has_no_such_sketch_is_not_moved(other: Workload) -> None:
    candidate = next(iter(space_of(gemm(m=64, n=64, k=64)).sample(1, np.random.default_rng(0))))
    assert isinstance(candidate, Candidate)
    assert moved_candidate(candidate, space_of(other)) is None
