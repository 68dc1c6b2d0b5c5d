"""Matrix products: autotune, numpy's BLAS and TVM's MetaSchedule, all cores, medians of seeds.

Each tuner runs in a fresh process with an empty database; the programs that they found are then
built again and timed in turns with numpy, every one in a process of its own.
"""

from __future__ import annotations

import argparse
import sys

from support.bars import median_of
from support.common import (
    Bar,
    Report,
    Trial,
    metaschedule_ceiling,
    report_of,
    run_trial,
    share_of_the_rest,
    tuning_options,
    tuning_time_ratio,
)

options_of = tuning_options

VENDOR_RATIO = 0.95
METASCHEDULE_RATIO = 2.5
TUNING_TIME_RATIO = 1 / 3
TUNING_SECONDS = 30.0
SHARE_OF_THE_REST = 0.25


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    sizes = (512,) if options.quick else (512, 1024)
    seeds = range(1 if options.quick else options.seeds)
    found: dict[str, list[Trial]] = {}
    for size in sizes:
        name = f"gemm {size}^3"
        print(name, flush=True)
        shape = {"m": size, "n": size, "k": size}
        found[name] = [run_trial(options, "gemm", shape, seed, vendor(shape)) for seed in seeds]
    return report_of(options, found, bars_of(found))


def vendor(shape: dict[str, int]) -> tuple[dict[str, object], str]:
    """numpy on the same workload."""
    from autotune import make_workload

    return {"kind": "numpy", "workload": make_workload("gemm", shape).to_json()}, sys.executable


def bars_of(found: dict[str, list[Trial]]) -> list[Bar]:
    """The promises on matrix products."""
    bars = []
    for name, trials in found.items():
        to_vendor = median_of([trial.ratio("vendor") for trial in trials])
        to_tuner = median_of([trial.ratio("metaschedule") for trial in trials])
        bars.append(Bar(f"{name}, times numpy's BLAS", to_vendor, VENDOR_RATIO))
        bars.append(
            Bar(
                f"{name}, times MetaSchedule",
                to_tuner,
                METASCHEDULE_RATIO,
                ceiling=metaschedule_ceiling(trials),
            )
        )
        bars.append(
            Bar(
                f"{name}, tuning seconds over MetaSchedule's",
                tuning_time_ratio(trials),
                TUNING_TIME_RATIO,
                at_most=True,
            )
        )
        if name == "gemm 512^3":
            seconds = median_of([trial.seconds for trial in trials])
            bars.append(Bar(f"{name}, tuning seconds", seconds, TUNING_SECONDS, at_most=True))
        rest = share_of_the_rest(trials)
        label = f"{name}, share neither start-up nor building nor running"
        bars.append(Bar(label, rest, SHARE_OF_THE_REST, at_most=True))
    return bars


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["gemm", *sys.argv[1:]]))
