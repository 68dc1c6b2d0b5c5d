"""Attention of Microsoft's domain, beside the runtime that defines it, and as one workload."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import model_of

from autotune.errors import UnsupportedWorkload
from autotune.networks.graph import evaluate
from autotune.networks.passes.fuse_attention import fused
from autotune.networks.readers.onnx import read_onnx

BATCH, ROWS, KEYS, HEADS, WIDTH = 2, 5, 7, 2, 4
NAMES = ("query", "key", "value", "bias", "padding", "added", "past_key", "past_value")


def _model(inputs: dict[str, Any], total: int, **attributes: Any) -> Any:
    names = [name if name in inputs else "" for name in NAMES]
    node = helper.make_node(
        "MultiHeadAttention",
        names,
        ["y", "keys", "values"],
        domain="com.microsoft",
        num_heads=HEADS,
        **attributes,
    )
    present = ("float32", (BATCH, HEADS, total, WIDTH))
    outputs = {"y": ("float32", (BATCH, ROWS, HEADS * WIDTH)), "keys": present, "values": present}
    declared = {name: (str(it.dtype), it.shape) for name, it in inputs.items()}
    return model_of([node], declared, outputs, domains=["com.microsoft"])


def _inputs(wanted: tuple[str, ...], keys: int, past: int) -> dict[str, Any]:
    rng, wide, total = np.random.default_rng(0), HEADS * WIDTH, keys + past
    shapes = {
        "query": (BATCH, ROWS, wide),
        "key": (BATCH, keys, wide),
        "value": (BATCH, keys, wide),
        "bias": (3 * wide,),
        "added": (1, HEADS, ROWS, total),
        "past_key": (BATCH, HEADS, past, WIDTH),
        "past_value": (BATCH, HEADS, past, WIDTH),
    }
    found: dict[str, Any] = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
        if name in (*NAMES[:3], *wanted)
    }
    if "padding" in wanted:
        found["padding"] = rng.integers(0, 2, (BATCH, total)).astype(np.int32)
    return found


@pytest.mark.needs("onnxruntime")
@pytest.mark.parametrize(
    ("wanted", "later"),
    [
        ((), 0),
        (("bias",), 0),
        (("padding", "bias"), 0),
        (("added",), 1),
        (("padding", "added", "past_key", "past_value"), 0),
        (("bias", "past_key", "past_value"), 1),
    ],
)
def test_it_computes_what_the_runtime_does(wanted: tuple[str, ...], later: int) -> None:
    from onnxruntime import InferenceSession

    past = 3 * ("past_key" in wanted)
    keys = ROWS if later else KEYS
    inputs = _inputs(wanted, keys, past)
    model = _model(inputs, keys + past, unidirectional=later)
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, inputs)
    graph = read_onnx(model).graph
    after, count = fused(graph, lambda attention: True)
    assert count == 1
    for each in (graph, after):
        for got, right in zip(evaluate(each, inputs).values(), want, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


def test_what_is_packed_is_refused() -> None:
    inputs = {"query": np.zeros((BATCH, ROWS, HEADS, 3, WIDTH), np.float32)}
    with pytest.raises(UnsupportedWorkload, match="that are packed are not supported"):
        read_onnx(_model(inputs, ROWS))
