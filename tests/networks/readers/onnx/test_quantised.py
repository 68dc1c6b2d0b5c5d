"""Models of bytes between pairs of nodes that quantise and dequantise: they stay bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_models import model_of

from autotune.networks.graph import evaluate
from autotune.networks.passes.pipeline import run_passes
from autotune.networks.readers.onnx import OnnxNetwork, read_onnx
from autotune.targets import detect_cpu

Array = NDArray[Any]
make = helper.make_node

CONSTANTS: dict[str, Any] = {
    "s": np.float32(0.1),
    "z": np.uint8(120),
    "t": np.float32(0.05),
    "columns": np.array([0.1, 0.2, 0.3, 0.4], np.float32),
    "none": np.zeros(4, np.uint8),
    "rows": np.array([6, -1]),
    "starts": np.array([1]),
    "ends": np.array([3]),
    "axis": np.array([2]),
    "pads": np.array([0, 0, 1, 0, 0, 0, 2, 1]),
    "places": np.array([[2, 0], [1, 1]]),
    "sizes": np.array([1, 1, 2, 2], np.float32),
}


def read(nodes: Sequence[Any], given: Array) -> tuple[OnnxNetwork, Array, Array]:
    """A model from ``q`` to ``y``, what it computes, and what ONNX's evaluator does."""
    kind = given.dtype.name
    model = model_of(nodes, {"q": (kind, given.shape)}, {"y": (kind, ["?"])}, CONSTANTS, opset=21)
    network = read_onnx(model)
    (found,) = evaluate(network.graph, {"q": given}).values()
    (wanted,) = ReferenceEvaluator(model).run(None, {"q": given})
    return network, found, np.asarray(wanted)


def types(network: OnnxNetwork) -> set[str]:
    return {it for workload in network.graph.workloads for it in workload.dtypes}


@pytest.mark.parametrize(
    "node",
    [
        make("Transpose", ["d"], ["m"], perm=[0, 2, 3, 1]),
        make("Reshape", ["d", "rows"], ["m"]),
        make("Flatten", ["d"], ["m"], axis=2),
        make("Slice", ["d", "starts", "ends", "axis"], ["m"]),
        make("Split", ["d"], ["other", "m"], axis=3, num_outputs=2),
        make("Gather", ["d", "places"], ["m"], axis=1),
        make("Concat", ["d", "d"], ["m"], axis=1),
        make("Pad", ["d", "pads"], ["m"]),
        make("Pad", ["d", "pads"], ["m"], mode="edge"),
        make("MaxPool", ["d"], ["m"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        make("Resize", ["d", "", "sizes"], ["m"], mode="nearest"),
        make("ReduceMax", ["d", "axis"], ["m"]),
    ],
    ids=lambda it: it.op_type,
)
def test_bytes_are_moved_as_they_are(node: Any) -> None:
    given = np.random.default_rng(0).integers(0, 256, (1, 3, 4, 5), np.uint8)
    nodes = [
        make("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node,
        make("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    network, found, wanted = read(nodes, given)
    np.testing.assert_array_equal(found, wanted)
    assert not {it for it in types(network) if it.startswith("float")}


def test_what_has_another_scale_or_is_computed_is_rounded_again() -> None:
    given = np.random.default_rng(0).integers(0, 256, (2, 4), np.uint8)
    down = make("DequantizeLinear", ["q", "s", "z"], ["d"])
    for nodes in (
        [down, make("Neg", ["d"], ["m"]), make("QuantizeLinear", ["m", "s", "z"], ["y"])],
        [down, make("QuantizeLinear", ["d", "t", "z"], ["y"])],
        [
            make("DequantizeLinear", ["q", "columns", "none"], ["d"], axis=1),
            make("Transpose", ["d"], ["m"], perm=[1, 0]),
            make("QuantizeLinear", ["m", "columns", "none"], ["y"], axis=0),
        ],
    ):
        _, found, wanted = read(nodes, given)
        np.testing.assert_array_equal(found, wanted)


def test_sums_of_bytes_are_bytes_from_one_task_to_the_next() -> None:
    """A residual block: both branches, and what reads their sum, are bytes."""
    rng = np.random.default_rng(0)
    CONSTANTS["kernel"] = rng.integers(-9, 9, (4, 4, 3, 3), np.int8)
    CONSTANTS["side"] = rng.integers(-9, 9, (4, 4, 1, 1), np.int8)
    down, up = "DequantizeLinear", "QuantizeLinear"
    nodes = [
        make(down, ["q", "s", "z"], ["d"]),
        make(down, ["kernel", "t"], ["kernel_d"]),
        make("Conv", ["d", "kernel_d"], ["c"], pads=[1, 1, 1, 1]),
        make(up, ["c", "s", "z"], ["c_q"]),
        make(down, ["c_q", "s", "z"], ["c_d"]),
        make(down, ["side", "t"], ["side_d"]),
        make("Conv", ["d", "side_d"], ["b"]),
        make(up, ["b", "t", "z"], ["b_q"]),
        make(down, ["b_q", "t", "z"], ["b_d"]),
        make("Add", ["c_d", "b_d"], ["a"]),
        make("Add", ["a", "d"], ["e"]),
        make("Relu", ["e"], ["r"]),
        make(up, ["r", "s", "z"], ["r_q"]),
        make(down, ["r_q", "s", "z"], ["r_d"]),
        make("GlobalAveragePool", ["r_d"], ["g"]),
        make(up, ["g", "s", "z"], ["y"]),
    ]
    network, found, wanted = read(nodes, rng.integers(110, 130, (1, 4, 6, 6), np.uint8))
    assert np.max(np.abs(found.astype(int) - wanted.astype(int))) <= 1
    graph, _ = run_passes(network.graph, detect_cpu(), 1, {"layouts": None})
    assert {kind for node in graph.nodes for _, kind in node.results} == {"uint8"}
    assert len(graph.workloads) <= 4


def test_weights_that_are_turned_are_multiplied_as_bytes() -> None:
    """Of a scale for each column of the product, which is a row of the weights."""
    rng = np.random.default_rng(0)
    CONSTANTS["w"] = rng.integers(0, 256, (4, 5), np.uint8)
    nodes = [
        make("DequantizeLinear", ["q", "s", "z"], ["d"]),
        make("DequantizeLinear", ["w", "columns", "none"], ["wd"], axis=0),
        make("Transpose", ["wd"], ["wt"], perm=[1, 0]),
        make("MatMul", ["d", "wt"], ["m"]),
        make("QuantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    network, found, wanted = read(nodes, rng.integers(100, 140, (3, 5), np.uint8))
    assert np.max(np.abs(found.astype(int) - wanted.astype(int))) <= 1
    products = [it for it in network.graph.workloads if it.name == "matmul"]
    assert [it.dtypes for it in products] == [{"uint8", "int32"}]
