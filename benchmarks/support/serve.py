"""Times one program on demand, in a process of its own: runtimes disturb each other.

    python serve.py '{"kind": ..., ...}'

builds what the JSON object describes, prints ``{"ready": ...}``, and then answers every line on
standard input, such as ``10 0.01``, with a line ``{"seconds": S}``: the least of that many samples
of one call, each of that many seconds, as others only ever slow a program down. How fast a program
is also depends on where its arrays lie, so it has other ones in every answer. Between answers it
sleeps. Kinds:

- ``record``: the best record of a workload in a database (``database``, ``workload``);
- ``schedule``: a record in its JSON form (``schedule``);
- ``module``: a TVM module in TVM's JSON form (``module``, ``workload``, ``threads``);
- ``library``: a whole network that TVM compiled (``library``, a path; ``inputs``, a list of
  ``shape`` and ``dtype``); whole numbers are ones, which names a token and marks none as padding;
- ``numpy``: the operator in numpy, such as ``numpy.matmul`` (``workload``);
- ``torch``: the operator in torch, such as ``torch.nn.functional.conv2d`` in channels-last layout,
  which is oneDNN (``workload``, its name; ``parameters``, ``threads``); needs torch, and nothing
  of this project; with a dtype of bytes, on the quantised ``engine``;
- ``operator``: a row of `operators.py`, by one of the ``contender`` of `operator_serving.py`;
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

PEAK_SECONDS = 0.01

# Runs the program a number of times and returns seconds per call.
Timer = Callable[[int], float]
# Makes the timer of an answer, which has a number.
Maker = Callable[[int], Timer]


def main() -> int:
    """Serve until standard input ends."""
    request = json.loads(sys.argv[1])
    kinds: dict[str, Callable[[dict[str, Any]], Maker]] = {
        "record": record_maker,
        "schedule": schedule_maker,
        "module": module_maker,
        "library": library_maker,
        "numpy": numpy_maker,
        "torch": torch_maker,
        "operator": operator_maker,
        "peak": peak_maker,
    }
    try:
        made = kinds[request["kind"]](request)
    except ModuleNotFoundError as error:
        print(json.dumps({"error": f"{error.name} is not installed"}), flush=True)
        return 1
    except CannotServe as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    timer = made(0)
    timer(1)
    print(json.dumps({"ready": True}), flush=True)
    for number, line in enumerate(sys.stdin, start=1):
        samples, seconds = line.split()
        # The arrays of the answer before are still there: memory is not what they had.
        timer = made(number)
        print(json.dumps({"seconds": measured(timer, int(samples), float(seconds))}), flush=True)
    return 0


class CannotServe(Exception):
    """Reason for which a contender takes no part, in one line."""


def measured(timer: Timer, samples: int, seconds: float) -> float:
    """Seconds per call: the least of some samples of so many seconds, after a warm one."""
    estimate = timer(1)
    estimate = min(estimate, timer(max(1, int(seconds / 4 / max(estimate, 1e-9)))))
    number = max(1, round(seconds / max(estimate, 1e-9)))
    return min(timer(number) for _ in range(samples))


def record_maker(request: dict[str, Any]) -> Maker:
    """The best record, built as ``Result.build`` does."""
    import autotune

    workload = autotune.Workload.from_json(request["workload"])
    with autotune.open_database(request["database"], read_only=True) as database:
        record = database.best(autotune.RecordFilter(workload=workload.digest))
    if record is None:
        raise SystemExit("the database has no record of this workload")
    return _placed(autotune.compile_record(record).executable, workload)


def schedule_maker(request: dict[str, Any]) -> Maker:
    """A record that is in the request itself, built likewise."""
    import autotune

    record = autotune.Record.from_json(request["schedule"])
    workload = record.candidate.sketch.workload
    return _placed(autotune.compile_record(record).executable, workload)


def module_maker(request: dict[str, Any]) -> Maker:
    """A module of TVM's, compiled for this machine as this project compiles its own."""
    from autotune_tvm import compiler
    from autotune_tvm.backend import TVMExecutable
    from autotune_tvm.importer import module_from_text

    from autotune import Workload
    from autotune.targets import detect_cpu

    workload = Workload.from_json(request["workload"])
    threads = request["threads"]
    module = module_from_text(request["module"])
    built = compiler.compile_module(module, detect_cpu(), threads)
    names = (*(tensor.name for tensor in workload.inputs), *workload.outputs)
    return _placed(TVMExecutable(built, workload, names, threads), workload)


def library_maker(request: dict[str, Any]) -> Maker:
    """A network in a shared library, run by Relax's virtual machine."""
    import numpy as np
    from autotune_tvm import runtime

    from autotune.backends import aligned_copy

    tvm = runtime.load()
    library = tvm.runtime.load_module(request["library"])
    call = tvm.relax.VirtualMachine(library, tvm.cpu())["main"]

    def made(number: int) -> Timer:
        rng = np.random.default_rng(number)
        inputs = []
        for tensor in request["inputs"]:
            dtype, shape = np.dtype(tensor["dtype"]), tuple(tensor["shape"])
            whole = dtype.kind in "iub"
            array = np.ones(shape, dtype) if whole else rng.standard_normal(shape).astype(dtype)
            inputs.append(tvm.runtime.from_dlpack(aligned_copy(array)))
        return timer_of(lambda: call(*inputs))

    return made


def numpy_maker(request: dict[str, Any]) -> Maker:
    """An operator as numpy has it."""
    from autotune import Workload
    from support.vendors import numpy_call

    workload = Workload.from_json(request["workload"])
    output = workload.tensors[workload.outputs[0]]
    shape, dtype = output.shape, output.dtype
    return lambda _: timer_of(numpy_call(workload.name, _inputs(workload), shape, dtype))


def torch_maker(request: dict[str, Any]) -> Maker:
    """An operator as torch has it; images are in channels-last layout."""
    import torch

    from support.vendors import torch_bytes_call, torch_call

    torch.set_num_threads(request["threads"])
    workload, parameters = request["workload"], request["parameters"]

    def made(_: int) -> Timer:
        torch.manual_seed(0)
        with torch.inference_mode():
            if parameters.get("dtype", "float32") in ("int8", "u8s8s32"):
                call = torch_bytes_call(workload, parameters, request["engine"])
            else:
                call = torch_call(workload, parameters)
        return timer_of(torch.inference_mode()(call))

    return made


def operator_maker(request: dict[str, Any]) -> Maker:
    """A row of `operators.py`; whatever keeps it from running is a reason to take no part."""
    from support.operator_serving import serve_operator

    try:
        return serve_operator(request)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise CannotServe(lines[-1]) from error


def timer_of(call: Callable[[], object]) -> Timer:
    """Times a Python function."""

    def timer(number: int) -> float:
        begin = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - begin) / number

    return timer


def peak_maker(request: dict[str, Any]) -> Maker:
    """So many operations of float32, and nothing else."""
    from autotune.targets import detect_cpu, measure_rates

    flop, target = request["flop"], detect_cpu()

    def timer(number: int) -> float:
        return flop / float(measure_rates(target, PEAK_SECONDS).peak_flops["float32"])

    return lambda _: timer


def _placed(executable: Any, workload: Any) -> Maker:
    """Binds a program to arrays at other places each time."""
    from autotune.measure.worker import Arena

    inputs = _inputs(workload)

    def made(number: int) -> Timer:
        bound = executable.bind(*Arena(workload, inputs, seed=number).place(0))
        timer: Timer = bound.time
        return timer

    return made


def _inputs(workload: Any) -> list[Any]:
    import numpy as np

    from autotune.ir.workloads import random_inputs

    arrays = random_inputs(workload, np.random.default_rng(0))
    return [arrays[tensor.name] for tensor in workload.inputs]


if __name__ == "__main__":
    sys.exit(main())
