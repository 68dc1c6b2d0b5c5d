"""A convolution of a residual network: autotune, oneDNN and TVM's MetaSchedule, all cores.

NHWC, 1 x 14 x 14 x 256 -> 256, 3 x 3, padding 1. oneDNN is timed through torch in channels-last
layout, in a process of its own; ``--torch-python`` names an interpreter that has torch. Without
torch that bar counts as fallen short.
"""

from __future__ import annotations

import argparse
import sys

from support.bars import median_of
from support.common import (
    Bar,
    Report,
    Trial,
    cores,
    metaschedule_ceiling,
    report_of,
    run_trial,
    share_of_the_rest,
    tuning_options,
    tuning_time_ratio,
)

SHAPE = {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1}
NAME = "conv2d 14x14x256 -> 256, 3x3"

VENDOR_RATIO = 0.75
METASCHEDULE_RATIO = 1.5
TUNING_TIME_RATIO = 1 / 3
SHARE_OF_THE_REST = 0.25


options_of = tuning_options


def run(options: argparse.Namespace) -> Report:
    """Measure."""
    print(NAME, flush=True)
    seeds = range(1 if options.quick else options.seeds)
    vendor = (
        {
            "kind": "torch",
            "workload": "conv2d",
            "parameters": parameters(),
            "threads": cores(),
        },
        options.torch_python,
    )
    found = [run_trial(options, "conv2d", SHAPE, seed, vendor) for seed in seeds]
    return report_of(options, {NAME: found}, bars_of(found))


def parameters() -> dict[str, object]:
    """The workload's parameters, defaults included."""
    from autotune import make_workload

    return dict(make_workload("conv2d", SHAPE).parameters)


def bars_of(trials: list[Trial]) -> list[Bar]:
    """The promises on the convolution."""
    missing = next((t.errors["vendor"] for t in trials if "vendor" in t.errors), "")
    to_vendor = median_of([trial.ratio("vendor") for trial in trials])
    to_tuner = median_of([trial.ratio("metaschedule") for trial in trials])
    return [
        Bar(f"{NAME}, times oneDNN", to_vendor, VENDOR_RATIO, note=missing),
        Bar(
            f"{NAME}, times MetaSchedule",
            to_tuner,
            METASCHEDULE_RATIO,
            ceiling=metaschedule_ceiling(trials),
        ),
        Bar(
            f"{NAME}, tuning seconds over MetaSchedule's",
            tuning_time_ratio(trials),
            TUNING_TIME_RATIO,
            at_most=True,
        ),
        Bar(
            f"{NAME}, share neither start-up nor building nor running",
            share_of_the_rest(trials),
            SHARE_OF_THE_REST,
            at_most=True,
        ),
    ]


if __name__ == "__main__":
    from bench import main

    sys.exit(main(["conv2d", *sys.argv[1:]]))
