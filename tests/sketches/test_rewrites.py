from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.expressions import Constant, Select, var
from autotune.ir.workloads import conv2d, gemm, random_inputs, reference_outputs, softmax
from autotune.sketches import (
    ChunkReduction,
    SplitReduction,
    chunk_axis,
    is_uneven,
    lane_axis,
    partial_name,
    split_reduction,
)


@given(rows=st.integers(1, 4), columns=st.integers(1, 32), lanes=st.integers(1, 8))
def test_partial_results_give_the_same_numbers(rows: int, columns: int, lanes: int) -> None:
    workload = softmax(m=rows, n=columns)
    rewritten = workload
    for stage in ("M", "S"):
        step = SplitReduction(stage, "k", min(lanes, columns))
        assert is_uneven(rewritten, step) == (columns % step.lanes > 0)
        rewritten = split_reduction(rewritten, step)
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected, got = reference_outputs(workload, inputs), reference_outputs(rewritten, inputs)
    np.testing.assert_allclose(got["Y"], expected["Y"], rtol=1e-6)


def test_the_partial_stage_comes_first_and_has_the_lanes_in_front() -> None:
    rewritten = split_reduction(gemm(m=2, n=3, k=8), SplitReduction("C", "k", 4))
    partial, final = rewritten.stages
    assert partial.name == partial_name("C")
    assert partial.output.shape == (4, 2, 3)
    assert [axis.name for axis in partial.axes] == [lane_axis("k"), "i", "j", "k"]
    assert partial.extents["k"] == 2
    assert final.extents == {lane_axis("k"): 4, "i": 2, "j": 3}


def test_other_reduce_axes_stay_with_the_partial_stage() -> None:
    workload = conv2d(h=4, w=4, ci=4, co=2, kh=2, kw=2)
    partial, final = split_reduction(workload, SplitReduction("Y", "ci", 2)).stages
    assert [axis.name for axis in partial.reduce_axes] == ["kh", "kw", "ci"]
    assert [axis.name for axis in final.reduce_axes] == [lane_axis("ci")]


@given(chunks=st.integers(1, 4), rounds=st.integers(1, 4), lanes=st.integers(1, 8))
def test_chunks_are_split_into_lanes(chunks: int, rounds: int, lanes: int) -> None:
    workload = gemm(m=2, n=3, k=chunks * rounds * lanes)
    rewritten = split_reduction(workload, ChunkReduction("C", "k", chunks))
    rewritten = split_reduction(rewritten, SplitReduction(partial_name("C"), "k", lanes))
    first, second, final = rewritten.stages
    assert first.output.shape == (lanes, chunks, 2, 3)
    assert second.output.shape == (chunks, 2, 3)
    assert [axis.name for axis in final.reduce_axes] == [chunk_axis("k")]
    inputs = random_inputs(workload, np.random.default_rng(0))
    expected, got = reference_outputs(workload, inputs), reference_outputs(rewritten, inputs)
    np.testing.assert_allclose(got["C"], expected["C"], rtol=1e-5, atol=1e-6)


def test_a_chunk_is_of_neighbours() -> None:
    workload = split_reduction(gemm(m=1, n=1, k=12), ChunkReduction("C", "k", 3))
    (left, _) = workload.stages[0].loads
    assert left.indices[1] == var(chunk_axis("k")) * 4 + var("k")


@pytest.mark.parametrize(("axis", "chunks"), [("k", 3), ("i", 2), ("k", 0)])
def test_refuses_chunks_that_do_not_divide_a_reduced_axis(axis: str, chunks: int) -> None:
    with pytest.raises(InvalidValueError, match=f"cannot split axis '{axis}' .*{chunks} chunks"):
        split_reduction(gemm(m=2, n=3, k=8), ChunkReduction("C", axis, chunks))


def test_what_is_not_there_is_neutral_in_the_type_of_the_result() -> None:
    workload = gemm(m=2, n=3, k=10, dtype="u8s8s32")
    partial, _ = split_reduction(workload, SplitReduction("C", "k", 4)).stages
    assert partial.extents["k"] == 3
    assert isinstance(partial.body, Select)
    assert partial.body.on_false == Constant(0, "int32")
    inputs = random_inputs(workload, np.random.default_rng(0))
    rewritten = split_reduction(workload, SplitReduction("C", "k", 4))
    expected, got = reference_outputs(workload, inputs), reference_outputs(rewritten, inputs)
    np.testing.assert_array_equal(got["C"], expected["C"])


@pytest.mark.parametrize(("axis", "lanes"), [("k", 9), ("i", 2), ("k", 0)])
def test_refuses_what_cannot_be_split(axis: str, lanes: int) -> None:
    with pytest.raises(InvalidValueError, match=f"cannot split axis '{axis}' of stage 'C'"):
        split_reduction(gemm(m=2, n=3, k=8), SplitReduction("C", axis, lanes))
