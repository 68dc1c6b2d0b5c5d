"""A model of ONNX on a CUDA device that is a fake one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from fake_cuda import FakeCuda
from onnx import helper
from onnx_models import model_of

import autotune
from autotune.measure import MeasureProtocol
from autotune.runtime.network import open_cuda_network

RNG = np.random.default_rng(0)
WEIGHT = RNG.standard_normal((8, 8)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tvm", "cuda"])
def test_a_model_of_onnx_is_tuned_and_saved(cuda: FakeCuda, tmp_path: Path, backend: str) -> None:
    """By the core's own frontend, with records of a backend that serves the device."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Gather", ["h", "ids"], ["y"]),
    ]
    inputs = {"x": ("float32", (4, 8)), "ids": ("int64", (3,))}
    model = model_of(nodes, inputs, {"y": ("float32", (3, 8))}, {"w": WEIGHT})
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    deadlines = {"task": 100.0, "build": 60.0, "verify": 60.0, "run": 90.0}
    protocol = MeasureProtocol(deadlines=deadlines, min_sample_seconds=1e-4)
    options = {"target": "cuda", "backend": backend, "database": str(tmp_path / "records.db")}
    result = autotune.tune_model(path, trials=4, round_size=2, protocol=protocol, **options)
    assert result.trials == 4
    assert result.network.backend == "tvm"
    records = [it.record for it in result.tasks if it.record is not None]
    assert {it.key.backend for it in records} == {backend}
    x, ids = RNG.standard_normal((4, 8)).astype(np.float32), np.array([3, 0, -1])
    network = autotune.build_model(path, **options)
    (found,) = network(x, ids)
    np.testing.assert_allclose(found, (x @ WEIGHT)[ids], rtol=1e-4, atol=1e-4)
    network.save(tmp_path / "network.cuda")
    (again,) = open_cuda_network(tmp_path / "network.cuda")(x, ids)
    np.testing.assert_array_equal(again, found)
