"""Small models behind all passes, beside a runtime that changes nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from autotune.networks.graph import evaluate
from autotune.networks.passes.fuse_attention import fused
from autotune.networks.passes.pipeline import run_passes
from autotune.networks.readers.onnx import read_onnx
from autotune.targets import preset
from tests.support.random_models import image_model, text_model

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
