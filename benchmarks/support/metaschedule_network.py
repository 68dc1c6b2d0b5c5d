"""TVM's own tuner, MetaSchedule, on a whole network: a baseline of `models.py` and
`cuda_network.py`.

    python metaschedule_network.py prepare FOLDER --network resnet_50 [--size K=V ...]
    python metaschedule_network.py tune FOLDER [--trials N]
    python metaschedule_network.py build FOLDER

With ``--target cuda`` it does so for a CUDA device of this machine, with ``--precision float16``
for a network in half precision, and there is a step ``time``, with the network once more.

``prepare`` writes the network as a Relax module after this project's own graph passes, so that
both tuners get the same functions; it needs torch. ``tune`` goes on until it is stopped, or there
are so many records: what it has measured by then is in the folder, and where it goes on from.
``build`` compiles the network with the best of that, and with default schedules for functions
without any, to ``network.so``, or for a device to ``network.cuda``, which ``time`` compares with
the model and times as networks of this project are.

``tune`` needs what MetaSchedule needs beyond TVM: xgboost, cloudpickle and psutil. It searches
and builds on all cores, and the import of its tensor intrinsics is made faster as in
`metaschedule.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from support.metaschedule import ROUND, fast_stack

MODULE, RECORDS, LIBRARY, ARCHIVE = "module.json", "records", "network.so", "network.cuda"
TURNS, TURN_CALLS = 5, 200
# More than any wall clock allows.
_ENDLESS = 1_000_000


def main() -> int:
    """Run one step; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["prepare", "tune", "build", "time"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", help="of this package, for prepare")
    parser.add_argument(
        "--size", action="append", default=[], metavar="K=V", help="of the network"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="cpu", help="cpu, or such as cuda")
    parser.add_argument("--precision", help="float16 or bfloat16, of the network")
    parser.add_argument("--trials", type=int, default=_ENDLESS, help="records to end with")
    options = parser.parse_args()

    from autotune.targets import detect_cpu, resolve

    os.environ["TVM_NUM_THREADS"] = str(detect_cpu().cores)
    os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"
    machine = detect_cpu() if options.target == "cpu" else resolve(options.target)
    if options.step in ("prepare", "time") and options.network is None:
        parser.error(f"{options.step} needs --network")
    if options.step == "prepare":
        prepare(options.folder, source_of(options), machine)
    elif options.step == "tune":
        tune(options.folder, machine, options.seed, options.trials)
    elif options.step == "build":
        print(json.dumps(build(options.folder, machine)))
    else:
        print(json.dumps(timed(options.folder, source_of(options), machine)))
    return 0


def source_of(options: argparse.Namespace) -> Any:
    """The network that a command line names."""
    from autotune.networks.source import in_precision, read_network

    sizes = {key: int(value) for key, _, value in (it.partition("=") for it in options.size)}
    return in_precision(read_network(options.network, sizes), options.precision)


def recorded_trials(folder: Path) -> int:
    """Number of candidates that MetaSchedule has measured in a folder."""
    path = folder / RECORDS / "database_tuning_record.json"
    return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


def prepare(folder: Path, source: Any, machine: Any) -> None:
    """Write the network's module."""
    from autotune.networks.graph import Graph
    from autotune.networks.loading import load_network

    program: Any = load_network(source, machine, machine.cores)
    # A device's checks of indices are further outputs.
    outputs = {it.name: program.graph.outputs[it.name] for it in program.outputs}
    import tvm
    from autotune_tvm.networks.writer import write_graph
    from tvm import relax

    kinds = [relax.TensorType(it.shape, it.dtype) for it in outputs.values()]
    module = write_graph(Graph(program.graph.inputs, outputs), relax.TupleType(kinds))
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{MODULE}.new"
    fresh.write_text(tvm.ir.save_json(module))
    fresh.replace(folder / MODULE)


def tune(folder: Path, machine: Any, seed: int, trials: int) -> None:
    """Tune all functions of the module until there are so many records, or it is ended."""
    fast_stack()
    import cloudpickle
    from tvm.s_tir import meta_schedule

    from autotune.targets import detect_cpu

    logging.getLogger("tvm").setLevel(logging.ERROR)
    # Workers do not have this folder on their path.
    cloudpickle.register_pickle_by_value(sys.modules[fast_stack.__module__])
    cores = detect_cpu().cores
    relax, records = meta_schedule.relax_integration, str(folder / RECORDS)
    tasks, weights = relax.extracted_tasks_to_tune_contexts(
        relax.extract_tasks(read_module(folder), described_target(machine)),
        records,
        num_threads=cores,
        seed=seed + 1,  # zero would mean "choose one"
    )
    meta_schedule.tune.tune_tasks(
        tasks=tasks,
        task_weights=weights,
        work_dir=records,
        max_trials_global=max(0, trials - recorded_trials(folder)),
        num_trials_per_iter=ROUND,
        builder=meta_schedule.builder.LocalBuilder(max_workers=cores, initializer=fast_stack),
        runner=meta_schedule.runner.LocalRunner(initializer=fast_stack),
    )


def build(folder: Path, machine: Any) -> dict[str, int]:
    """Compile the network; returns how many functions there are, and how many are tuned."""
    fast_stack()
    from autotune_tvm.networks.apply import apply_functions, default_function
    from autotune_tvm.networks.apply_records import unscheduled
    from tvm import relax

    plain = read_module(folder)
    names = list(unscheduled(plain))
    with described_target(machine):
        module = relax.transform.MetaScheduleApplyDatabase(str(folder / RECORDS))(plain)
    untuned = [name for name in names if not is_scheduled(module[name])]
    defaults = {name: default_function(module[name], machine, machine.cores) for name in untuned}
    scheduled = apply_functions(module, defaults)
    if machine.kind == "cuda":
        archive(plain, scheduled, machine).save(folder / ARCHIVE)
    else:
        built = relax.build(scheduled, described_target(machine))
        built.export_library(str(folder / LIBRARY))
    return {"functions": len(names), "tuned": len(names) - len(untuned)}


def archive(plain: Any, scheduled: Any, machine: Any) -> Any:
    """A network for a device, with the functions of the second module for those of the first."""
    from autotune_tvm.networks.graph import output_tensors
    from autotune_tvm.networks.reader import read_graph

    from autotune.networks.plan.planning import plan_graph
    from autotune.runtime.loaded import ALIGNMENT
    from autotune.runtime.network import CudaNetwork

    graph = read_graph(plain, [it.name for it in output_tensors(plain)])
    programs = {
        it.spelling: device_program(plain[it.name], scheduled[it.name], machine)
        for it in graph.workloads
    }
    names = {it.spelling: it.name for it in graph.workloads}
    return CudaNetwork(plan_graph(graph, programs, names, {}, ALIGNMENT), machine)


def device_program(plain: Any, scheduled: Any, machine: Any) -> Any:
    """A function as a schedule makes it, compiled for a device."""
    from autotune_tvm.backend import TVMBackend
    from autotune_tvm.cuda_code import lower_kernels
    from autotune_tvm.importer import argument_names, callable_module, import_module
    from tvm.ir import IRModule

    from autotune.backends import BuildRequest, LoweredProgram
    from autotune.runtime.loaded import DeviceProgram

    workload, imported = import_module(plain)
    kernels = lower_kernels(callable_module(IRModule({"main": scheduled})), machine)
    request = BuildRequest(workload, None, None, machine, 1)
    made: Any = TVMBackend().compile(LoweredProgram(request, kernels, ""))
    return DeviceProgram(made.program, argument_names(imported))


def timed(folder: Path, source: Any, machine: Any) -> dict[str, float]:
    """Latency of the network on the device, and its distance from its model, as ``error``.

    It is 1 where an output is off by as much as is allowed.
    """
    import numpy as np

    from autotune.networks.running import compare_outputs
    from autotune.runtime.arrays import as_numpy
    from autotune.runtime.network import open_cuda_network

    network = open_cuda_network(folder / ARCHIVE)
    inputs = [as_numpy(it) for it in source.example_inputs]
    found = [as_numpy(it) for it in network(*inputs)]
    wide = source.wide(inputs) if source.wide else [as_numpy(source.model(*source.example_inputs))]
    wanted = [it.astype(like.dtype) for it, like in zip(wide, found, strict=True)]
    differences = compare_outputs(network.plan.outputs, wanted, found, machine)
    errors = [it.error / it.allowed if it.ok else float("inf") for it in differences if it.allowed]
    turns = [network.time_calls(inputs, TURN_CALLS) for _ in range(TURNS)]
    return {
        "latency": statistics.median(map(statistics.median, turns)),
        "fastest": min(map(min, turns)),
        "error": float(np.max(errors, initial=0.0)),
    }


def is_scheduled(function: Any) -> bool:
    """Tell whether a record was applied to a function."""
    return bool(function.attrs is not None and function.attrs.get("tirx.is_scheduled", False))


def read_module(folder: Path) -> Any:
    """The module that ``prepare`` wrote."""
    import tvm

    return tvm.ir.load_json((folder / MODULE).read_text())


def described_target(machine: Any) -> Any:
    """A machine, as both tuners compile for it."""
    from autotune_tvm.compiler import described_target

    return described_target(machine, machine.cores)


if __name__ == "__main__":
    sys.exit(main())
