"""Outcomes of candidates that break a CUDA device: on a fake one, no GPU is needed.

The fake driver of the tests of `plugins/tvm` takes the place of the real one, in this process and
its workers; kernels run on threads of the CPU. Of ten candidates of a small product eight get a
fault each: four lose the context, one hangs, three compute or write what they must not. Each has
to be the outcome of one candidate and of no other, and the device has to be usable afterwards.
`cuda.py` runs it, too. Needs g++ and pytest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from support.common import Bar, Report, bench

from autotune.ir.workloads import gemm
from autotune.measure import LocalMeasurer, MeasureProtocol
from autotune.store.records import Outcome
from autotune.targets import resolve

ROOT = Path(__file__).resolve().parents[1]
# The fake driver, and the threads that its kernels run on.
SUPPORT = (ROOT / "plugins" / "tvm" / "tests" / "support", ROOT / "tests" / "support")
# The outcome, and what its message says.
LOSING: Mapping[str, tuple[str, str]] = {
    "error 700": ("crash", "ILLEGAL_ADDRESS"),
    "error 716": ("crash", "MISALIGNED_ADDRESS"),
    "error 702": ("crash", "LAUNCH_TIMEOUT"),
    "error 214": ("crash", "ECC_UNCORRECTABLE"),
    "hang": ("timeout", "verify took more than"),
}
FAULTS: Mapping[str, tuple[str, str]] = {
    **LOSING,
    "nothing": ("wrong_result", "elements are wrong"),
    "beside": ("wrong_result", "memory beside"),
    "input": ("wrong_result", "was changed"),
}
HEALTHY = 2
DEADLINES = {"task": 300.0, "build": 120.0, "verify": 15.0, "run": 60.0}
MOST_SECONDS = 400.0


def run(_: argparse.Namespace) -> Report:
    """Measure on a fake device."""
    with tempfile.TemporaryDirectory() as folder:
        outcomes, last, processes = measured(Path(folder))
    for outcome in (*outcomes, last):
        print(f"{outcome.status:12} {outcome.message or ''}".rstrip())
    data = {"outcomes": [asdict_of(it) for it in (*outcomes, last)]}
    return Report(data, bars_of(outcomes, last, processes))


def measured(folder: Path) -> tuple[list[Outcome], Outcome, int]:
    """Outcomes of the candidates, of one that is measured after all faults, and processes."""
    sys.path[:0] = map(str, SUPPORT)
    import fake_cuda
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        fake = fake_cuda.install(fake_cuda.library_in(folder), folder, patch)
        for ordinal, fault in enumerate(FAULTS, 1):
            fake.fail(ordinal, fault)
        workload = gemm(m=16, n=16, k=16)
        candidates = fake_cuda.candidates_of(workload, len(FAULTS) + HEALTHY)
        protocol = MeasureProtocol(deadlines=DEADLINES, min_sample_seconds=1e-4)
        device = resolve("cuda")
        with LocalMeasurer("tvm", device, 1, workload, workers=1, protocol=protocol) as local:
            outcomes = local.measure(candidates)
            (last,) = local.rematch(candidates[:1])
        return outcomes, last, len(set(fake.processes))


def asdict_of(outcome: Outcome) -> dict[str, Any]:
    """The written form of an outcome."""
    return {"status": outcome.status, "message": outcome.message}


def bars_of(outcomes: Sequence[Outcome], last: Outcome, processes: int) -> list[Bar]:
    """Promises of the outcomes of faults."""
    missing = [
        fault
        for fault, (status, why) in FAULTS.items()
        if [it.status for it in outcomes if why in (it.message or "")] != [status]
    ]
    found = Counter(outcome.status for outcome in outcomes)
    return [
        Bar(
            f"faults of a fake device, of {len(FAULTS)}, that are not one candidate's outcome",
            len(missing),
            0,
            at_most=True,
            note=", ".join(missing),
        ),
        Bar("candidates without a fault that were measured there", found["ok"], HEALTHY),
        Bar("measured after all faults", float(last.ok), 1),
        Bar(
            "processes that owned it, one more than lost their context", processes, len(LOSING) + 1
        ),
    ]


def bars_apart() -> list[Bar]:
    """The bars, from a process of its own: a driver that is loaded stays loaded."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "faults.json"
        done = subprocess.run(
            [*bench("cuda_faults"), "--json", str(written)],
            capture_output=True,
            text=True,
            env=dict(os.environ),
            timeout=MOST_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            why = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return [Bar("faults of a fake device", None, 0, at_most=True, note=why)]
        bars = json.loads(written.read_text())["bars"]
    return [Bar(**{name: bar[name] for name in asdict(Bar("", 0, 0))}) for bar in bars]
