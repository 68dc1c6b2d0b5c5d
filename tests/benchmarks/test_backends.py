"""The operators of the row `backends` mean what their names say, and its bars are by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload, random_inputs, reference_outputs

Array = NDArray[Any]


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[Any, Any]]:
    """The script, and the operators that have no builder."""
    with benchmark_scripts("backends", "support.backend_workloads") as modules:
        yield modules


def computed(workload: Workload) -> tuple[dict[str, Array], Array]:
    """Random inputs, and the result."""
    inputs = random_inputs(workload, np.random.default_rng(0))
    return inputs, reference_outputs(workload, inputs)[workload.outputs[0]]


def test_layer_norm(scripts: tuple[Any, Any]) -> None:
    inputs, found = computed(scripts[1].layer_norm(m=3, n=8))
    x = inputs["X"].astype(np.float64)
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, normal * inputs["G"] + inputs["B"], rtol=1e-5, atol=1e-6)


def test_rms_norm(scripts: tuple[Any, Any]) -> None:
    inputs, found = computed(scripts[1].rms_norm(m=3, n=8))
    x = inputs["X"].astype(np.float64)
    normal = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, normal * inputs["G"], rtol=1e-5, atol=1e-6)


def test_argmax(scripts: tuple[Any, Any]) -> None:
    workload = scripts[1].argmax(m=3, n=8)
    x = np.asarray([[0, 1, 1, 0, 0, 0, 0, 0], [3] * 8, [0, 0, 0, 0, 0, 0, 0, 9]], np.float32)
    assert reference_outputs(workload, {"X": x})["I"].tolist() == [1, 0, 7]


def test_grouped_conv2d(scripts: tuple[Any, Any]) -> None:
    inputs, found = computed(scripts[1].grouped_conv2d(h=4, w=5, g=2, ci=3, co=2))
    padded = np.pad(inputs["X"], ((1, 1), (1, 1), (0, 0), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    expected = np.einsum("yxgckl,klgco->yxgo", windows, inputs["W"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_transposed_conv2d(scripts: tuple[Any, Any]) -> None:
    """Each element adds the turned kernel to what it is in the middle of."""
    inputs, found = computed(scripts[1].transposed_conv2d(h=3, w=2, ci=3, co=2))
    whole = np.zeros((2 * 3 + 2, 2 * 2 + 2, 2))
    turned = inputs["W"][::-1, ::-1]
    for y in range(3):
        for x in range(2):
            added = np.einsum("c,klco->klo", inputs["X"][y, x], turned)
            whole[2 * y : 2 * y + 4, 2 * x : 2 * x + 4] += added
    np.testing.assert_allclose(found, whole[1:-1, 1:-1], rtol=1e-5, atol=1e-5)


def test_shared_attention(scripts: tuple[Any, Any]) -> None:
    inputs, found = computed(scripts[1].shared_attention(h=4, g=2, n=3, d=8))
    keys, values = (np.repeat(inputs[name], 2, axis=0) for name in "KV")
    scores = np.einsum("hid,hjd->hij", inputs["Q"], keys) / np.sqrt(8)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("hij,hjd->hid", powers / powers.sum(-1, keepdims=True), values)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_concat_transpose(scripts: tuple[Any, Any]) -> None:
    inputs, found = computed(scripts[1].concat_transpose(m=3, n=4))
    np.testing.assert_array_equal(found, np.hstack([inputs["A"], inputs["B"]]).T)


def test_embedding_bag(scripts: tuple[Any, Any]) -> None:
    inputs, found = computed(scripts[1].embedding_bag(bags=3, most=4, words=7, width=5))
    expected = np.einsum("ikj,ik->ij", inputs["T"][inputs["I"].clip(0, 6)], inputs["W"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_rows_are_tuned_as_what_they_are(scripts: tuple[Any, Any]) -> None:
    backends, operators = scripts
    for row in backends.ROWS:
        name, shape, arguments = row.tuned()
        if "--importer" in arguments:
            (read,) = operators.RowImporter().read(name)
            assert read == row.made() and not shape
        else:
            assert (name, dict(shape)) == (row.workload, dict(row.shape))
    with pytest.raises(InvalidValueError, match="'argmin' is not one of argmax, "):
        operators.RowImporter().read("argmin m=3 n=4")


def test_every_row_has_a_bar_but_those_with_a_reason(scripts: tuple[Any, Any]) -> None:
    backends = scripts[0]
    names = {row.name for row in backends.ROWS}
    assert set(backends.REASONS) <= names
    for threads in (1, 2):
        trials = [
            backends.Trial(name, threads, 0, final={"native": [1.0], "mlir": [1.31]})
            for name in names
        ]
        failed = {bar.name for bar in backends.bars_of(trials) if "mlir over ours" in bar.name}
        free = set(backends.REASONS if threads > 1 else ())
        assert len(failed) == len(names - free)
