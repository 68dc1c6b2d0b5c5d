"""Conformance suite of search spaces; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import numpy as np
import pytest

from autotune.errors import InvalidValueError
from autotune.sketches import Candidate, CandidateBatch
from autotune.spaces.search_space import SearchSpace

SearchSpaceFactory = Callable[[], SearchSpace]

ENUMERATED = 2000
"""Number of candidates that are enumerated; a space with fewer is checked completely."""


class SearchSpaceSuite:
    """The contract of search spaces. The space must not be empty."""

    @pytest.fixture
    def search_space_factory(self) -> SearchSpaceFactory:
        """Makes the space, an equal one at each call."""
        raise NotImplementedError("give the fixture 'search_space_factory'")

    @pytest.fixture
    def space(self, search_space_factory: SearchSpaceFactory) -> SearchSpace:
        """The space."""
        return search_space_factory()

    def test_it_has_name_version_and_sketches(self, space: SearchSpace) -> None:
        assert isinstance(space.name, str) and space.name
        assert isinstance(space.version, str) and space.version
        digests = [sketch.digest for sketch in space.sketches()]
        assert digests and len(set(digests)) == len(digests)

    def test_sketches_are_stable(self, search_space_factory: SearchSpaceFactory) -> None:
        one, other = search_space_factory().sketches(), search_space_factory().sketches()
        assert [sketch.digest for sketch in one] == [sketch.digest for sketch in other]

    @pytest.mark.parametrize("n", [0, 1, 7, 64])
    def test_a_sample_has_the_size_asked_for_and_is_feasible(
        self, space: SearchSpace, n: int
    ) -> None:
        batch = space.sample(n, np.random.default_rng(0))
        assert len(batch) == n
        assert space.contains(batch).shape == (n,) and space.contains(batch).all()
        known = {sketch.digest for sketch in space.sketches()}
        for sketch, matrix in batch.parts:
            assert sketch.digest in known
            assert matrix.dtype == np.int64 and matrix.shape[1] == len(sketch.params)

    def test_sketches_get_equal_shares(self, space: SearchSpace) -> None:
        sketches = space.sketches()
        shares = dict.fromkeys((sketch.digest for sketch in sketches), 0)
        for sketch, matrix in space.sample(20 * len(sketches), np.random.default_rng(0)).parts:
            shares[sketch.digest] += len(matrix)
        served = [share for share in shares.values() if share]
        assert max(served) - min(served) <= 1

    def test_one_seed_gives_the_same_sample(
        self, search_space_factory: SearchSpaceFactory
    ) -> None:
        one, other = (
            search_space_factory().sample(50, np.random.default_rng(4)) for _ in range(2)
        )
        assert list(map(_digest, one)) == list(map(_digest, other))
        different = search_space_factory().sample(50, np.random.default_rng(5))
        if search_space_factory().count() > 200:
            assert list(map(_digest, one)) != list(map(_digest, different))

    def test_neighbours_are_feasible_row_for_row(self, space: SearchSpace) -> None:
        rng = np.random.default_rng(0)
        batch = space.sample(64, rng)
        near = space.neighbours(batch, rng)
        assert _shape(near) == _shape(batch)
        assert space.contains(near).all()
        if space.count() > 200:
            moved = sum(a.digest != b.digest for a, b in zip(batch, near, strict=True))
            assert moved >= 32, "most candidates of a large space have a neighbour"

    def test_crossover_is_feasible_row_for_row(self, space: SearchSpace) -> None:
        rng = np.random.default_rng(0)
        left = space.sample(64, rng)
        right = CandidateBatch(
            tuple((sketch, rng.permutation(matrix)) for sketch, matrix in left.parts)
        )
        mixed = space.crossover(left, right, rng)
        assert _shape(mixed) == _shape(left)
        assert space.contains(mixed).all()
        same = space.crossover(left, left, rng)
        assert list(map(_digest, same)) == list(map(_digest, left))

    def test_moves_leave_their_arguments_alone(self, space: SearchSpace) -> None:
        rng = np.random.default_rng(0)
        batch = space.sample(32, rng)
        before = [matrix.copy() for _, matrix in batch.parts]
        space.neighbours(batch, rng)
        space.crossover(batch, batch, rng)
        space.contains(batch)
        for (_, matrix), copy in zip(batch.parts, before, strict=True):
            np.testing.assert_array_equal(matrix, copy)

    def test_moves_of_nothing_are_nothing(self, space: SearchSpace) -> None:
        rng = np.random.default_rng(0)
        empty = CandidateBatch(())
        assert len(space.neighbours(empty, rng)) == 0
        assert len(space.crossover(empty, empty, rng)) == 0
        assert space.contains(empty).shape == (0,)

    def test_rows_outside_the_domains_are_not_contained(self, space: SearchSpace) -> None:
        batch = space.sample(8, np.random.default_rng(0))
        outside = CandidateBatch(
            tuple((sketch, np.full_like(m, -7)) for sketch, m in batch.parts if m.shape[1])
        )
        assert not space.contains(outside).any()

    def test_enumeration_is_feasible_stable_and_without_repetition(
        self, search_space_factory: SearchSpaceFactory
    ) -> None:
        space = search_space_factory()
        first = list(itertools.islice(space.enumerate(), ENUMERATED))
        digests = list(map(_digest, first))
        assert len(set(digests)) == len(digests)
        assert space.contains(CandidateBatch.of(first)).all()
        again = itertools.islice(search_space_factory().enumerate(), ENUMERATED)
        assert list(map(_digest, again)) == digests

    def test_count_is_what_enumeration_yields(self, space: SearchSpace) -> None:
        yielded = sum(1 for _ in itertools.islice(space.enumerate(), ENUMERATED))
        assert yielded == min(space.count(), ENUMERATED)
        assert space.count() > 0

    def test_a_small_space_is_sampled_completely(self, space: SearchSpace) -> None:
        if space.count() > 200:
            pytest.skip("the space is not small")  # noqa: TID251
        sampled = set(map(_digest, space.sample(20_000, np.random.default_rng(0))))
        assert sampled == set(map(_digest, space.enumerate()))

    def test_feasible_sets_are_the_space(self, space: SearchSpace) -> None:
        try:
            feasible_sets = [space.feasible_set(sketch) for sketch in space.sketches()]
        except InvalidValueError:
            pytest.skip("the space does not say exactly what is feasible")  # noqa: TID251
        assert sum(feasible.count for feasible in feasible_sets) == space.count()
        for sketch, feasible in zip(space.sketches(), feasible_sets, strict=True):
            rows = feasible.uniform(20, seed=0)
            assert space.contains(CandidateBatch(((sketch, rows),))).all()

    def test_candidates_survive_json(self, space: SearchSpace) -> None:
        for candidate in space.sample(8, np.random.default_rng(0)):
            data = json.loads(json.dumps(candidate.to_json()))
            restored = Candidate.from_json(data, candidate.sketch.workload)
            assert restored == candidate and restored.digest == candidate.digest


def _digest(candidate: Candidate) -> str:
    return candidate.digest


def _shape(batch: CandidateBatch) -> list[tuple[str, int]]:
    return [(sketch.digest, len(matrix)) for sketch, matrix in batch.parts]
