"""A network beside other runtimes on a CUDA device, which is a fake one here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from fake_cuda import FakeCuda
from relax_networks import const, network, op, run, weights

import autotune
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.measure import MeasureProtocol
from autotune.networks.bench import BenchOptions, bench_model
from autotune.networks.bench.bench import bench_table


def body(emit: Any, x: Any) -> Any:
    return emit(op.nn.relu(emit(op.matmul(x, const(weights(8, 8))))))


MODULE = network([((4, 8), "float32")], body)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "model.json"
    path.write_text(tvm.ir.save_json(MODULE))
    return str(path)


def options(folder: Path, **changes: Any) -> BenchOptions:
    given: dict[str, Any] = {"turns": 2, "seconds": 0.01, "target": "cuda"}
    return BenchOptions(database=os.fspath(folder / "records.db"), **{**given, **changes})


@pytest.mark.slow
def test_what_was_tuned_is_built_and_timed_on_the_device(
    cuda: FakeCuda, tmp_path: Path, source: str
) -> None:
    deadlines = {"task": 100.0, "build": 60.0, "verify": 60.0, "run": 90.0}
    protocol = MeasureProtocol(deadlines=deadlines, min_sample_seconds=1e-4)
    given = {"target": "cuda", "database": os.fspath(tmp_path / "records.db")}
    tuned = autotune.tune_model(source, protocol=protocol, trials=2, round_size=2, **given)
    assert tuned.trials == 2 and tuned.target.kind == "cuda"
    assert all(task.latency for task in tuned.tasks if not task.task.view)
    x = weights(4, 8, seed=1)
    for built in (tuned.build(), autotune.build_model(source, **given)):
        np.testing.assert_allclose(built(x)[0], run(MODULE, x)[0], rtol=1e-4, atol=1e-4)
    runtimes = ("autotune", "untuned", "onnxruntime", "openvino")
    result = bench_model(source, options(tmp_path, runtimes=runtimes))
    ours, default, onnx, openvino = result.rows
    assert result.target == "h100" and result.reference == "untuned"
    for row in (ours, default):
        assert row.problem == "" and len(row.medians) == len(row.calls) == 2
        # Of a virtual device that takes microseconds, and of calls of the host.
        assert row.latency and row.latency < 1e-4 and row.call and row.call != row.latency
    assert "on CUDA devices it is another package" in onnx.problem
    assert openvino.problem == "it has no kernels for CUDA devices"
    data = result.to_json()
    assert (data["target"], data["precision"]) == ("h100", None)
    assert data["runtimes"][0]["call"] == ours.call
    table = bench_table(result)
    assert "h100" in table.title and "call" in table.to_json()[0]


def test_what_cannot_be_is_one_error(cuda: FakeCuda, tmp_path: Path, source: str) -> None:
    both = ("autotune", "untuned")
    with pytest.raises(InvalidValueError, match=r"threads are of CPUs, and target 'cuda' is a"):
        options(tmp_path, threads=2)
    with pytest.raises(InvalidValueError, match=r"model\.json cannot be converted to float16"):
        bench_model(source, options(tmp_path, runtimes=both, precision="float16"))
    missing = bench_model(source, options(tmp_path, runtimes=("autotune",)))
    assert "records.db" in missing.rows[0].problem
    asked = options(tmp_path, runtimes=both, target="a100")
    with pytest.raises(UnsupportedTarget, match="'a100' .*is no device of this machine"):
        bench_model(source, asked)


@pytest.mark.gpu
@pytest.mark.needs("torch of CUDA")
@pytest.mark.parametrize("precision", [None, "float16", "bfloat16"])
def test_runtimes_on_a_real_device(tmp_path: Path, precision: str | None) -> None:
    sizes = {"image": 64, "blocks": 1}
    runtimes = ("untuned", "torch eager", "torch.compile")
    asked = options(tmp_path, runtimes=runtimes, seconds=0.2, precision=precision)
    result = bench_model("resnet_50", asked, sizes=sizes)
    for row in result.rows:
        assert row.problem == "", row
        assert row.latency and row.call and row.latency < 2 * row.call, row
