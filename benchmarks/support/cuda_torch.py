"""Torch's norms on a CUDA device, for `cuda_device.py`, which starts it.

The package has no builders of them, so its own routines of torch have none, either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.ir.workloads import Workload
from autotune.measure.torch_routines import Call, answer
from autotune.process import Message
from autotune.process.child import connect, serve

EPSILON = 1e-5


def norm_calls(workload: Workload, tensors: Mapping[str, Any]) -> list[Call]:
    """A norm of `backend_workloads.py`, as torch has it."""
    from torch.nn import functional

    width, t = (workload.parameters["n"],), tensors
    if workload.name == "layer_norm":
        return [lambda: functional.layer_norm(t["X"], width, t["G"], t["B"], EPSILON)]
    return [lambda: functional.rms_norm(t["X"], width, t["G"], EPSILON)]


def _answer(question: Message) -> Message:
    return answer(question, norm_calls)


def main() -> None:
    """Answer :func:`autotune.measure.vendor.ask_torch`."""
    connection, _ = connect("support.cuda_torch")
    serve(connection, {"measure": _answer})


if __name__ == "__main__":
    main()
