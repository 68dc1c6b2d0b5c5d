"""Reductions without reuse, in parts."""

from __future__ import annotations

import math

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET
from split_reductions import SPLIT_REDUCTIONS, norm, reduction, weighted_sums
from written import written

from autotune.ir.workloads import Workload, depthwise_conv2d, gemm
from autotune.sketches import (
    ChunkReduction,
    Inline,
    Sketch,
    SplitReduction,
    Vectorize,
)
from autotune.spaces import ScheduleLimits, SketchSpace


def sketches(workload: Workload, cores: int = 4, limits: ScheduleLimits = LIMITS) -> list[Sketch]:
    return list(SketchSpace(workload, TARGET.with_cores(cores), limits).sketches())


def lanes_of(sketch: Sketch) -> int:
    return next((it.lanes for it in sketch.core_steps if isinstance(it, SplitReduction)), 1)


def chunks_of(sketch: Sketch) -> int:
    return next((it.chunks for it in sketch.core_steps if isinstance(it, ChunkReduction)), 1)


def test_a_norm_is_shared_by_cores_and_lanes() -> None:
    found = {it.name: (chunks_of(it), lanes_of(it)) for it in sketches(norm(1, 64, 256))}
    assert found == {
        "split-reduction": (1, 16),
        "split-reduction-wide": (1, 64),
        "split-reduction-chunks": (4, 16),
        "split-reduction-chunks-wide": (4, 64),
        "split-reduction-small-chunks": (16, 16),
        "split-reduction-small-chunks-wide": (16, 64),
    }


def test_one_core_needs_no_chunks() -> None:
    assert {chunks_of(it) for it in sketches(norm(1, 64, 256), cores=1)} == {1}


def test_many_results_need_no_chunks() -> None:
    assert {chunks_of(it) for it in sketches(reduction((512, 64), (1,)))} == {1}


def test_columns_keep_their_tilings_and_are_vectors_of_results() -> None:
    found = sketches(reduction((600, 40), (0,)))
    assert [it.name for it in found][0] == "direct"
    chunked = [it for it in found if it.name.startswith("split-columns")]
    assert chunked and all(chunks_of(it) > 1 and lanes_of(it) == 1 for it in chunked)
    vectors = {
        it.loop for sketch in chunked for it in sketch.core_steps if isinstance(it, Vectorize)
    }
    assert vectors == {"d1.1", "d1.2"}


@pytest.mark.parametrize(("columns", "shared"), [(256, True), (512, False)])
def test_columns_are_enough_by_vectors_for_each_core(columns: int, shared: bool) -> None:
    """Two cores: 16 vectors of 16 lanes are too few for both, 32 are not."""
    names = [it.name for it in sketches(reduction((4096, columns), (0,)), cores=2)]
    assert any(name.startswith("split-columns") for name in names) == shared


def test_what_only_the_reduction_reads_is_computed_inside_it() -> None:
    for sketch in sketches(reduction((24, 64), (0, 1), first="exp")):
        assert Inline("P") in sketch.core_steps


def test_what_is_gathered_is_computed_before_it_is_reduced_to_a_single_number() -> None:
    texts = "G[i:64] = X[I[i]]", "S[; k:64] += G[k]"
    found = sketches(written("X[10], I[64]: int64", *texts))
    assert found and not any(isinstance(step, Inline) for it in found for step in it.steps)


@pytest.mark.parametrize(("inside", "names"), [(True, {"serial"}), (False, {"split-reduction"})])
def test_a_single_number_of_what_is_read_by_quotients(inside: bool, names: set[str]) -> None:
    """The reduction itself does not divide operands that are read so; later stages do."""
    apart = "V[k:56] = X[k // 7, k % 7]", "S[; k:56] += V[k]"
    texts = ("S[; k:56] += X[k // 7, k % 7]",) if inside else apart
    found = sketches(written("X[8, 7]", *texts), cores=1)
    assert {it.name for it in found} == names


def test_lanes_are_whole_vectors() -> None:
    made = sketches(reduction((4, 3000), (1,)), cores=1)
    assert {lanes_of(it) for it in made} == {16, 64}


def test_a_number_of_terms_that_nothing_divides() -> None:
    assert [it.name for it in sketches(reduction((31, 37), (0, 1)))] == ["split-reduction"]


def limits(*missing: str) -> ScheduleLimits:
    """Everything but these steps."""
    return evolve(LIMITS, steps=LIMITS.steps - set(missing))


def test_a_backend_without_partial_results_tiles() -> None:
    found = sketches(norm(2, 24, 64), limits=limits("split_reduction"))
    assert found and not any(it.name.startswith("split") for it in found)


@pytest.mark.parametrize("by", ["k", "i"])
def test_sums_that_are_weighted_by_an_index_have_the_sketches_of_any_sum(by: str) -> None:
    usual = {it.name for it in sketches(reduction((4, 3000), (1,)))}
    assert {it.name for it in sketches(weighted_sums(4, 3000, by=by))} == usual


def test_a_backend_without_chunks_has_lanes() -> None:
    lacking = limits("chunk_reduction")
    several = sketches(norm(2, 24, 64), limits=lacking)
    assert {it.name for it in several} == {"split-reduction", "split-reduction-wide"}
    alone = sketches(norm(1, 64, 256), limits=lacking)
    assert not any(it.name.endswith("reduction-chunks") for it in alone)
    columns = sketches(reduction((600, 40), (0,)), limits=lacking)
    assert not any(it.name.startswith("split") for it in columns)


@pytest.mark.parametrize("workload", [gemm(m=1, n=32, k=64), depthwise_conv2d(h=8, w=8, c=16)])
def test_reductions_with_reuse_are_tiled(workload: Workload) -> None:
    assert not any("split" in it.name for it in sketches(workload))


@pytest.mark.parametrize("cores", [1, 2, 3, 64, 256])
def test_no_space_is_empty_and_no_sketch_is_there_twice(cores: int) -> None:
    for workload in SPLIT_REDUCTIONS:
        found = sketches(workload, cores)
        assert 1 <= len(found) <= 12
        assert len({it.digest for it in found}) == len({it.name for it in found}) == len(found)


@given(
    rows=st.integers(1, 70), columns=st.integers(1, 200), cores=st.sampled_from([1, 2, 7, 64, 256])
)
def test_parts_divide_what_they_are_parts_of(rows: int, columns: int, cores: int) -> None:
    for sketch in sketches(reduction((rows, columns), (0, 1)), cores):
        assert math.gcd(chunks_of(sketch), rows * columns) == chunks_of(sketch)
        uneven = chunks_of(sketch) == 1 and lanes_of(sketch) % 16 == 0
        assert columns % lanes_of(sketch) == 0 or uneven
        assert columns >= 2 * lanes_of(sketch) or lanes_of(sketch) == 1
        assert chunks_of(sketch) <= 16 * cores
