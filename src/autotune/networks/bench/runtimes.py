"""Runtimes of networks, by name: networks that are built here, with records and without, and those
in ONNX Runtime and OpenVINO, read from ONNX or torch.

Nothing is imported here that other runtimes need.
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
from autotune.networks.api import ModelOptions, build_recorded
from autotune.networks.frontend import CompiledNetwork, NetworkProgram
from autotune.networks.loading import load_network
from autotune.networks.running import build_network, copied_inputs
from autotune.networks.source import Source
from autotune.runtime.arrays import as_numpy
from autotune.runtime.network import CudaNetwork
from autotune.targets import Target
from autotune.tuning.options import TuneOptions

__all__ = [
    "Prepared",
    "RUNTIMES",
    "Runtime",
    "TUNED",
    "UNTUNED",
    "onnxruntime",
    "openvino",
    "tuned",
    "untuned",
]

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
_OWN = f"{_HERE}.runtimes"
_TORCH = {"torch": "pip install torch"}

RUNTIMES: Mapping[str, Runtime] = {
    TUNED: Runtime({}, f"{_OWN}:tuned", "with the fastest schedules of the database"),
    UNTUNED: Runtime({}, f"{_OWN}:untuned", "the same compiler with its default schedules"),
    "torch eager": Runtime(_TORCH, f"{_HERE}.torch_runtimes:eager", "torch, operator by operator"),
    "torch.compile": Runtime(_TORCH, f"{_HERE}.torch_runtimes:compiled", "torch with Inductor"),
    "onnxruntime": Runtime(
        {"onnxruntime": "pip install onnxruntime"},
        f"{_OWN}:onnxruntime",
        "ONNX Runtime on the CPU",
        "on CUDA devices it is another package, whose kernels are mostly those of torch: cuDNN's "
        "and cuBLAS's",
    ),
    "openvino": Runtime(
        {"openvino": "pip install openvino"},
        f"{_OWN}:openvino",
        "OpenVINO on the CPU",
        "it has no kernels for CUDA devices",
    ),
}
"""Every runtime; a table of results has them in this order."""


def tuned(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """With the fastest records of the database."""
    result = build_recorded(source, reading, options)
    if result.is_tunable and all(record is None for record in result.chosen.values()):
        raise InvalidValueError(
            f"{result.database} has no record of this network for {_where(result.target)}: tune "
            "it first (autotune tune-model)"
        )
    return _prepared(result.network, result.build(check=False))


def _where(target: Target) -> str:
    if target.kind == "cuda":
        return target.name
    return f"this machine and {target.cores} threads"


def untuned(source: Source, options: TuneOptions, reading: ModelOptions) -> Prepared:
    """With the backend's default schedules."""
    machine = options.machine
    network = load_network(
        source, machine, machine.cores, frontend=reading.frontend, passes=reading.passes
    )
    return _prepared(network, build_network(network, {}, machine, machine.cores))


def _prepared(network: NetworkProgram, compiled: CompiledNetwork) -> Prepared:
    inputs = network.example_inputs()
    on_device = isinstance(compiled, CudaNetwork)
    given, wait = _on_device(compiled, inputs) if on_device else (inputs, None)

    def run() -> object:
        found = compiled(*given)
        if wait is not None:
            wait()
        return found

    return Prepared(
        run=run,
        outputs=lambda: list(map(as_numpy, compiled(*copied_inputs(inputs, network.writes)))),
        version=network.backend,
        seconds=lambda calls: compiled.time_calls(given, calls),
        inputs=inputs,
        baked=network.fixed.constants if network.fixed else {},
        remarks=network.fixed.remarks if network.fixed else (),
        on_device=on_device,
    )


def _on_device(
    network: Any, inputs: Sequence[Any]
) -> tuple[Sequence[Any], Callable[[], None] | None]:
    """Inputs as tensors of torch on the network's device, and what waits for it.

    Without torch inputs stay on the host, and a call copies them.
    """
    try:
        torch: Any = import_module("torch")
    except ImportError:
        return inputs, None
    if not torch.cuda.is_available():
        return inputs, None
    device = f"cuda:{network.device_index}"

    def moved(array: Any) -> Any:
        if str(array.dtype) == "bfloat16":
            return torch.from_numpy(array.view("int16")).to(device).view(torch.bfloat16)
        return torch.from_numpy(array).to(device)

    return [moved(as_numpy(it)) for it in inputs], lambda: torch.cuda.synchronize(device)


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
