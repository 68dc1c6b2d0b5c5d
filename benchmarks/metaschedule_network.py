"""TVM's own tuner, MetaSchedule, on a whole network: a baseline of `models.py`.

    python benchmarks/metaschedule_network.py prepare FOLDER --network resnet_50 [--size K=V ...]
    python benchmarks/metaschedule_network.py tune FOLDER
    python benchmarks/metaschedule_network.py build FOLDER

``prepare`` writes the network as a Relax module after this project's own graph passes, so that
both tuners get the same functions; it needs torch. ``tune`` goes on until it is stopped: what it
has measured by then is in the folder. ``build`` compiles the network with the best of that, and
with default schedules for functions without any, to ``network.so``.

``tune`` needs what MetaSchedule needs beyond TVM: xgboost, cloudpickle and psutil. It searches
and builds on all cores, and the import of its tensor intrinsics is made faster as in
`metaschedule.py`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from metaschedule import ROUND, fast_stack

MODULE, RECORDS, LIBRARY = "module.json", "records", "network.so"
# More than any wall clock allows.
_ENDLESS = 1_000_000


def main() -> int:
    """Run one step; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=["prepare", "tune", "build"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", help="of this package, for prepare")
    parser.add_argument(
        "--size", action="append", default=[], metavar="K=V", help="of the network"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    from autotune.targets import detect_cpu

    os.environ["TVM_NUM_THREADS"] = str(detect_cpu().cores)
    os.environ["TVM_FFI_DISABLE_TORCH_C_DLPACK"] = "1"
    if options.step == "prepare":
        if options.network is None:
            parser.error("prepare needs --network")
        sizes = {key: int(value) for key, _, value in (it.partition("=") for it in options.size)}
        prepare(options.folder, options.network, sizes)
    elif options.step == "tune":
        tune(options.folder, options.seed)
    else:
        print(json.dumps(build(options.folder)))
    return 0


def prepare(folder: Path, network: str, sizes: dict[str, int]) -> None:
    """Write the network's module."""
    from autotune.networks import zoo
    from autotune.networks.loading import load_network
    from autotune.networks.source import Source
    from autotune.targets import detect_cpu

    module, inputs = zoo.create(network, **sizes)
    machine = detect_cpu()
    program: Any = load_network(Source(module, inputs, network), machine, machine.cores)
    import tvm

    folder.mkdir(exist_ok=True)
    fresh = folder / f"{MODULE}.new"
    fresh.write_text(tvm.ir.save_json(program.module))
    fresh.replace(folder / MODULE)


def tune(folder: Path, seed: int) -> None:
    """Tune all functions of the module until the process is ended."""
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
        relax.extract_tasks(read_module(folder), described_target()),
        records,
        num_threads=cores,
        seed=seed + 1,  # zero would mean "choose one"
    )
    meta_schedule.tune.tune_tasks(
        tasks=tasks,
        task_weights=weights,
        work_dir=records,
        max_trials_global=_ENDLESS,
        num_trials_per_iter=ROUND,
        builder=meta_schedule.builder.LocalBuilder(max_workers=cores, initializer=fast_stack),
        runner=meta_schedule.runner.LocalRunner(initializer=fast_stack),
    )


def build(folder: Path) -> dict[str, int]:
    """Compile the network; returns how many functions there are, and how many are tuned."""
    fast_stack()
    from autotune_tvm.networks.apply import apply_functions, default_function
    from autotune_tvm.networks.extraction import extract_tasks
    from autotune_tvm.networks.program import build_module
    from tvm.relax.transform import MetaScheduleApplyDatabase

    from autotune.targets import detect_cpu

    machine = detect_cpu()
    module = read_module(folder)
    names = [task.name for task in extract_tasks(module)]
    with described_target():
        module = MetaScheduleApplyDatabase(str(folder / RECORDS))(module)
    untuned = [name for name in names if not is_scheduled(module[name])]
    defaults = {name: default_function(module[name], machine, machine.cores) for name in untuned}
    built = build_module(apply_functions(module, defaults), machine, machine.cores)
    built.export_library(str(folder / LIBRARY))
    return {"functions": len(names), "tuned": len(names) - len(untuned)}


def is_scheduled(function: Any) -> bool:
    """Whether a record was applied to a function."""
    return bool(function.attrs is not None and function.attrs.get("tirx.is_scheduled", False))


def read_module(folder: Path) -> Any:
    """The module that ``prepare`` wrote."""
    import tvm

    return tvm.ir.load_json((folder / MODULE).read_text())


def described_target() -> Any:
    """This machine, as both tuners compile for it."""
    import tvm
    from autotune_tvm.compiler import tvm_target

    from autotune.targets import detect_cpu

    machine = detect_cpu()
    return tvm.target.Target(tvm_target(machine, machine.cores))


if __name__ == "__main__":
    sys.exit(main())
