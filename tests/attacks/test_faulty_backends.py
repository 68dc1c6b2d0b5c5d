"""Harm of a candidate to its worker, in any phase, is its own outcome; others are unharmed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attack_cases import sampled
from attrs import evolve
from patient_clock import PatientClock
from process_facts import becomes_true

from autotune.ir.workloads import gemm
from autotune.measure import LocalMeasurer, MeasureProtocol
from autotune.process.processes import marked_processes
from autotune.sketches import Candidate, Ordinal, Sketch
from autotune.targets import detect_cpu
from autotune.testing.reference_backend import SCRIPTED_NATIVE

pytestmark = pytest.mark.attack("faulty backend")

PHASES = ("lower", "build", "load", "verify", "run")
DEAD = {"crash"}
SILENT = {"timeout"}
# What raises ends differently before and after the program is built.
RAISES = {"lower": {"build_error", "invalid"}, "build": {"build_error"}}
MISCONDUCT = {
    "crash": DEAD,
    "kill": DEAD,
    "exit": DEAD,
    "garbage": DEAD,
    "hang": SILENT,
    "stop": SILENT,
    "silence": SILENT,
    "grandchild": SILENT,
    "daemon": SILENT,
    "memory": {"crash", "build_error", "timeout"},
    "chatter": {"ok"},
    "folder": {"ok"},
    "environment": {"ok"},
    "files": {"crash"},
    "exception": {"crash", "build_error"},
}
TIMES = [-1, 0, float("inf"), float("nan"), None, "fast", True, [1e-3], -1e308]
DIGESTS = [None, 7, "\ud800", "\0", "\x1b[2J", ["x"], "x" * 100_000]


def faults() -> dict[str, tuple[dict[str, Any], set[str]]]:
    """Each fault in each phase, with the outcomes that are right for it."""
    found: dict[str, tuple[dict[str, Any], set[str]]] = {}
    for name, ends in MISCONDUCT.items():
        for phase in PHASES:
            right = RAISES.get(phase, ends) if name == "exception" else ends
            found[f"{name} in {phase}"] = ({"fault": name, "phase": phase}, right)
    found["a schedule that cannot be"] = ({"fault": "invalid"}, {"invalid"})
    found["a compiler's refusal"] = ({"fault": "build_error"}, {"build_error"})
    for how in ("wrong", "nothing", "outside", "dirty", "spoil"):
        for phase in ("verify", "run"):
            ends = {"wrong_result", "ok", "crash"}
            if how in ("wrong", "nothing") and phase == "verify":
                ends = {"wrong_result"}
            found[f"{how} in {phase}"] = ({"fault": how, "phase": phase}, ends)
    for value in TIMES:
        fault = {"fault": "time", "value": value}
        found[f"a time of {value!r}"] = (fault, {"crash", "implausible"})
    for value in DIGESTS:
        fault = {"fault": "digest", "value": value}
        found[f"a digest {ascii(value)[:20]}"] = (fault, {"build_error"})
    return found


CASES = {
    name: (2 * at, fault, ends) for at, (name, (fault, ends)) in enumerate(faults().items(), 1)
}
"""By name: the value of the parameter by which a candidate has the fault, the fault, the ends."""

WORKLOAD = gemm(m=8, n=8, k=8)
SKETCH = Sketch("toy", WORKLOAD, (Ordinal("tile", tuple(range(1, 2 * len(CASES) + 2))),), (), ())
SECONDS = 2.0


@pytest.fixture(scope="module")
def measurer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalMeasurer]:
    """A measurer for all cases: damage by one of them would show in the others."""
    folder = tmp_path_factory.mktemp("temporary")
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    listed = [{**fault, "where": {"tile": value}} for value, fault, _ in CASES.values()]
    protocol = MeasureProtocol(
        deadlines=dict.fromkeys(("build", "load", "verify", "run"), SECONDS),
        memory_bytes=1 << 30,
    )
    try:
        with LocalMeasurer(
            SCRIPTED_NATIVE,
            evolve(detect_cpu(), cores=2),
            2,
            WORKLOAD,
            json.dumps({"faults": listed}),
            workers=2,
            protocol=protocol,
            clock=PatientClock(),
        ) as made:
            yield made
        assert becomes_true(lambda: not marked_processes(folder))
        assert os.listdir(folder) == []
    finally:
        tempfile.tempdir = before


@pytest.mark.parametrize("case", sampled(CASES, now=5, slow=12, least=60))
@pytest.mark.promise(
    "a candidate that crashes, hangs, lies or spoils its process",
    "an outcome of its own; no other candidate and no later run is harmed",
)
def test_a_fault_is_an_outcome_of_its_candidate_alone(
    case: tuple[int, dict[str, Any], set[str]],
    measurer: LocalMeasurer,
    verdict: Callable[[str], None],
) -> None:
    value, _, ends = case
    before = set(os.listdir(Path(tempfile.gettempdir())))
    batch = [Candidate(SKETCH, (tile,)) for tile in (value - 1, value, value + 1)]
    first, guilty, last = measurer.measure(batch)
    assert guilty.status in ends, guilty
    assert (first.status, last.status) == ("ok", "ok"), (first, last)
    assert guilty.message.isprintable() or "\n" in guilty.message
    assert set(os.listdir(Path(tempfile.gettempdir()))) == before
    verdict(guilty.status)
