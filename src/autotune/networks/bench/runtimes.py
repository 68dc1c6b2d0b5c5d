"""Runtimes of networks, by name. Nothing is imported here that they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen
from numpy.typing import NDArray

__all__ = ["RUNTIMES", "TUNED", "UNTUNED", "Prepared", "Runtime"]

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
        f"{_HERE}.other_runtimes:onnxruntime",
        "ONNX Runtime on the CPU",
        "on CUDA devices it is another package, whose kernels are mostly those of torch: cuDNN's "
        "and cuBLAS's",
    ),
    "openvino": Runtime(
        {"openvino": "pip install openvino"},
        f"{_HERE}.other_runtimes:openvino",
        "OpenVINO on the CPU",
        "it has no kernels for CUDA devices",
    ),
}
"""Every runtime; a table of results has them in this order."""
