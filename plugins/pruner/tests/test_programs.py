from __future__ import annotations

import numpy as np
import pytest
from autotune_pruner.programs import (
    TASK_COLUMNS,
    Programs,
    featurise,
    normaliser_of,
    task_embedding,
)
from autotune_pruner.ranking_model import Samples
from toy_outcomes import TARGET, told

from autotune.ir.workloads import Workload
from autotune.ir.workloads.builders import (
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.models.features import pam_features
from autotune.sketches import STEP_TYPES, CandidateBatch
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.store.records import Outcome

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 1 << 16, 512, "this test")


def _batch(workload: Workload, n: int = 40) -> CandidateBatch:
    return SketchSpace(workload, TARGET, LIMITS).sample(n, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("workload", "columns"),
    [
        (gemm(m=8, n=8, k=8), {"addition", "matrix_product"}),
        (dense(m=8, n=8, k=8), {"addition", "maximum", "matrix_product"}),
        (batch_matmul(b=2, m=8, n=8, k=8), {"addition", "batched_product"}),
        (conv2d(h=8, w=8, ci=4, co=4, pad=1), {"addition", "convolution"}),
        (conv2d(h=8, w=8, ci=4, co=4, kh=1, kw=1, relu=1), {"addition", "maximum", "convolution"}),
        (depthwise_conv2d(h=8, w=8, c=4), {"addition", "depthwise"}),
        (softmax(m=8, n=8), {"addition", "maximum", "softmax"}),
        (elementwise(m=8, n=8), {"addition", "maximum"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_a_task_is_is_read_from_its_computation(
    workload: Workload, columns: set[str]
) -> None:
    found = task_embedding(workload)
    assert found.shape == (10,) and found.dtype == np.float32
    assert {name for name, value in zip(TASK_COLUMNS, found, strict=True) if value} == columns


def test_columns_are_features_and_then_the_task() -> None:
    batch = _batch(gemm(m=64, n=64, k=64))
    found = featurise(batch, TARGET)
    sketch, matrix = batch.parts[0]
    wanted = pam_features(sketch, matrix, TARGET)
    rows = len(wanted.values)
    assert found.statements.shape[1] == 174 and len(found) == len(batch)
    np.testing.assert_array_equal(found.statements[:rows, :164], wanted.values)
    np.testing.assert_array_equal(found.dataflow[: len(matrix)], wanted.dataflow)
    assert (found.statements[:, 164:] == task_embedding(sketch.workload)).all()


def test_the_data_flow_of_cpu_programs_is_alive() -> None:
    found = featurise(_batch(gemm(m=64, n=64, k=64)), TARGET)
    assert (np.abs(found.dataflow).sum(axis=(1, 2)) > 0).all()
    assert len(np.unique(found.dataflow.reshape(len(found), -1), axis=0)) > len(found) // 2
    published = featurise(_batch(gemm(m=64, n=64, k=64)), TARGET, "published")
    assert not published.dataflow.any()


def test_taking_and_joining() -> None:
    one = featurise(_batch(gemm(m=64, n=64, k=64)), TARGET)
    other = featurise(_batch(softmax(m=64, n=64)), TARGET)
    both = Programs.joined([one, other])
    assert len(both) == len(one) + len(other)
    back = both.take(np.arange(len(one), len(both)))
    for name in ("statements", "offsets", "dataflow"):
        np.testing.assert_array_equal(getattr(back, name), getattr(other, name))
    indices = np.array([5, 0, len(one)])
    rows, owners = both.rows(indices)
    for number, index in enumerate(indices):
        wanted = np.arange(both.offsets[index], both.offsets[index + 1])
        assert rows[owners == number].tolist() == wanted.tolist()
    assert len(Programs.joined([])) == 0


def test_scaled_columns_are_comparable() -> None:
    programs = featurise(_batch(gemm(m=64, n=64, k=64), 200), TARGET)
    ours = normaliser_of(programs).statements.apply(programs.statements)
    varying = programs.statements.std(axis=0) > 0.02
    np.testing.assert_allclose(ours[:, varying].mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(ours[:, varying].std(axis=0), 1, atol=1e-2)
    assert np.abs(ours[:, ~varying]).max() < 30
    published = normaliser_of(programs, "published").statements.apply(programs.statements)
    assert published.max() == 1 and published.min() >= 0


def test_labels_are_relative_to_the_best_of_the_task() -> None:
    samples = Samples(TARGET, "ours")
    small, large = told(4, extent=8), told(3, extent=64)
    samples.add(
        [
            (c, Outcome("ok", latency))
            for (c, _), latency in zip(small, (4.0, 2.0, 8.0, 2.0), strict=True)
        ]
    )
    samples.add(
        [
            (large[0][0], Outcome("crash")),
            (large[1][0], Outcome("ok", 5.0)),
            (large[2][0], Outcome("ok", 1.0)),
        ]
    )
    data = samples.data()
    np.testing.assert_allclose(data.labels, [0.5, 1.0, 0.25, 1.0, 0.0, 0.2, 1.0])
    assert data.tasks.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert data.teaches and not data.take(np.array([1, 3, 4])).teaches
