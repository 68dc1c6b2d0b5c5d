"""The data-flow block, and every difference between what is published and what is corrected."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.pam import published_flow

from autotune.ir.workloads import Workload, conv2d, dense, elementwise, gemm, softmax
from autotune.models.features import DATAFLOW_COLUMNS, FEATURE_COLUMNS, PamFeatures, pam_features
from autotune.models.features.quantities import dataflow_accesses
from autotune.nest import derive_nest
from autotune.sketches import STEP_TYPES, Sketch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset

CPU = preset("skylake-avx512-2core")
GPU = preset("a100")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")
# Five levels of i and of j, three of k; whatever else there is, 1.
TILES = {"i": (2, 1, 4, 2, 1), "j": (1, 2, 4, 1, 2), "k": (4, 2, 2)}
WORKLOADS = (
    gemm(m=32, n=48, k=16),
    dense(m=8, n=32, k=64),
    conv2d(h=14, w=14, ci=8, co=16, pad=1),
    softmax(m=8, n=64),
    elementwise(m=8, n=64),
)


def sketch_named(name: str, workload: Workload) -> tuple[Sketch, np.ndarray]:
    space = SketchSpace(workload, CPU, LIMITS)
    parts = space.sample(20 * len(space.sketches()), np.random.default_rng(1)).parts
    return next((sketch, matrix) for sketch, matrix in parts if sketch.name == name)


def gpu_product() -> tuple[Sketch, dict[str, int]]:
    """A product of 16 x 16 matrices through shared memory."""
    space = SketchSpace(gemm(m=16, n=16, k=16), GPU, LIMITS)
    sketch = next(sketch for sketch in space.sketches() if sketch.name == "shared")
    config = {f"C.{axis}.{at}": size for axis, own in TILES.items() for at, size in enumerate(own)}
    return sketch, {name: config.get(name, 1) for name in sketch.param_names}


def of_gpu(fidelity: str) -> PamFeatures:
    sketch, config = gpu_product()
    return pam_features(sketch, np.array([list(config.values())], np.int64), GPU, fidelity)


@pytest.mark.parametrize("fidelity", ["corrected", "published", "tvm"])
def test_the_published_pattern(fidelity: str) -> None:
    sketch, config = gpu_product()
    expected = published_flow(
        derive_nest(sketch), config, squared=fidelity == "published", fidelity=fidelity
    )
    assert expected.any(axis=1).all()
    np.testing.assert_allclose(of_gpu(fidelity).dataflow[0], expected, rtol=2.5e-7, atol=1e-7)


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_never_all_zeros_on_a_cpu(workload: Workload) -> None:
    space = SketchSpace(workload, CPU, LIMITS)
    for sketch, matrix in space.sample(10 * len(space.sketches()), np.random.default_rng(0)).parts:
        corrected = pam_features(sketch, matrix, CPU).dataflow
        assert corrected[:, 0].any(axis=1).all() and corrected[:, 7].any(axis=1).all()
        assert not pam_features(sketch, matrix, CPU, "published").dataflow.any()


def places(name: str, workload: Workload) -> list[tuple[str, str, int] | None]:
    sketch, _ = sketch_named(name, workload)
    nest = derive_nest(sketch)
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


def difference(name: str, corrected: PamFeatures, published: PamFeatures, row: int) -> list[float]:
    """Both values of a column, as numbers before the logarithm."""
    column = FEATURE_COLUMNS.index(name)
    return [round(float(2 ** f.values[row, column] - 1), 2) for f in (corrected, published)]


def test_operations_of_the_flow_are_squared() -> None:
    column = DATAFLOW_COLUMNS.index("float_operations")
    corrected, published = (of_gpu(f).dataflow[0, 7, column] for f in ("corrected", "published"))
    executions = 16**3
    np.testing.assert_allclose(2**corrected - 1, 2 * executions, rtol=1e-5)
    np.testing.assert_allclose(2**published - 1, 2 * executions**2, rtol=1e-5)


def product_of(i: tuple[int, ...], j: tuple[int, ...]) -> tuple[PamFeatures, PamFeatures]:
    """C[16, 64] of k = 8 by the sketch without copies, tiled as given (inner loops last)."""
    workload = gemm(m=16, n=64, k=8)
    sketch, _ = sketch_named("direct", workload)
    config = {f"C.i.{level}": size for level, size in enumerate(i)}
    config |= {f"C.j.{level}": size for level, size in enumerate(j)}
    config |= {"C.k.0": 8, "C.k.1": 1}
    row = np.array([[config.get(name, 1) for name in sketch.param_names]], np.int64)
    return pam_features(sketch, row, CPU), pam_features(sketch, row, CPU, "published")


def test_lines_divide_by_the_loops_that_stay_in_them() -> None:
    """A moves with i.2 (4 rows, 32 bytes apart) outside j.2 (2) and j.3 (16), which it skips.

    Each of the 8192 / 32 steps of i.2 takes half a line; published, both skipped loops count as
    16 long: 8192 / 16**2 / 2.
    """
    corrected, published = product_of((2, 2, 4), (2, 1, 2, 16))
    executions = 16 * 64 * 8
    found = [
        (round(float(2 ** f.values[0, at + 5] - 1), 2), float(f.values[0, at + 10]))
        for f in (corrected, published)
        for at in (57, 75, 93)
    ]
    lines = [value for value, _ in found]
    assert executions / 32 / 2 in lines[:3]
    assert executions / 16**2 / 2 in lines[3:]


def test_loops_of_extent_one_are_no_loops() -> None:
    corrected, published = product_of((4, 4, 1), (4, 1, 1, 16))
    assert difference("unrolled_count", corrected, published, 0) == [0, 3]
    assert difference("loops", corrected, published, 0) == [4, 7]


def test_guards_of_padding_are_selects() -> None:
    sketch, matrix = sketch_named("direct", conv2d(h=14, w=14, ci=8, co=16, pad=1))
    corrected, published = (
        pam_features(sketch, matrix[:1], CPU, f) for f in ("corrected", "published")
    )
    assert corrected.statements[0] == "P"
    cells = 16 * 16 * 8
    assert difference("select", corrected, published, 0) == [cells, 0]
    assert difference("float_function", corrected, published, 0) == [0, cells]


def test_virtual_threads_do_not_repeat_what_a_block_copies() -> None:
    corrected, published = of_gpu("corrected"), of_gpu("published")
    row = corrected.statements.index("A.fetch")
    once, repeated = difference("executions", corrected, published, row)
    assert repeated == 2 * once


def test_what_lies_together_is_the_buffer_s_own() -> None:
    """Of B[8, 64] all is read: one run. Published: B's first extent against C's, of 16."""
    corrected, published = product_of((2, 2, 4), (2, 1, 2, 16))
    found = [
        {round(float(2 ** f.values[0, at + 6] - 1), 2) for at in (57, 75, 93)}
        for f in (corrected, published)
    ]
    assert 8 * 64 * 4 / 64 in found[0]
    assert found[0] != found[1]
