"""TVM's own tuner, MetaSchedule, on one workload, at its best: a baseline.

    python metaschedule.py gemm --shape m=512,n=512,k=512 --trials 64 --json FILE
    python metaschedule.py --program FILE --trials 64 --json FILE [--index 1=30522]

    python metaschedule.py gemm --shape m=512,n=512,k=512 --target cuda --folder FOLDER

(a program in TVM's JSON form in place of a workload, and which of its inputs are indices, below
what; on a device, with its database in a folder that stays, whatever ends the process) prints, or
writes, a JSON object: ``latency`` (seconds, as MetaSchedule measured it), ``seconds`` (wall, from
the start of this script to the end of tuning), ``trials``, ``valid`` (trials that ran) and
``module`` (the best program in TVM's JSON form, which `serve.py` compiles and times).

Run it in a process of its own. It needs what MetaSchedule needs beyond TVM: xgboost, cloudpickle
and psutil; on a device also cuda-bindings or nvcc, g++, and CUDA's runtime library (see
`metaschedule_cuda.py`). What helps it is done: it builds and searches on all
cores however many threads its programs have, and the import of its tensor intrinsics made ten
times faster in this process and in the ones that it starts (see `fast_stack`).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

BEGAN = time.time()

ROUND = 16


def fast_stack() -> None:
    """Replace ``inspect.stack`` by one that does not look up the module of every frame.

    TVM's script parser calls it for every function; the original walks all loaded modules each
    time, so that importing the tensor intrinsics takes 25 s, in every build worker of every round.
    This function travels to workers by value and therefore imports what it needs.
    """
    import inspect
    import linecache
    import sys

    def frames(context: int = 1) -> list[Any]:
        found = []
        frame: Any = sys._getframe(1)
        while frame is not None:
            file, line = frame.f_code.co_filename, frame.f_lineno
            source = linecache.getline(file, line)
            lines = [source] if source else None
            name = frame.f_code.co_name
            found.append(inspect.FrameInfo(frame, file, line, name, lines, 0 if lines else None))
            frame = frame.f_back
        return found

    inspect.stack = frames


def index_filler(bounds: Mapping[int, int]) -> Callable[..., Any]:
    """A function that allocates arguments for a runner, with indices that exist.

    TVM's own draws integers from all values, so a program that looks up lines of a table reads
    beyond it and crashes. It travels to workers by value and therefore imports what it needs.

    Args:
        bounds: Arguments that are indices, by position, and what they are below.
    """

    def allocated(device: Any, specs: Any, repeats: int) -> list[list[Any]]:
        import numpy as np
        import tvm

        fill = tvm.get_global_func("tvm.contrib.random.random_fill_for_measure")
        rng = np.random.default_rng(0)

        def argument(position: int, dtype: str, shape: Any) -> Any:
            tensor = tvm.runtime.empty(shape=shape, dtype=dtype, device=device)
            if position in bounds:
                tensor.copyfrom(rng.integers(0, bounds[position], shape).astype(dtype))
            else:
                fill(tensor)
            return tensor

        return [
            [argument(position, *spec) for position, (_, *spec) in enumerate(specs)]
            for _ in range(repeats)
        ]

    return allocated


def bound(text: str) -> tuple[int, int]:
    """A position and a bound, from such as 1=30522."""
    position, below = text.split("=")
    return int(position), int(below)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune one workload; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", nargs="?", help="such as gemm, or layer_norm")
    parser.add_argument("--shape", default="", help="such as m=512,n=512,k=512")
    parser.add_argument("--program", type=Path, help="a program in TVM's JSON form")
    parser.add_argument(
        "--index",
        type=bound,
        action="append",
        default=[],
        metavar="POSITION=BOUND",
        help="an input that is an index, from 0, and what it is below",
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="of its programs; default one per core")
    parser.add_argument("--json", type=Path, default=None, help="write the result there")
    parser.add_argument("--target", default="", help="such as cuda; default this machine's CPU")
    parser.add_argument("--folder", default="", help="of the database; default one that goes away")
    options = parser.parse_args(arguments)

    from autotune.targets import detect_cpu, resolve

    machine = resolve(options.target) if options.target else detect_cpu()
    if machine.kind == "cuda":
        from support import metaschedule_cuda

        metaschedule_cuda.prepare()
    threads = options.threads or detect_cpu().cores
    os.environ["TVM_NUM_THREADS"] = str(threads)
    os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"
    fast_stack()
    if options.program is not None:
        from autotune_tvm.importer import module_from_text

        module = module_from_text(options.program.read_text(encoding="utf-8"))
    else:
        from autotune_tvm.emit import module_for

        from support.backend_workloads import made

        pairs = (part.split("=") for part in options.shape.split(",") if part)
        shape = {key: int(value) for key, value in pairs}
        module = module_for(made(options.workload, shape, options.dtype))
    with tempfile.TemporaryDirectory() as folder:
        kept = options.folder or folder
        bounds = dict(options.index)
        result = tune(module, machine, threads, options.trials, options.seed, kept, bounds)
    text = json.dumps(result)
    if options.json is not None:
        options.json.write_text(text)
    else:
        print(text)
    return 0


def tune(
    module: Any,
    machine: Any,
    threads: int,
    trials: int,
    seed: int,
    folder: str,
    bounds: Mapping[int, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """Run MetaSchedule with its defaults, in rounds of 16 trials.

    Args:
        module: What to tune.
        machine: The target, in this package's terms.
        threads: Of its programs.
        trials: How many.
        seed: Its seed.
        folder: Where its database goes.
        bounds: Inputs that are indices, by position, and what they are below.
    """
    from autotune_tvm.compiler import described_target
    from autotune_tvm.importer import text_of
    from tvm.s_tir import meta_schedule

    logging.getLogger("tvm").setLevel(logging.ERROR)
    target, cores = described_target(machine, threads), len(os.sched_getaffinity(0))
    if machine.kind == "cuda":
        import tvm

        from support import metaschedule_cuda

        metaschedule_cuda.check_device(tvm)
    database = meta_schedule.tir_integration.tune_tir(
        module,
        target,
        folder,
        max_trials_global=trials,
        num_trials_per_iter=ROUND,
        builder=meta_schedule.builder.LocalBuilder(max_workers=cores, initializer=fast_stack),
        runner=meta_schedule.runner.LocalRunner(
            initializer=fast_stack, f_alloc_argument=index_filler(bounds)
        ),
        num_tuning_cores=cores,
        seed=seed + 1,  # zero would mean "choose one"
    )
    seconds = time.time() - BEGAN
    records = list(database.get_all_tuning_records())
    times = [
        min(float(value) for value in record.run_secs)
        for record in records
        if record.run_secs is not None and len(record.run_secs) > 0
    ]
    # What failed is recorded with a time of 1e10 seconds.
    times = [value for value in times if value < 1e9]
    best = meta_schedule.tir_integration.compile_tir(database, module, target)
    return {
        "latency": min(times) if times else None,
        "seconds": seconds,
        "trials": len(records),
        "valid": len(times),
        "module": text_of(best.mod) if best is not None and times else None,
    }


if __name__ == "__main__":
    sys.exit(main())
