"""A network in ONNX Runtime and in OpenVINO, read from ONNX or exported from torch."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import InvalidValueError
from autotune.networks.api import ModelOptions
from autotune.networks.bench.runtimes import Prepared
from autotune.networks.source import Source
from autotune.tuning.options import TuneOptions

__all__ = ["onnxruntime", "openvino"]

_OPSET = 17


def onnxruntime(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """ONNX Runtime on the CPU."""
    runtime = import_module("onnxruntime")
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = options.machine.cores
    settings.inter_op_num_threads = 1
    content, inputs = _onnx(source)
    session = runtime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    feed = _named([it.name for it in session.get_inputs()], inputs, source)

    def run() -> Any:
        return session.run(None, feed)

    return Prepared(run, run, f"onnxruntime {runtime.__version__}")


def openvino(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """OpenVINO on the CPU, in the types of the model."""
    runtime = import_module("openvino")
    if _is_onnx(source):
        model, inputs = runtime.convert_model(source.model), _given(source)
    else:
        torch_runtimes = import_module("autotune.networks.bench.torch_runtimes")
        module, tensors = torch_runtimes.as_module(source)
        returning = torch_runtimes.ReturningTensors(module)
        model = runtime.convert_model(returning, example_input=tensors)
        inputs = [np.asarray(it.detach()) for it in tensors]
    settings = {
        "INFERENCE_NUM_THREADS": options.machine.cores,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = runtime.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    feed: Any = inputs
    if source.baked:
        feed = _named([it.any_name for it in compiled.inputs], inputs, source)

    def run() -> Any:
        return request.infer(feed, share_inputs=True, share_outputs=True)

    def outputs() -> list[Any]:
        found = run()
        return [np.array(found[at]) for at in range(len(compiled.outputs))]

    return Prepared(run, outputs, f"openvino {runtime.__version__}")


def _is_onnx(source: Source) -> bool:
    return isinstance(source.model, Path) and source.model.suffix == ".onnx"


def _given(source: Source) -> list[Any]:
    if source.example_inputs is None:
        raise InvalidValueError(f"{source.text} has no example inputs")
    return list(map(np.asarray, source.example_inputs))


def _named(names: Sequence[str], inputs: Sequence[Any], source: Source) -> dict[str, Any]:
    """Inputs by name, with the values of those that are baked into the network."""
    left = [name for name in names if name not in source.baked]
    return {**source.baked, **dict(zip(left, inputs, strict=True))}


def _onnx(source: Source) -> tuple[Any, list[Any]]:
    """A model as ONNX, and its inputs."""
    if _is_onnx(source):
        return str(source.model), _given(source)
    torch = import_module("torch")
    torch_runtimes = import_module("autotune.networks.bench.torch_runtimes")
    module, inputs = torch_runtimes.as_module(source)
    stream = io.BytesIO()
    with torch.inference_mode():
        returning = torch_runtimes.ReturningTensors(module)
        torch.onnx.export(returning, inputs, stream, opset_version=_OPSET, dynamo=False)
    return stream.getvalue(), [np.asarray(it.detach()) for it in inputs]
