"""Features computed natively against features counted by running the loops."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from oracles.pam import pam_rows, published_flow
from thinning import thinned
from workload_names import named

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.expressions import const, var
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    cumsum,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.models.features import DATAFLOW_COLUMNS, FEATURE_COLUMNS, FIDELITIES, pam_features
from autotune.models.features.quantities import dataflow_accesses
from autotune.nest import derive_nest
from autotune.sketches import STEP_TYPES, Candidate, CandidateBatch, Factor, Sketch, Tile
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import Target, preset

CPU = preset("skylake-avx512-2core")
GPU = preset("a100")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
# A float32 logarithm is within about one unit in its last place.
CLOSE = {"rtol": 2.5e-7, "atol": 1e-7}

WORKLOADS = (
    gemm(m=8, n=16, k=4),
    gemm(m=5, n=17, k=6),
    gemm(m=4, n=8, k=4, dtype="int8"),
    batch_matmul(b=2, m=3, n=16, k=4),
    dense(m=4, n=16, k=8),
    dense(m=3, n=5, k=32, bias=0),
    conv2d(h=4, w=3, ci=2, co=16, pad=1, bias=1, relu=1),
    conv2d(h=5, w=7, ci=2, co=4, stride=2),
    depthwise_conv2d(h=4, w=4, c=16, pad=1),
    depthwise_conv2d(h=7, w=5, c=3, stride=2, pad=1),
    softmax(m=4, n=32),
    softmax(m=3, n=7),
    elementwise(m=4, n=32),
    cumsum(m=4, n=16),
    cumsum(m=4, n=32, axis=0),
)


def check(candidate: Candidate, target: Target, fidelity: str) -> None:
    matrix = np.array([candidate.values], dtype=np.int64)
    found = pam_features(candidate.sketch, matrix, target, fidelity)
    nest = derive_nest(candidate.sketch)
    expected = pam_rows(nest, candidate.config, fidelity, target.kind == "cuda")
    assert found.values.shape == expected.shape
    wrong = [
        (found.statements[row], FEATURE_COLUMNS[column], found.values[row, column], value)
        for (row, column), value in np.ndenumerate(expected)
        if not np.isclose(found.values[row, column], value, **CLOSE)
    ]
    assert not wrong, (candidate.sketch.name, candidate.config)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize("workload", thinned(WORKLOADS, 6), ids=named)
def test_every_sketch_of_every_builder(workload: Workload, fidelity: str) -> None:
    space = SketchSpace(workload, CPU, LIMITS)
    for candidate in space.sample(len(space.sketches()), np.random.default_rng(3)):
        check(candidate, CPU, fidelity)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize(
    "workload", (gemm(m=16, n=16, k=8), conv2d(h=4, w=4, ci=2, co=8, pad=1)), ids=named
)
def test_sketches_for_gpus(workload: Workload, fidelity: str) -> None:
    space = SketchSpace(workload, GPU, LIMITS)
    for candidate in space.sample(2 * len(space.sketches()), np.random.default_rng(3)):
        check(candidate, GPU, fidelity)


SIZES = st.integers(1, 7)
DRAWN = st.one_of(
    st.builds(lambda m, n, k: gemm(m=m, n=n, k=k), SIZES, st.integers(1, 20), SIZES),
    st.builds(lambda m, n, k: dense(m=m, n=n, k=k), SIZES, SIZES, st.sampled_from([4, 16])),
    st.builds(
        lambda h, s: conv2d(h=h, w=3, ci=2, co=3, stride=s, pad=1), SIZES, st.integers(1, 2)
    ),
    st.builds(lambda m, n: softmax(m=m, n=n), SIZES, st.sampled_from([3, 16, 32])),
    st.builds(lambda m, n: elementwise(m=m, n=n), SIZES, st.integers(1, 20)),
)


@given(DRAWN, st.sampled_from(sorted(FIDELITIES)), st.integers(0, 2**32))
def test_random_workloads_and_candidates(workload: Workload, fidelity: str, seed: int) -> None:
    space = SketchSpace(workload, CPU, LIMITS)
    for candidate in space.sample(1, np.random.default_rng(seed)):
        check(candidate, CPU, fidelity)


def batch(workload: Workload, count: int, target: Target = CPU) -> CandidateBatch:
    return SketchSpace(workload, target, LIMITS).sample(count, np.random.default_rng(0))


def test_rows_threads_and_chunks_change_nothing() -> None:
    for sketch, matrix in batch(gemm(m=32, n=48, k=16), 700).parts:
        whole = pam_features(sketch, matrix, CPU)
        rows = len(whole.statements)
        assert whole.values.dtype == whole.dataflow.dtype == np.float32
        assert whole.values.shape == (rows * len(matrix), 164)
        assert whole.offsets.tolist() == [rows * at for at in range(len(matrix) + 1)]
        for threads in (2, 7):
            again = pam_features(sketch, matrix, CPU, threads=threads)
            np.testing.assert_array_equal(again.values, whole.values)
            np.testing.assert_array_equal(again.dataflow, whole.dataflow)
        last = pam_features(sketch, matrix[-1:], CPU)
        np.testing.assert_array_equal(last.values, whole.values[-rows:])
        none = pam_features(sketch, matrix[:0], CPU)
        assert none.values.shape == (0, 164)
        assert none.dataflow.shape == (0, 8, 23)
        assert none.offsets.tolist() == [0]


def test_columns_have_names_of_their_own() -> None:
    assert len(FEATURE_COLUMNS) == len(set(FEATURE_COLUMNS)) == 164
    assert len(DATAFLOW_COLUMNS) == len(set(DATAFLOW_COLUMNS)) == 23
    places = {"vectorized_count": 16, "parallel_none": 41, "is_gpu": 49, "vthread": 56}
    places |= {"buffer0_read": 57, "intensity0": 147, "allocated_bytes": 157, "unroll_limit": 163}
    assert {name: FEATURE_COLUMNS.index(name) for name in places} == places


def test_logarithms_are_those_of_floats() -> None:
    """Every value that a trip count, a quotient or a size may have."""
    sketch = Sketch("rows", elementwise(m=2, n=2), (Factor("x"),), (), ())
    numbers = np.unique(np.geomspace(1, 2.0**40, 4000).astype(np.int64))
    tile = Tile("Y", "i", (var("x"), const(1)))
    sketch = evolve(sketch, steps=(tile,))
    found = pam_features(sketch, numbers[:, None], CPU)
    column = found.values[:, FEATURE_COLUMNS.index("executions")]
    exact = np.log2(1 + 2.0 * numbers)
    rows = column[found.statements.index("Y") :: len(found.statements)]
    assert np.max(np.abs(rows - exact) / np.spacing(exact.astype(np.float32))) < 0.51


class TestRefusals:
    sketch, matrix = batch(gemm(m=8, n=8, k=8), 8).parts[0]

    def test_unknown_fidelity(self) -> None:
        with pytest.raises(UnknownNameError, match="published"):
            pam_features(self.sketch, self.matrix, CPU, "publishd")

    def test_wrong_shape(self) -> None:
        with pytest.raises(InvalidValueError, match="parameters; got a matrix"):
            pam_features(self.sketch, self.matrix[:, :-1], CPU)
        with pytest.raises(InvalidValueError, match="got a matrix"):
            pam_features(self.sketch, self.matrix[0], CPU)

    def test_wrong_type(self) -> None:
        with pytest.raises(InvalidValueError, match="int64"):
            pam_features(self.sketch, self.matrix.astype(np.float64), CPU)

    def test_numbers_beyond_doubles(self) -> None:
        with pytest.raises(InvalidValueError, match="2\\^53"):
            pam_features(self.sketch, np.full_like(self.matrix, 2**40), CPU)

    def test_threads(self) -> None:
        with pytest.raises(InvalidValueError, match="threads"):
            pam_features(self.sketch, self.matrix, CPU, threads=0)


# Five levels of i and of j, three of k; whatever else there is, 1.
TILES = {"i": (2, 1, 4, 2, 1), "j": (1, 2, 4, 1, 2), "k": (4, 2, 2)}


def gpu_product() -> tuple[Sketch, dict[str, int]]:
    """A product of 16 x 16 matrices through shared memory."""
    space = SketchSpace(gemm(m=16, n=16, k=16), GPU, LIMITS)
    sketch = next(sketch for sketch in space.sketches() if sketch.name == "shared")
    config = {f"C.{axis}.{at}": size for axis, own in TILES.items() for at, size in enumerate(own)}
    return sketch, {name: config.get(name, 1) for name in sketch.param_names}


@pytest.mark.parametrize("fidelity", ["corrected", "published", "tvm"])
def test_the_published_pattern(fidelity: str) -> None:
    sketch, config = gpu_product()
    expected = published_flow(
        derive_nest(sketch), config, squared=fidelity == "published", fidelity=fidelity
    )
    assert expected.any(axis=1).all()
    row = np.array([list(config.values())], np.int64)
    found = pam_features(sketch, row, GPU, fidelity)
    np.testing.assert_allclose(found.dataflow[0], expected, **CLOSE)


@pytest.mark.parametrize("workload", thinned(WORKLOADS, 3), ids=named)
def test_never_all_zeros_on_a_cpu(workload: Workload) -> None:
    for sketch, matrix in batch(workload, 80).parts:
        corrected = pam_features(sketch, matrix, CPU).dataflow
        assert corrected[:, 0].any(axis=1).all() and corrected[:, 7].any(axis=1).all()
        assert not pam_features(sketch, matrix, CPU, "published").dataflow.any()


def places(name: str, workload: Workload) -> list[tuple[str, str, int] | None]:
    space = SketchSpace(workload, CPU, LIMITS)
    nest = derive_nest(next(sketch for sketch in space.sketches() if sketch.name == name))
    main = next(i for i, s in enumerate(nest.statements) if s.name in ("C", "Y") and s.body)
    return [
        None
        if access is None
        else (nest.statements[access.statement].name, access.buffer, access.place)
        for access in dataflow_accesses(nest, main, generalised=True)
    ]


def test_where_the_eight_accesses_come_from() -> None:
    """The result; both operands and their copies; both reads; the accumulator."""
    assert places("packed-panel-outer", gemm(m=32, n=48, k=16)) == [
        ("C.write", "C", 0),
        ("A.pack", "A", 0),
        ("A.pack", "A.pack", 1),
        ("B.pack", "B", 0),
        ("B.pack", "B.pack", 1),
        ("C", "B.pack", 1),
        ("C", "A.pack", 1),
        ("C", "C.tile", 2),
    ]


def test_an_operand_without_a_copy_stands_for_its_copy() -> None:
    assert places("direct", gemm(m=32, n=48, k=16)) == [
        ("C.write", "C", 0),
        ("C", "A", 0),
        ("C", "A", 0),
        ("C", "B", 0),
        ("C", "B", 0),
        ("C", "B", 0),
        ("C", "A", 0),
        ("C", "C.tile", 2),
    ]
