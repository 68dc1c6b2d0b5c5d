"""Places of arrays while programs run: a program changes nothing that it may only read."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_processes import run_python

from autotune.backends import check_arguments
from autotune.backends.backend import Array
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload, gemm, random_inputs, softmax
from autotune.measure.worker import Arena

PAGE = 4096
SMALL = gemm(m=5, n=7, k=3)


def contents(workload: Workload) -> list[Array]:
    return list(random_inputs(workload, np.random.default_rng(0)).values())


def make(workload: Workload, placements: int = 1, seed: int = 0) -> tuple[Arena, list[Array]]:
    inputs = contents(workload)
    return Arena(workload, inputs, placements=placements, seed=seed), inputs


def offsets(arena: Arena) -> list[list[int]]:
    """Offsets of the arrays of each placement from the page of the first one of all."""
    found = []
    for number in range(arena.placements):
        inputs, outputs = arena.place(number)
        found.append([array.ctypes.data for array in (*inputs, *outputs)])
    first = found[0][0] // PAGE * PAGE
    return [[address - first for address in row] for row in found]


@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(1, 70),
    dtype=st.sampled_from(["float32", "float64", "int8"]),
    placements=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
def test_every_placement_holds_the_inputs_and_room_for_the_outputs(
    m: int, n: int, k: int, dtype: str, placements: int, seed: int
) -> None:
    workload = gemm(m=m, n=n, k=k, dtype=dtype)
    arena, inputs = make(workload, placements, seed)
    for number in range(placements):
        placed, outputs = arena.place(number)
        check_arguments(workload, placed, outputs)  # aligned, contiguous, shapes, types
        for array, pristine in zip(placed, inputs, strict=True):
            np.testing.assert_array_equal(array, pristine)
        for output in outputs:
            output.fill(number)
        assert arena.changed(number) is None


def test_arrays_begin_at_chosen_lines_of_pages_of_their_own() -> None:
    arena, _ = make(SMALL, placements=200)
    seen = set()
    for number in range(200):
        inputs, outputs = arena.place(number)
        addresses = [array.ctypes.data for array in (*inputs, *outputs)]
        assert len({address // PAGE for address in addresses}) == 3
        seen.update(address % PAGE // 64 for address in addresses)
    assert seen == set(range(64))


@pytest.mark.parametrize("seed", range(20))
def test_a_few_placements_spread_arrays_and_their_distances_evenly(seed: int) -> None:
    """Of eight, never more than four in one quarter of a page; independent draws often are."""
    places = np.array(offsets(make(SMALL, 8, seed)[0]))
    for first, second in [(0, None), (1, None), (2, None), (0, 1), (0, 2), (1, 2)]:
        apart = places[:, first] - (0 if second is None else places[:, second])
        assert np.bincount(apart % PAGE // (PAGE // 4)).max() <= 4


def test_a_seed_chooses_the_places_whatever_the_system_does() -> None:
    first = offsets(make(SMALL, 4, seed=7)[0])
    program = (
        "from tests.measure.test_arena import SMALL, make, offsets\n"
        "print(offsets(make(SMALL, 4, seed=7)[0]))\n"
    )
    assert run_python("-c", program).strip() == str(first)
    assert offsets(make(SMALL, 4, seed=8)[0]) != first


def test_small_placements_share_no_page_and_large_ones_need_little_more_memory() -> None:
    arena, _ = make(SMALL, 8)
    pages = [[offset // PAGE for offset in row] for row in offsets(arena)]
    assert len({page for row in pages for page in row}) == 24
    large, _ = make(gemm(m=2048, n=1024, k=1024), 8)
    span = max(map(max, offsets(large)))
    distance_to_the_last = 12 << 20  # within one placement
    assert 16 << 20 < span - distance_to_the_last < 33 << 20


def test_inputs_are_not_those_that_were_given() -> None:
    arena, inputs = make(SMALL)
    before = [array.copy() for array in inputs]
    placed, _ = arena.place(0)
    for array in placed:
        array.fill(0)
    for array, pristine in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, pristine)


def test_a_changed_input_is_named_and_restored() -> None:
    arena, inputs = make(SMALL, 2)
    placed, _ = arena.place(1)
    placed[1][0, 0] = np.nextafter(placed[1][0, 0], np.float32(9), dtype=np.float32)
    assert arena.changed(1) == "input 'B' was changed"
    placed[0][-1, -1] = np.nan
    assert arena.changed(1) == "input 'A' was changed"
    arena.restore(1)
    assert arena.changed(1) is None
    np.testing.assert_array_equal(placed[1], inputs[1])


def test_the_last_byte_of_a_large_input_counts() -> None:
    workload = softmax(m=1100, n=1000)
    arena, _ = make(workload)
    placed, _ = arena.place(0)
    placed[0].reshape(-1).view(np.uint8)[-1] ^= 1
    assert arena.changed(0) == f"input {workload.inputs[0].name!r} was changed"


def test_not_a_number_equals_itself() -> None:
    inputs = [np.full(tensor.shape, np.nan, tensor.dtype) for tensor in SMALL.inputs]
    arena = Arena(SMALL, inputs)
    arena.place(0)
    assert arena.changed(0) is None


def beyond(array: Array, distance: int) -> Array:
    """The byte ``distance`` bytes after the end of an array, or before its start if negative."""
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    begin = array.ctypes.data - memory.ctypes.data
    at = begin + (array.nbytes + distance if distance >= 0 else distance)
    return memory[at : at + 1]


@pytest.mark.parametrize("distance", [0, 1, 63, -1, -64])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_writing_beside_an_array_is_noticed(position: int, distance: int) -> None:
    arena, _ = make(SMALL, 3, seed=5)
    inputs, outputs = arena.place(2)
    array = [*inputs, *outputs][position]
    beyond(array, distance)[0] = 0
    found = arena.changed(2)
    assert found is not None
    assert found.startswith("memory beside '")
    arena.place(2)
    assert arena.changed(2) is None


def test_only_the_placement_in_use_can_be_asked() -> None:
    arena, _ = make(SMALL, 2)
    with pytest.raises(InvalidValueError, match="placement None is in use, not 0"):
        arena.changed(0)
    arena.place(1)
    with pytest.raises(InvalidValueError, match="placement 1 is in use, not 0"):
        arena.restore(0)


@pytest.mark.parametrize("number", [-1, 2, 100])
def test_a_placement_that_is_not_there_is_refused(number: int) -> None:
    with pytest.raises(InvalidValueError, match="numbered from 0 to 1"):
        make(SMALL, 2)[0].place(number)


def test_what_does_not_fit_the_workload_is_refused() -> None:
    inputs = contents(SMALL)
    with pytest.raises(InvalidValueError, match="has 2 inputs, got 1"):
        Arena(SMALL, inputs[:1])
    with pytest.raises(InvalidValueError, match="input 'A' is float32 of shape"):
        Arena(SMALL, [inputs[0].T, inputs[1]])
    with pytest.raises(InvalidValueError, match="got float64"):
        Arena(SMALL, [inputs[0].astype(np.float64), inputs[1]])
    with pytest.raises(InvalidValueError, match="at least one placement, not 0"):
        Arena(SMALL, inputs, placements=0)


def test_arrays_outlive_their_arena_and_the_memory_is_given_back_with_them() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    workload = gemm(m=2048, n=2048, k=2048)
    inputs = contents(workload)
    arena = Arena(workload, inputs)
    before = resident()
    placed, _ = arena.place(0)
    del arena
    assert float(placed[0].sum()) == float(inputs[0].sum())
    assert resident() - before > 30 << 20
    del placed, _
    assert resident() - before < 4 << 20
