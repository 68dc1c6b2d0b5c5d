"""Torch as a yardstick: cuBLAS, cuDNN, oneDNN, and its own kernels.

It runs in a process of its own, :mod:`autotune.measure.torch_routines`, which alone imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.measure.protocol import MeasureProtocol
from autotune.plugins.workload_names import make_workload
from autotune.process import WorkerDied, ask_once
from autotune.store.records import Outcome
from autotune.targets import Target

__all__ = ["ask_torch", "has_routine", "torch_latency"]

_COMPILING_SECONDS = 300.0
_ELEMENTS = ("float16", "bfloat16", "float32", "float64")
_ROUTINES = (
    *("gemm", "batch_matmul", "dense", "softmax", "attention", "elementwise"),
    *("conv1d", "conv2d", "conv3d", "depthwise_conv2d"),
)


def has_routine(workload: Workload) -> bool:
    """Return whether torch has something for a workload: one of the builders, in floating point.

    Of bytes it has the product that keeps its sums, where cuBLAS takes the sizes.
    Names and parameters are for people: what they stand for has to be this very workload.
    """
    parameters = dict(workload.parameters)
    dtype = parameters.pop("dtype", None)
    if workload.name not in _ROUTINES or parameters.get("requantize"):
        return False
    if dtype not in _ELEMENTS and not (
        workload.name == "gemm" and dtype == "int8" and _multiplies_bytes(parameters)
    ):
        return False
    try:
        return make_workload(workload.name, parameters, dtype).digest == workload.digest
    except AutotuneError:
        return False


def _multiplies_bytes(sizes: Mapping[str, Any]) -> bool:
    """Return whether ``torch._int_mm`` takes sizes on CUDA devices."""
    found = [sizes.get(name) for name in "mnk"]
    rows, columns, depth = (size if isinstance(size, int) else 0 for size in found)
    return rows > 16 and columns % 8 == 0 and depth % 8 == 0


def torch_latency(
    workload: Workload,
    target: Target,
    protocol: MeasureProtocol,
    seed: int = 0,
    *,
    compiled: bool = False,
) -> Outcome | None:
    """Time torch on a workload, by the same protocol as a candidate.

    Of the ways that torch has, such as orders of the channels of images, the fastest counts.

    Args:
        workload: What torch computes.
        target: The CUDA device, and whether TF32 is allowed; or the CPU, and its cores.
        protocol: How to time.
        seed: Of the inputs.
        compiled: Whether each way is compiled by Inductor, which then tunes its own kernels.

    Returns:
        None when torch has no routine for the workload. An outcome that says why where torch is
        not installed with CUDA, or fails.
    """
    if not has_routine(workload):
        return None
    module = "autotune.measure.torch_routines"
    return ask_torch(module, workload, target, protocol, seed, compiled=compiled)


def ask_torch(
    module: str,
    workload: Workload,
    target: Target,
    protocol: MeasureProtocol,
    seed: int = 0,
    *,
    compiled: bool = False,
) -> Outcome:
    """As :func:`torch_latency`, of routines that a module has.

    Args:
        module: What the process runs: one that answers by
            :func:`autotune.measure.torch_routines.answer`.
        workload: One that the module has a routine for.
        target: As above, and so are the others.
        protocol: How to time.
        seed: Of the inputs.
        compiled: Whether each way is compiled.
    """
    question = {
        "op": "measure",
        "workload": workload.to_json(),
        "target": target.to_json(),
        "protocol": protocol.to_json(),
        "seed": seed,
        "compiled": compiled,
    }
    seconds = sum(protocol.deadlines.values()) + (_COMPILING_SECONDS if compiled else 0.0)
    # Nothing else is measured meanwhile, and the reference of a large product takes a while.
    threads = len(os.sched_getaffinity(0)) if target.kind == "cuda" else target.cores
    try:
        answer = ask_once(module, question, threads, seconds)
    except TimeoutError:
        return Outcome("timeout", message=f"torch took more than {seconds:g} s")
    except WorkerDied as error:
        return Outcome("crash", message=str(error))
    if "failed" in answer:
        return Outcome("crash", message=answer["failed"])
    return Outcome.from_json(answer["done"])
