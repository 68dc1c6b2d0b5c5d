from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pytest
from numpy.typing import NDArray
from workload_names import named

from autotune.errors import UnsupportedTarget
from autotune.ir.expressions import const, var
from autotune.ir.workloads import Workload, conv2d, dense, elementwise, gemm, softmax
from autotune.models import ModelContext
from autotune.models.features import (
    FEATURE_NAMES,
    FEATURE_VERSION,
    STATEMENT_FEATURES,
    estimated_seconds,
    pooled_features,
    statement_features,
)
from autotune.models.pruning import Roofline
from autotune.nest import nest_tape
from autotune.sketches import (
    CandidateBatch,
    Factor,
    Order,
    Parallel,
    ProductEquals,
    Sketch,
    Tile,
    Vectorize,
)
from autotune.spaces import SketchSpace
from autotune.targets import Cache, Target, preset
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite

SpaceOf = Callable[[Workload], SketchSpace]
Values = NDArray[np.float64]

WORKLOADS = (
    gemm(m=64, n=64, k=64),
    gemm(m=37, n=53, k=29),
    gemm(m=1, n=1, k=1),
    dense(m=13, n=31, k=17),
    conv2d(h=9, w=9, ci=4, co=20, pad=1, stride=2, bias=1, relu=1),
    softmax(m=16, n=33),
    elementwise(m=7, n=48),
)


def column(features: Values, name: str) -> Values:
    """Column of one feature for every statement, [n, statements]."""
    return np.asarray(features[:, :, STATEMENT_FEATURES.index(name)])


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_features_are_finite_and_as_wide_as_their_names(
    workload: Workload, space_of: SpaceOf, target: Target
) -> None:
    batch = space_of(workload).sample(60, np.random.default_rng(0))
    pooled = pooled_features(batch, target)
    assert pooled.shape == (60, len(FEATURE_NAMES)) and pooled.dtype == np.float64
    assert np.isfinite(pooled).all()
    for sketch, matrix in batch.parts:
        tape = nest_tape(sketch)
        features = statement_features(tape, matrix, target)
        statements = len(tape.nest.statements)
        assert features.shape == (len(matrix), statements, len(STATEMENT_FEATURES))
        assert np.isfinite(features).all() and (features >= 0).all()
        seconds = estimated_seconds(features, target)
        assert seconds.shape == (len(matrix),)
        assert np.isfinite(seconds).all() and (seconds > 0).all()
        for name in ("executions", "parallel", "vector_lanes", "unrolled", "iterations"):
            assert (column(features, name) >= 1).all()
        efficiency = column(features, "parallel_efficiency")
        assert (efficiency > 0).all() and (efficiency <= 1).all()


def test_names() -> None:
    assert len(set(FEATURE_NAMES)) == len(FEATURE_NAMES)
    assert len(set(STATEMENT_FEATURES)) == len(STATEMENT_FEATURES)
    assert {f"main.{name}" for name in STATEMENT_FEATURES} <= set(FEATURE_NAMES)
    assert FEATURE_VERSION


def test_rows_come_in_the_order_of_the_batch(space_of: SpaceOf, target: Target) -> None:
    batch = space_of(gemm(m=37, n=53, k=29)).sample(40, np.random.default_rng(3))
    pooled = pooled_features(batch, target)
    for position in (0, 7, 23, 39):
        alone = CandidateBatch.of(batch.take([position]))
        np.testing.assert_array_equal(pooled_features(alone, target)[0], pooled[position])


def test_no_candidates_no_rows(target: Target) -> None:
    assert pooled_features(CandidateBatch(()), target).shape == (0, len(FEATURE_NAMES))


def test_the_main_statement_does_the_arithmetic(space_of: SpaceOf, target: Target) -> None:
    batch = space_of(gemm(m=37, n=53, k=29)).sample(70, np.random.default_rng(1))
    names = {name: position for position, name in enumerate(FEATURE_NAMES)}
    row = 0
    for sketch, matrix in batch.parts:
        tape = nest_tape(sketch)
        assert tape.nest.statements[tape.dominant].name == "C"
        pooled = pooled_features(CandidateBatch(((sketch, matrix),)), target)
        for values, found in zip(matrix.tolist(), pooled, strict=True):
            config = dict(zip(sketch.param_names, values, strict=True))
            m, n = config.get("C.i.extent", 37), config.get("C.j.extent", 53)
            assert found[names["main.executions"]] == pytest.approx(np.log2(1 + m * n * 29))
            assert found[names["main.flop"]] == pytest.approx(np.log2(1 + 2 * m * n * 29))
            parallel = config["C.i.0"] * config["C.j.0"]
            assert found[names["main.parallel"]] == pytest.approx(np.log2(1 + parallel))
            lanes = config["C.j.3"]
            assert found[names["main.vector_lanes"]] == pytest.approx(np.log2(1 + lanes))
            tile = config["C.i.2"] * config["C.j.2"] * config["C.k.1"]
            assert found[names["main.unrolled"]] == pytest.approx(np.log2(1 + tile))
            row += 1
    assert row == 70


def test_less_cache_is_never_less_traffic(space_of: SpaceOf, target: Target) -> None:
    levels = [Cache(1, 1 << 12, False), Cache(2, 1 << 14, False), Cache(3, 1 << 16, False)]
    small = attrs.evolve(target, caches=tuple(levels))
    for sketch, matrix in (
        space_of(gemm(m=64, n=64, k=64)).sample(70, np.random.default_rng(2)).parts
    ):
        features = statement_features(nest_tape(sketch), matrix, small)
        l1, l2, l3 = (column(features, f"traffic_l{level}") for level in (1, 2, 3))
        once = column(features, "bytes_once")
        assert (l1 >= l2).all() and (l2 >= l3).all() and (l3 >= once).all()


def test_a_level_that_is_missing_is_infinitely_large(space_of: SpaceOf, target: Target) -> None:
    bare = attrs.evolve(target, caches=())
    for sketch, matrix in (
        space_of(gemm(m=64, n=64, k=64)).sample(14, np.random.default_rng(2)).parts
    ):
        features = statement_features(nest_tape(sketch), matrix, bare)
        for level in (1, 2, 3):
            np.testing.assert_array_equal(
                column(features, f"traffic_l{level}"), column(features, "bytes_once")
            )


def rows_in_parallel() -> Sketch:
    """64 rows of 1024, ``p`` of them in parallel, in vectors of ``v``."""
    workload = elementwise(m=64, n=1024)
    single = attrs.evolve(workload, stages=(attrs.evolve(workload.stages[0]),), outputs=("T",))
    return Sketch(
        "made",
        single,
        (Factor("p"), Factor("q"), Factor("u"), Factor("v")),
        (ProductEquals(("p", "q"), const(64)), ProductEquals(("u", "v"), const(1024))),
        (
            Tile("T", "i", (var("p"), var("q"))),
            Tile("T", "j", (var("u"), var("v"))),
            Order("T", ("i.0", "i.1", "j.0", "j.1")),
            Parallel("T", ("i.0",)),
            Vectorize("T", "j.1"),
        ),
    )


def test_twice_the_parallel_extent_is_half_the_time_until_the_cores_are_busy() -> None:
    target = preset("skylake-avx512-8core")
    matrix = np.array([[p, 64 // p, 64, 16] for p in (1, 2, 4, 8, 16)], dtype=np.int64)
    features = statement_features(nest_tape(rows_in_parallel()), matrix, target)
    assert column(features, "parallel")[:, 0].tolist() == [1, 2, 4, 8, 16]
    assert column(features, "executions")[:, 0].tolist() == [65536] * 5
    efficiency = column(features, "parallel_efficiency")[:, 0]
    np.testing.assert_allclose(efficiency, [1 / 8, 1 / 4, 1 / 2, 1, 1])
    seconds = estimated_seconds(features, target)
    np.testing.assert_allclose(seconds[:3] / seconds[1:4], 2, rtol=0.2)
    assert seconds[4] == pytest.approx(seconds[3], rel=0.05)


def test_an_uneven_share_leaves_cores_idle() -> None:
    target = preset("skylake-avx512-3core")
    matrix = np.array([[4, 16, 64, 16], [64, 1, 64, 16]], dtype=np.int64)
    features = statement_features(nest_tape(rows_in_parallel()), matrix, target)
    efficiency = column(features, "parallel_efficiency")[:, 0]
    np.testing.assert_allclose(efficiency, [4 / 6, 64 / 66])
    seconds = estimated_seconds(features, target)
    assert seconds[1] < seconds[0]


def test_wider_vectors_are_not_slower(target: Target) -> None:
    matrix = np.array([[8, 8, 1024 // v, v] for v in (1, 4, 16)], dtype=np.int64)
    features = statement_features(nest_tape(rows_in_parallel()), matrix, target)
    assert column(features, "vector_lanes")[:, 0].tolist() == [1, 4, 16]
    seconds = estimated_seconds(features, target)
    assert seconds[0] > seconds[1] > seconds[2]


def test_more_cores_are_not_slower(space_of: SpaceOf) -> None:
    one, four = preset("skylake-avx512-1core"), preset("skylake-avx512-4core")
    private = tuple(attrs.evolve(cache, shared=False) for cache in one.caches)
    one, four = attrs.evolve(one, caches=private), attrs.evolve(four, caches=private)
    for sketch, matrix in (
        space_of(gemm(m=64, n=64, k=64)).sample(70, np.random.default_rng(4)).parts
    ):
        tape = nest_tape(sketch)
        slow = estimated_seconds(statement_features(tape, matrix, one), one)
        fast = estimated_seconds(statement_features(tape, matrix, four), four)
        assert (fast <= slow * (1 + 1e-12)).all()


class TestRoofline(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self) -> PruningModelFactory:
        return lambda: Roofline(ModelContext(target=preset("skylake-avx512-4core")))


def test_a_roofline_scores_by_the_logarithm_of_seconds(space_of: SpaceOf, target: Target) -> None:
    [(sketch, matrix), *_] = (
        space_of(gemm(m=64, n=64, k=64)).sample(50, np.random.default_rng(5)).parts
    )
    scores = Roofline(ModelContext(target=target)).score(CandidateBatch(((sketch, matrix),)))
    seconds = estimated_seconds(statement_features(nest_tape(sketch), matrix, target), target)
    np.testing.assert_array_equal(scores, -np.log2(seconds))
    with pytest.raises(UnsupportedTarget, match="'cuda'"):
        Roofline(ModelContext(target=Target("cuda", "some card")))
