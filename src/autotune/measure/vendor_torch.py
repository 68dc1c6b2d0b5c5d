"""Torch as a yardstick on CUDA devices: cuBLAS, cuDNN, and its own kernels.

It runs in a process of its own, :mod:`autotune.measure.torch_routines`, which alone imports torch.
"""

from __future__ import annotations

from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.measure.protocol import MeasureProtocol
from autotune.plugins.workload_names import make_workload
from autotune.process import WorkerDied, ask_once
from autotune.store.records import Outcome
from autotune.targets import Target

__all__ = ["has_routine", "torch_latency"]

_ELEMENTS = ("float16", "bfloat16", "float32", "float64")
_ROUTINES = (
    *("gemm", "batch_matmul", "dense", "softmax", "attention", "elementwise"),
    *("conv1d", "conv2d", "conv3d", "depthwise_conv2d"),
)


def has_routine(workload: Workload) -> bool:
    """Whether torch has something for a workload: one of the builders, in floating point.

    Names and parameters are for people: what they stand for has to be this very workload.
    """
    parameters = dict(workload.parameters)
    dtype = parameters.pop("dtype", None)
    if workload.name not in _ROUTINES or dtype not in _ELEMENTS or parameters.get("requantize"):
        return False
    try:
        return make_workload(workload.name, parameters, dtype).digest == workload.digest
    except AutotuneError:
        return False


def torch_latency(
    workload: Workload, target: Target, protocol: MeasureProtocol, seed: int = 0
) -> Outcome | None:
    """Time torch on a workload on a CUDA device, by the same protocol as a candidate.

    Of the ways that torch has, such as orders of the channels of images, the fastest counts.

    Returns:
        None when torch has no routine for the workload. An outcome that says why where torch is
        not installed with CUDA, or fails.
    """
    if not has_routine(workload):
        return None
    question = {
        "op": "measure",
        "workload": workload.to_json(),
        "target": target.to_json(),
        "protocol": protocol.to_json(),
        "seed": seed,
    }
    seconds = sum(protocol.deadlines.values())
    try:
        answer = ask_once("autotune.measure.torch_routines", question, target.cores, seconds)
    except TimeoutError:
        return Outcome("timeout", message=f"torch took more than {seconds:g} s")
    except WorkerDied as error:
        return Outcome("crash", message=str(error))
    if "failed" in answer:
        return Outcome("crash", message=answer["failed"])
    return Outcome.from_json(answer["done"])
