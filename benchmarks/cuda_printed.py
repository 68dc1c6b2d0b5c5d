"""On a CUDA device: are printed kernels right, and as fast as those that TVM writes?

Candidates of every GPU sketch of the workloads of `cuda`, one of each with ``--quick`` and else
three, are built by both backends, checked against the reference and timed, case after case. A line
for each family says how many printed kernels are right, and their times beside TVM's where it is
installed. ``--limit`` begins no case that would end later; families that it leaves out are not
judged, and named.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from support.bars import Bar, geometric_mean
from support.common import Report
from support.cuda_compile import OURS, THEIRS, candidates_of, installed, workloads

from autotune.measure import LocalMeasurer
from autotune.sketches import Candidate
from autotune.targets import Target, resolve

CANDIDATES, QUICK_CANDIDATES = 3, 1
SLOWER = 1.10
OK = "ok"
# What tells the family of a sketch on tensor cores, the most special one first.
ON_TENSOR_CORES = ("bulk", "warpgroup", "tensor-cores")


@dataclass(frozen=True)
class Row:
    """Outcome of a candidate.

    Attributes:
        family: Kernels that are judged together.
        case: Its workload's name.
        sketch: Its sketch's name.
        statuses: Outcomes by backend.
        latencies: Seconds by backend, where it ran.
        message: What is wrong with the printed kernels.
    """

    family: str
    case: str
    sketch: str
    statuses: Mapping[str, str]
    latencies: Mapping[str, float]
    message: str = ""

    @property
    def ratio(self) -> float | None:
        """Time of the printed kernels, of TVM's."""
        if {*self.latencies} != {OURS, THEIRS}:
            return None
        return self.latencies[OURS] / self.latencies[THEIRS]


def run(options: argparse.Namespace, clock: Callable[[], float] = time.monotonic) -> Report:
    """Measure.

    Raises:
        AutotuneError: there is no device.
    """
    target, end = resolve("cuda"), clock() + (options.limit or float("inf"))
    backends, rows, left, longest = installed(), list[Row](), list[str](), 0.0
    for case, workload in workloads(backends):
        began = clock()
        if began + longest > end:
            left.append(case)
            continue
        chosen = candidates_of(workload, target, QUICK_CANDIDATES if options.quick else CANDIDATES)
        rows += measured(case, chosen, target, backends)
        longest = max(longest, clock() - began)
    families = list(dict.fromkeys(row.family for row in rows))
    for family in families:
        print(told(family, [row for row in rows if row.family == family]))
    if left:
        print(f"left out, as there was no time: {', '.join(left)}")
    bars = [bar for it in families for bar in bars_of(it, [r for r in rows if r.family == it])]
    return Report({"rows": [asdict(row) for row in rows], "left": left}, bars)


def options_of(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="begin no case that would end later"
    )
    return parser.parse_args(arguments)


def measured(
    case: str, candidates: Sequence[Candidate], target: Target, backends: Sequence[str]
) -> list[Row]:
    """Outcomes of candidates of one workload, of one backend after the other."""
    outcomes = {}
    for name in backends:
        workload = candidates[0].sketch.workload
        with LocalMeasurer(name, target, 1, workload) as measurer:
            outcomes[name] = measurer.measure(candidates)
    rows = []
    for number, candidate in enumerate(candidates):
        own = {name: outcomes[name][number] for name in backends}
        row = Row(
            family_of(case, candidate.sketch.name),
            case,
            candidate.sketch.name,
            {name: it.status for name, it in own.items()},
            {name: it.latency for name, it in own.items() if it.latency is not None},
            own[OURS].message or "",
        )
        print(line(row), flush=True)
        rows.append(row)
    return rows


def family_of(case: str, sketch: str) -> str:
    """Kernels that are replaced together: of one instruction, or of one operator."""
    special = (it for it in ON_TENSOR_CORES if it in sketch)
    return next(special, re.split(r"[^a-z]", case)[0])


def line(row: Row) -> str:
    """A candidate on a line."""
    ratio = "" if row.ratio is None else f", {row.ratio:.2f} of TVM's time"
    statuses = ", ".join(f"{name} {status}" for name, status in row.statuses.items())
    wrong = f": {row.message}" if row.statuses[OURS] != OK else ""
    return f"{row.case} {row.sketch}: {statuses}{ratio}{wrong}"[:300]


def told(family: str, rows: Sequence[Row]) -> str:
    """A family on a line."""
    right = sum(row.statuses[OURS] == OK for row in rows)
    ratios = [row.ratio for row in rows if row.ratio is not None]
    mean = geometric_mean(ratios) if ratios else None
    beside = "" if mean is None else f", {mean:.2f} of TVM's time, at most {max(ratios):.2f}"
    return f"{family:20} {right} of {len(rows)} right{beside}"


def bars_of(family: str, rows: Sequence[Row]) -> list[Bar]:
    """Promises of a family: after them, TVM's source of it may go."""
    wrong = sum(row.statuses[OURS] != OK for row in rows)
    ratios = [row.ratio for row in rows if row.ratio is not None]
    alone = all(THEIRS not in row.statuses for row in rows)
    mean = geometric_mean(ratios) if ratios else None
    return [
        Bar(f"{family}: printed kernels that are not right", float(wrong), 0, at_most=True),
        Bar(f"{family}: time, of TVM's", mean, SLOWER, at_most=True, not_asked=alone),
    ]
