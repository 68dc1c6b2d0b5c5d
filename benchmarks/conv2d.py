"""A convolution of a residual network: autotune, oneDNN and TVM's MetaSchedule, all cores.

    python benchmarks/conv2d.py [--quick] [--json FILE] [--check] [--torch-python PATH]

NHWC, 1 x 14 x 14 x 256 -> 256, 3 x 3, padding 1. oneDNN is timed through torch in channels-last
layout, in a process of its own; ``--torch-python`` names an interpreter that has torch. Without
torch that bar counts as fallen short.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import (
    Bar,
    Trial,
    cores,
    finish,
    machine,
    median_of,
    metaschedule_ceiling,
    parser_for,
    run_trial,
    share_of_the_rest,
    tuning_time_ratio,
)

SHAPE = {"h": 14, "w": 14, "ci": 256, "co": 256, "pad": 1}
NAME = "conv2d 14x14x256 -> 256, 3x3"

VENDOR_RATIO = 0.75
METASCHEDULE_RATIO = 1.5
TUNING_TIME_RATIO = 1 / 3
SHARE_OF_THE_REST = 0.25


def main() -> int:
    """Run; returns the exit status."""
    parser = parser_for(__doc__.splitlines()[0])
    parser.add_argument(
        "--torch-python", default=sys.executable, metavar="PATH", help="interpreter with torch"
    )
    options = parser.parse_args()
    if not Path(options.torch_python).exists():
        parser.error(f"--torch-python: there is no {options.torch_python}")
    print("{processor}, {cores} cores, load {load:.1f}".format(**machine()), flush=True)
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
    return finish(options, {NAME: found}, bars_of(found))


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
    sys.exit(main())
