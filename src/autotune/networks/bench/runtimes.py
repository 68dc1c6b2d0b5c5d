"""Runtimes of networks, by name; networks in ONNX Runtime and OpenVINO, read from ONNX or torch.

Nothing is imported here that they need.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.networks.api import ModelOptions
from autotune.networks.source import Source
from autotune.tuning.options import TuneOptions

__all__ = ["Prepared", "RUNTIMES", "Runtime", "TUNED", "UNTUNED", "onnxruntime", "openvino"]

TUNED = "autotune"
UNTUNED = "untuned"


@frozen
class Runtime:
    """Runtime of networks.

    Attributes:
        packages: Modules that it needs, by what installs them.
        factory: ``module:function`` that prepares a network; imported in a process of its own.
        description: One line.
        left_out: Why it takes no part on CUDA devices; "" where it does.
    """

    packages: Mapping[str, str]
    factory: str
    description: str
    left_out: str = ""


@frozen(eq=False)
class Prepared:
    """A network that a runtime has prepared.

    Attributes:
        run: Runs it once, on its inputs.
        outputs: Runs it once and gives the outputs as numpy arrays.
        version: Of the runtime.
        seconds: Times so many calls, where the runtime does that itself; else ``run`` is timed.
        inputs: What it runs on, for the other runtimes; () where the source has inputs.
        baked: Values of inputs of the source that are not among ``inputs``, by name.
        remarks: What was chosen of the inputs that nobody gave, a line each.
        on_device: Whether ``seconds`` are those of a device, so that what a call takes beside them
            is of interest: ``run`` ends when the outputs are there.
    """

    run: Callable[[], object]
    outputs: Callable[[], Sequence[NDArray[Any]]]
    version: str
    seconds: Callable[[int], Sequence[float]] | None = None
    inputs: Sequence[Any] = ()
    baked: Mapping[str, Any] = field(factory=dict)
    remarks: Sequence[str] = ()
    on_device: bool = False


_HERE = "autotune.networks.bench"
_TORCH = {"torch": "pip install torch"}

RUNTIMES: Mapping[str, Runtime] = {
    TUNED: Runtime({}, f"{_HERE}.own:tuned", "with the fastest schedules of the database"),
    UNTUNED: Runtime({}, f"{_HERE}.own:untuned", "the same compiler with its default schedules"),
    "torch eager": Runtime(_TORCH, f"{_HERE}.torch_runtimes:eager", "torch, operator by operator"),
    "torch.compile": Runtime(_TORCH, f"{_HERE}.torch_runtimes:compiled", "torch with Inductor"),
    "onnxruntime": Runtime(
        {"onnxruntime": "pip install onnxruntime"},
        f"{_HERE}.runtimes:onnxruntime",
        "ONNX Runtime on the CPU",
        "on CUDA devices it is another package, whose kernels are mostly those of torch: cuDNN's "
        "and cuBLAS's",
    ),
    "openvino": Runtime(
        {"openvino": "pip install openvino"},
        f"{_HERE}.runtimes:openvino",
        "OpenVINO on the CPU",
        "it has no kernels for CUDA devices",
    ),
}
"""Every runtime; a table of results has them in this order."""


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
