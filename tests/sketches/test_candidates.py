"""Configurations, batches of them, and what is kept for each sketch."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.ir.workloads import gemm
from autotune.sketches import (
    Candidate,
    CandidateBatch,
    Factor,
    Ordinal,
    ProductEquals,
    Sketch,
    Tile,
    Unroll,
    per_sketch,
)
from autotune.sketches.candidates import order_of, row_key

WORKLOAD = gemm(m=12, n=4, k=4)


TILED = Sketch(
    "tiled",
    WORKLOAD,
    (Factor("C.i.0"), Factor("C.i.1")),
    (ProductEquals(("C.i.0", "C.i.1"), const(12)),),
    (Tile("C", "i", (var("C.i.0"), var("C.i.1"))),),
)


UNROLLED = Sketch("unrolled", WORKLOAD, (Ordinal("u", (0, 1)),), (), (Unroll("C", ("k.0",)),))


PLAIN = Sketch("plain", WORKLOAD, (), (), ())


CANDIDATES: st.SearchStrategy[Candidate] = st.one_of(
    st.builds(Candidate, st.just(TILED), st.tuples(st.integers(1, 12), st.integers(1, 12))),
    st.builds(Candidate, st.just(UNROLLED), st.tuples(st.integers(0, 1))),
    st.just(Candidate(PLAIN, ())),
)


@given(CANDIDATES)
def test_json_round_trip(candidate: Candidate) -> None:
    data = json.loads(json.dumps(candidate.to_json()))
    restored = Candidate.from_json(data, WORKLOAD)
    assert restored == candidate and restored.digest == candidate.digest
    assert restored.config == candidate.config


def test_values_are_named() -> None:
    candidate = Candidate(TILED, (3, 4))
    assert candidate.config == {"C.i.0": 3, "C.i.1": 4}
    assert Candidate.from_config(TILED, {"C.i.1": 4, "C.i.0": 3}) == candidate


def test_digests_differ() -> None:
    digests = {Candidate(TILED, values).digest for values in ((3, 4), (4, 3), (1, 12), (11, 2))}
    assert len(digests) == 4 and all(len(digest) == 16 for digest in digests)


@pytest.mark.parametrize("values", [(), (1,), (1, 2, 3)])
def test_the_number_of_values_is_checked(values: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValueError, match=f"has 2 parameters, got {len(values)} values"):
        Candidate(TILED, values)


@pytest.mark.parametrize("config", [{}, {"C.i.0": 1}, {"C.i.0": 1, "C.i.1": 2, "C.i.2": 3}])
def test_the_names_of_a_configuration_are_checked(config: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match=r"has parameters \['C.i.0', 'C.i.1'\], got"):
        Candidate.from_config(TILED, config)


@given(st.lists(CANDIDATES, max_size=12))
def test_batches_group_by_sketch_and_can_be_read_back(candidates: list[Candidate]) -> None:
    batch = CandidateBatch.of(candidates)
    assert len(batch) == len(candidates)
    assert len({sketch.digest for sketch, _ in batch.parts}) == len(batch.parts)
    for sketch, matrix in batch.parts:
        assert matrix.dtype == np.int64
        assert matrix.ndim == 2 and matrix.shape[1] == len(sketch.params)
    order = order_of(candidates)
    assert sorted(order) == list(range(len(candidates)))
    assert batch.take(order) == candidates
    listed = list(batch)
    assert [listed[position] for position in order] == candidates


@given(st.lists(CANDIDATES, min_size=1, max_size=8), st.lists(st.integers(0, 7), max_size=8))
def test_take(candidates: list[Candidate], indices: list[int]) -> None:
    batch = CandidateBatch.of(candidates)
    wanted = [index for index in indices if index < len(candidates)]
    listed = list(batch)
    assert batch.take(wanted) == [listed[index] for index in wanted]


def test_an_empty_part_is_skipped() -> None:
    empty = np.zeros((0, 2), dtype=np.int64)
    batch = CandidateBatch(((TILED, empty), (UNROLLED, np.array([[1], [0]]))))
    assert len(batch) == 2
    assert batch.take([1, 0]) == [Candidate(UNROLLED, (0,)), Candidate(UNROLLED, (1,))]


def test_a_batch_over_sketches_has_one_part_for_each() -> None:
    both = TILED, UNROLLED
    batch = CandidateBatch(
        (
            (UNROLLED, np.array([[1], [0]])),
            (TILED, np.array([[3, 4]])),
            (UNROLLED, np.array([[1]])),
        )
    )
    ordered = batch.over((*both, PLAIN))
    assert ordered.sketches == (*both, PLAIN)
    assert [matrix.tolist() for matrix in ordered.matrices] == [[[3, 4]], [[1], [0], [1]], []]
    assert ordered.owners.tolist() == [0, 1, 1, 1] and ordered.starts.tolist() == [0, 1, 4, 4]
    assert ordered.without_empty().sketches == both
    assert len(CandidateBatch(()).over(both)) == 0
    with pytest.raises(InvalidValueError, match="sketch 'tiled' is not one of this space"):
        batch.over((UNROLLED,))
    restored = CandidateBatch.of_rows(ordered.sketches, [m.tolist() for m in ordered.matrices])
    assert list(restored) == list(ordered)


def test_keys_tell_rows_and_parts_apart() -> None:
    same = Sketch("other", WORKLOAD, UNROLLED.params, (), ())
    batch = CandidateBatch(((UNROLLED, np.array([[0], [1], [0]])), (same, np.array([[0], [1]]))))
    assert batch.keys[0] == batch.keys[2] and len(set(batch.keys)) == 4
    assert batch.keys[3] == row_key(1, (0,))


BATCHES = st.lists(CANDIDATES, max_size=8).map(CandidateBatch.of)


@given(BATCHES, BATCHES, BATCHES)
def test_a_sum_has_the_rows_of_both_sketch_by_sketch(
    one: CandidateBatch, other: CandidateBatch, third: CandidateBatch
) -> None:
    both = one + other
    assert list(both) == list(CandidateBatch.of([*one, *other]))
    assert list((one + other) + third) == list(one + (other + third))
    assert len(set(both.sketches)) == len(both.parts)
    empty = CandidateBatch(())
    assert list(one + empty) == list(empty + one) == list(one)
    with pytest.raises(TypeError):
        one + list(other)  # type: ignore[operator]


def test_selection_groups_by_part_and_keeps_the_order_within() -> None:
    batch = CandidateBatch(
        ((TILED, np.array([[1, 12], [2, 6], [3, 4], [4, 3]])), (UNROLLED, np.array([[0], [1]])))
    )
    order = np.array([5, 1, 4, 0, 5])
    picked = batch.select(order)
    assert [matrix.tolist() for matrix in picked.matrices] == [[[2, 6], [1, 12]], [[1], [0], [1]]]
    assert [own.tolist() for own in batch.by_part(order)] == [[1, 0], [5, 4, 5]]
    first = batch.select(np.arange(6) < 2)
    assert first.sketches == batch.sketches and list(first) == batch.take([0, 1])
    assert list(first + picked) == batch.take([0, 1, 1, 0, 5, 4, 5])


SKETCH = Sketch("one", gemm(m=4, n=4, k=4), (Ordinal("u", (0, 1)),), (), (Unroll("C", ("k.0",)),))


RENAMED = attrs.evolve(SKETCH, name="another")


def test_sketches_of_one_digest_share_what_is_made() -> None:
    seen: list[tuple[str, int]] = []

    @per_sketch
    def made(sketch: Sketch, factor: int = 1) -> int:
        """A made value."""
        seen.append((sketch.name, factor))
        return factor

    assert [made(SKETCH), made(RENAMED), made(SKETCH, 2), made(RENAMED, 2)] == [1, 1, 2, 2]
    assert seen == [("one", 1), ("one", 2)] and made.__doc__ == "A made value."


def test_exactly_equal_ones_share_it_where_domains_matter() -> None:
    seen: list[str] = []
    made = per_sketch(lambda sketch: seen.append(sketch.name) or sketch.name, exact=True)
    assert [made(SKETCH), made(RENAMED), made(attrs.evolve(SKETCH))] == ["one", "another", "one"]
    assert seen == ["one", "another"]


def test_what_was_asked_for_longest_ago_is_forgotten() -> None:
    seen: list[int] = []
    sketches = [attrs.evolve(SKETCH, workload=gemm(m=size, n=4, k=4)) for size in (1, 2, 3)]
    made = per_sketch(lambda sketch: seen.append(len(seen)), most=2)
    for index in (0, 1, 0, 2, 0, 1):
        made(sketches[index])
    assert len(seen) == 4


def test_what_fails_is_tried_again() -> None:
    tries: list[int] = []

    @per_sketch
    def made(sketch: Sketch) -> int:
        tries.append(1)
        if len(tries) < 2:
            raise InvalidValueError("not yet")
        return 1

    with pytest.raises(InvalidValueError):
        made(SKETCH)
    assert made(SKETCH) == 1


def test_threads_share_it() -> None:
    made = per_sketch(lambda sketch: object())
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: made(SKETCH), range(64)))
    assert made(SKETCH) is made(RENAMED)
