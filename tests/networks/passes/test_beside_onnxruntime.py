"""Small models behind all passes, beside a runtime that changes nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import define, field
from onnx import ModelProto, helper
from onnx_models import model_of

from autotune.networks.graph import evaluate
from autotune.networks.passes.fuse_attention import fused
from autotune.networks.passes.pipeline import run_passes
from autotune.networks.readers.onnx import read_onnx
from autotune.targets import preset


@define
class _Builder:
    """A model so far.

    Attributes:
        rng: Draws what comes next, and weights.
        nodes: Of the model.
        constants: By name.
    """

    rng: np.random.Generator
    nodes: list[Any] = field(factory=list)
    constants: dict[str, Any] = field(factory=dict)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """The name of what a node computes."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, array: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int) -> str:
        """The name of weights of a product, over all axes but the last or of a filter."""
        scale = np.prod(shape[1:] if len(shape) > 2 else shape[:1]) ** -0.5
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def vector(self, size: int, low: float = -1.0, high: float = 1.0) -> str:
        """The name of a number for each channel."""
        return self.constant(self.rng.uniform(low, high, size).astype(np.float32))


def image_model(seed: int) -> Any:
    """Convolutions, norms, pooling and branches, with one input ``x``."""
    build = _Builder(np.random.default_rng(seed))
    channels, size, value = 4, 9, "x"
    for _ in range(5):
        kind = build.rng.choice(["conv", "depthwise", "branch", "pool", "scaled"])
        if kind == "conv":
            out, kernel = int(build.rng.choice([4, 6, 8])), int(build.rng.choice([1, 3]))
            edges = [kernel // 2] * 4
            weights = build.weights(out, channels, kernel, kernel)
            value = build.node("Conv", value, weights, build.vector(out), pads=edges)
            channels = out
        elif kind == "depthwise":
            weights = build.weights(channels, 1, 3, 3)
            value = build.node("Conv", value, weights, pads=[1] * 4, group=channels)
        elif kind == "pool" and size >= 4:
            pool = str(build.rng.choice(["MaxPool", "AveragePool"]))
            value = build.node(pool, value, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
            size = (size + 1) // 2
        elif kind == "branch":
            other = build.node("Conv", value, build.weights(channels, channels, 1, 1))
            value = build.node("Add", value, build.node("HardSwish", other))
        else:
            vectors = [build.vector(channels) for _ in range(3)]
            spread = build.vector(channels, 0.5, 2.0)
            value = build.node("BatchNormalization", value, *vectors, spread)
        value = build.node(str(build.rng.choice(["Relu", "Sigmoid", "Identity"])), value)
    pooled = build.node("Flatten", build.node("GlobalAveragePool", value))
    build.node("Gemm", pooled, build.weights(7, channels), build.vector(7), transB=1)
    build.nodes[-1].output[0] = "y"
    shapes = {"x": ("float32", (2, 4, 9, 9))}, {"y": ("float32", (2, 7))}
    return model_of(build.nodes, *shapes, build.constants)


def text_model(seed: int) -> Any:
    """Attention, norms and perceptrons, with one input ``x``."""
    build = _Builder(np.random.default_rng(seed))
    heads, width, rows, value = int(build.rng.choice([1, 2, 4])), 16, 6, "x"
    for _ in range(2):
        scale, bias = build.vector(width, 0.5, 1.5), build.vector(width)
        normed = build.node("LayerNormalization", value, scale, bias, axis=-1)
        value = build.node("Add", value, _attention(build, normed, heads, rows, width))
        wide = build.node("MatMul", value, build.weights(width, 32))
        wide = build.node("Add", wide, build.vector(32))
        active = build.node(str(build.rng.choice(["Gelu", "Tanh", "Relu"])), wide)
        value = build.node("Add", value, build.node("MatMul", active, build.weights(32, width)))
    build.node("Softmax", build.node("MatMul", value, build.weights(width, 5)), axis=-1)
    build.nodes[-1].output[0] = "y"
    shapes = {"x": ("float32", (2, rows, width))}, {"y": ("float32", (2, rows, 5))}
    return model_of(build.nodes, *shapes, build.constants, opset=20)


def _attention(build: _Builder, x: str, heads: int, rows: int, width: int) -> str:
    """Projections, products, a mask or none, and the projection of the result."""
    apart = build.constant(np.array([0, 0, heads, width // heads]))
    orders = [[0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]]
    q, k, v = (
        build.node(
            "Transpose",
            build.node("Reshape", build.node("MatMul", x, build.weights(width, width)), apart),
            perm=order,
        )
        for order in orders
    )
    root = np.float32((width // heads) ** 0.5)
    scores = build.node("Div", build.node("MatMul", q, k), build.constant(root))
    mask = np.where(np.tri(rows), 0, build.rng.choice([0, -1e4, -np.inf])).astype(np.float32)
    weights = build.node("Softmax", build.node("Add", scores, build.constant(mask)), axis=-1)
    mixed = build.node("Transpose", build.node("MatMul", weights, v), perm=[0, 2, 1, 3])
    flat = build.node("Reshape", mixed, build.constant(np.array([0, 0, width])))
    return build.node("MatMul", flat, build.weights(width, width))


CPU = preset("skylake-avx512-4core")


def _wanted(model: ModelProto, x: Any) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


@pytest.mark.needs("onnxruntime")
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("make", [image_model, text_model])
def test_all_passes_leave_what_a_model_computes(
    make: Callable[[int], ModelProto], seed: int
) -> None:
    model = make(seed)
    graph = read_onnx(model).graph
    x = np.random.default_rng(seed).standard_normal(graph.inputs[0].shape).astype(np.float32)
    every_attention, count = fused(graph, lambda attention: True)
    assert count == (2 if make is text_model else 0)
    for each in (graph, every_attention):
        changed, _ = run_passes(each, CPU, 2)
        assert len(changed.nodes) < len(graph.nodes)
        found = evaluate(changed, {"x": x})["y"]
        np.testing.assert_allclose(found, _wanted(model, x), rtol=1e-4, atol=1e-5)
