from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from made_workloads import TILED_WORKLOADS
from workload_names import named

from autotune.errors import InvalidValueError
from autotune.ir.expressions import var
from autotune.ir.workloads import Workload, elementwise, gemm
from autotune.sketches import STEP_TYPES, Candidate, CandidateBatch, OneOf, Sketch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.spaces.rules import ElementwiseRule, InlineRule
from autotune.targets import preset
from autotune.testing.search_space_suite import SearchSpaceFactory, SearchSpaceSuite

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")


def space_of(workload: Workload, target: str = "skylake-avx512-4core") -> SketchSpace:
    return SketchSpace(workload, preset(target), LIMITS)


class TestConformance(SearchSpaceSuite):
    @pytest.fixture(params=TILED_WORKLOADS, ids=named)
    def search_space_factory(self, request: pytest.FixtureRequest) -> SearchSpaceFactory:
        return lambda: space_of(request.param)


def narrowed(sketch: Sketch, values: tuple[int, ...]) -> Sketch:
    only = OneOf(var("C.i.1"), values, "this test")
    return evolve(sketch, constraints=(*sketch.constraints, only))


class TiledSpace(SketchSpace):
    """Some of the built-in sketches, with a constraint more on each."""

    name = "tiled"
    version = "3"

    def sketches(self) -> tuple[Sketch, ...]:
        own = [it for it in super().sketches() if "C.i.1" in it.param_names]
        return tuple(narrowed(it, (1, 2, 4)) for it in own if it.name != "direct")


class LaterTiledSpace(TiledSpace):
    version = "4"


def tiled(of: type[SketchSpace] = TiledSpace) -> SketchSpace:
    return of(TILED_WORKLOADS[0], preset("skylake-avx512-4core"), LIMITS)


class TestOverriddenSketches(SearchSpaceSuite):
    @pytest.fixture
    def search_space_factory(self) -> SearchSpaceFactory:
        return tiled


def test_a_subclass_that_has_other_sketches_proposes_no_others() -> None:
    space, whole = tiled(), space_of(TILED_WORKLOADS[0])
    assert 0 < len(space.sketches()) < len(whole.sketches())
    assert 0 < space.count() < whole.count()
    batch = space.sample(200, np.random.default_rng(0))
    assert {sketch.name for sketch in batch.sketches} == {it.name for it in space.sketches()}
    assert {candidate.config["C.i.1"] for candidate in batch} <= {1, 2, 4}
    direct = next(sketch for sketch in whole.sketches() if sketch.name == "direct")
    assert not space.contains(
        CandidateBatch(((direct, np.ones((1, len(direct.params)), np.int64)),))
    ).any()
    with pytest.raises(InvalidValueError, match="does not belong"):
        space.feasible_set(direct)


def test_the_version_of_a_subclass_is_part_of_the_version() -> None:
    own = space_of(TILED_WORKLOADS[0]).version
    assert own.startswith("12.")
    assert tiled().version == "12+3" + own[2:]
    assert tiled(LaterTiledSpace).version == "12+3+4" + own[2:]


def test_the_version_is_that_of_the_sketches() -> None:
    """Equal where the sketches are, and another where a constraint of one of them is."""
    workload = TILED_WORKLOADS[0]
    assert space_of(workload).version == space_of(workload).version
    limits = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "backend test")
    versions = {
        SketchSpace(workload, preset("haswell"), it).version
        for it in (limits, limits, evolve(limits, unrolled_statements=256))
    }
    assert len(versions) == 2


@pytest.mark.parametrize("values", [(), (5,)])
def test_a_subclass_without_candidates_says_so(values: tuple[int, ...]) -> None:
    class Nothing(SketchSpace):
        name = "nothing"

        def sketches(self) -> tuple[Sketch, ...]:
            return tuple(narrowed(it, values) for it in super().sketches()[:1] if values)

    with pytest.raises(InvalidValueError, match="'nothing' has no"):
        tiled(Nothing).sample(3, np.random.default_rng(0))


def test_different_targets_are_different_spaces() -> None:
    workload = gemm(m=64, n=64, k=64)
    wide, narrow = space_of(workload), space_of(workload, "haswell")
    batch = wide.sample(30, np.random.default_rng(0))
    shared = {sketch.digest for sketch in narrow.sketches()}
    known = [candidate for candidate in batch if candidate.sketch.digest in shared]
    assert known and not narrow.contains(CandidateBatch.of(known)).any()  # 16 lanes against 8


def test_sketches_of_another_space_are_refused() -> None:
    space, other = space_of(gemm(m=8, n=16, k=4)), space_of(gemm(m=8, n=16, k=6))
    rng = np.random.default_rng(0)
    foreign = other.sample(5, rng)
    assert not space.contains(foreign).any()
    with pytest.raises(InvalidValueError, match="does not belong to this space"):
        space.neighbours(foreign, rng)
    with pytest.raises(InvalidValueError, match="two batches over the same sketches"):
        space.crossover(
            CandidateBatch(foreign.parts[:1]), CandidateBatch(other.sample(9, rng).parts[1:2]), rng
        )


def test_enumeration_interleaves_the_sketches() -> None:
    space = space_of(gemm(m=37, n=53, k=29))
    stream = space.enumerate()
    first = [next(stream) for _ in space.sketches()]
    assert [c.sketch.digest for c in first] == [s.digest for s in space.sketches()]


def test_infeasible_rows_are_not_contained() -> None:
    space = space_of(gemm(m=64, n=64, k=64))
    (sketch, matrix), *_ = space.sample(50, np.random.default_rng(0)).parts
    doubled = matrix.copy()
    doubled[:, 0] *= 2
    assert not space.contains(CandidateBatch(((sketch, doubled),))).any()


def test_rules_may_be_chosen() -> None:
    space = SketchSpace(
        elementwise(m=4, n=32),
        preset("skylake-avx512-4core"),
        LIMITS,
        rules=(InlineRule(), ElementwiseRule()),
    )
    (sketch,) = space.sketches()
    assert sketch.name == "plain"
    assert all(isinstance(candidate, Candidate) for candidate in space.enumerate())


def test_limits_that_nothing_meets_are_reported() -> None:
    limits = ScheduleLimits(frozenset(STEP_TYPES), 4, 512, "test")
    with pytest.raises(InvalidValueError, match="sketch 'direct' has no feasible configuration"):
        SketchSpace(gemm(m=64, n=64, k=64), preset("skylake-avx512-4core"), limits)
