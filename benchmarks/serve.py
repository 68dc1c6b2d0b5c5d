"""Times one program on demand, in a process of its own: runtimes disturb each other.

    python benchmarks/serve.py '{"kind": ..., ...}'

builds what the JSON object describes, prints ``{"ready": ...}``, and then answers every line on
standard input with a line ``{"seconds": S}``: the least of several samples of one call, as others
only ever slow a program down. Between answers it sleeps. Kinds:

- ``record``: the best record of a workload in a database (``database``, ``workload``);
- ``schedule``: a record in its JSON form (``schedule``);
- ``module``: a TVM module in TVM's JSON form (``module``, ``workload``, ``threads``);
- ``numpy``: the operator in numpy, such as ``numpy.matmul`` (``workload``);
- ``torch``: the operator in torch, such as ``torch.nn.functional.conv2d`` in channels-last layout,
  which is oneDNN (``workload``, its name; ``parameters``, ``threads``); needs torch, and nothing
  of this project; with a dtype of bytes, on the quantised ``engine``;
- ``peak``: the workload's arithmetic at the rate of multiply-adds in registers on all cores
  (``workload``): no program takes less.

``threads``, ``backend`` and ``environment`` of any of them choose the environment that the process
is started in.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

SAMPLES = 10
SAMPLE_SECONDS = 0.01

# Runs the program a number of times and returns seconds per call.
Timer = Callable[[int], float]


def main() -> int:
    """Serve until standard input ends."""
    request = json.loads(sys.argv[1])
    kinds: dict[str, Callable[[dict[str, Any]], Timer]] = {
        "record": record_timer,
        "schedule": schedule_timer,
        "module": module_timer,
        "numpy": numpy_timer,
        "torch": torch_timer,
        "peak": peak_timer,
    }
    try:
        timer = kinds[request["kind"]](request)
    except ModuleNotFoundError as error:
        print(json.dumps({"error": f"{error.name} is not installed"}), flush=True)
        return 1
    timer(1)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": measured(timer)}), flush=True)
    return 0


def measured(timer: Timer) -> float:
    """Seconds per call: the least of some samples after a warm one."""
    estimate = timer(1)
    estimate = min(estimate, timer(max(1, int(SAMPLE_SECONDS / 4 / max(estimate, 1e-9)))))
    number = max(1, round(SAMPLE_SECONDS / max(estimate, 1e-9)))
    return min(timer(number) for _ in range(SAMPLES))


def record_timer(request: dict[str, Any]) -> Timer:
    """The best record, built as ``Result.build`` does."""
    import autotune
    from autotune.backends import bind_copies

    workload = autotune.Workload.from_json(request["workload"])
    with autotune.open_database(request["database"], read_only=True) as database:
        record = database.best(autotune.RecordFilter(workload=workload.digest))
    if record is None:
        raise SystemExit("the database has no record of this workload")
    executable = autotune.compile_record(record).executable
    return bind_copies(executable, workload, _inputs(workload)).time


def schedule_timer(request: dict[str, Any]) -> Timer:
    """A record that is in the request itself, built likewise."""
    import autotune
    from autotune.backends import bind_copies

    record = autotune.Record.from_json(request["schedule"])
    workload = record.candidate.sketch.workload
    executable = autotune.compile_record(record).executable
    return bind_copies(executable, workload, _inputs(workload)).time


def module_timer(request: dict[str, Any]) -> Timer:
    """A module of TVM's, compiled for this machine as this project compiles its own."""
    from autotune_tvm import compiler
    from autotune_tvm.backend import TVMExecutable
    from autotune_tvm.importer import module_from_text

    from autotune import Target, Workload
    from autotune.backends import bind_copies

    workload = Workload.from_json(request["workload"])
    threads = request["threads"]
    module = module_from_text(request["module"])
    built = compiler.compile_module(module, Target.detect(), threads)
    names = (*(tensor.name for tensor in workload.inputs), *workload.outputs)
    executable = TVMExecutable(built, workload, names, threads)
    return bind_copies(executable, workload, _inputs(workload)).time


def numpy_timer(request: dict[str, Any]) -> Timer:
    """An operator as numpy has it."""
    from vendors import numpy_call

    from autotune import Workload

    workload = Workload.from_json(request["workload"])
    output = workload.tensors[workload.outputs[0]]
    return _timer(numpy_call(workload.name, _inputs(workload), output.shape, output.dtype))


def torch_timer(request: dict[str, Any]) -> Timer:
    """An operator as torch has it; images are in channels-last layout."""
    import torch
    from vendors import torch_bytes_call, torch_call

    torch.set_num_threads(request["threads"])
    torch.manual_seed(0)
    with torch.inference_mode():
        if request["parameters"].get("dtype", "float32") in ("int8", "u8s8s32"):
            call = torch_bytes_call(request["workload"], request["parameters"], request["engine"])
        else:
            call = torch_call(request["workload"], request["parameters"])
    return _timer(torch.inference_mode()(call))


def _timer(call: Callable[[], object]) -> Timer:
    """Times a Python function."""

    def timer(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - begin) / number

    return timer


def peak_timer(request: dict[str, Any]) -> Timer:
    """The float32 arithmetic of a workload, and nothing else."""
    from autotune import Target, Workload
    from autotune.targets import measure_rates

    flop = Workload.from_json(request["workload"]).flop
    target = Target.detect()

    def timer(number: int) -> float:
        return flop / float(measure_rates(target, SAMPLE_SECONDS).peak_flops["float32"])

    return timer


def _inputs(workload: Any) -> list[Any]:
    import numpy as np

    from autotune.workloads import random_inputs

    arrays = random_inputs(workload, np.random.default_rng(0))
    return [arrays[tensor.name] for tensor in workload.inputs]


if __name__ == "__main__":
    sys.exit(main())
