"""Runs on machines of an engine, and what their records say of them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from scripted_engine import ScriptedEngine, fingerprint, machine
from toy_parts import REFERENCE_BACKEND, tune_toy

import autotune
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import gemm
from autotune.measure.engines import MeasureEngine, RunnerContext
from autotune.process.interrupts import TuningInterrupted
from autotune.store.sqlite import open_database
from autotune.targets import Target
from autotune.testing.reference_backend import ReferenceBackend
from autotune.tuning.events import TrialFinished
from autotune.tuning.machines import known_protocols, look_at_fleet, machine_tag
from autotune.tuning.options import TuneOptions

SPEED = [1e-3]
RUNNER = f"{__name__}:make_engine"


def make_engine(context: RunnerContext) -> MeasureEngine:
    """Two machines as fast as ``SPEED`` says, and one of another kind."""

    def latency(candidate: object) -> float:
        return 1e-3 if candidate is None else 1e-4 * (1 + len(str(candidate)) % 7)

    same = fingerprint(seconds=SPEED[0])
    others = [machine("a", same), machine("b", same), machine("z", fingerprint("other"))]
    return ScriptedEngine(others, latency)


@pytest.fixture
def speed() -> Iterator[list[float]]:
    yield SPEED
    SPEED[0] = 1e-3


def tuned(database: Path, trials: int = 6, **others: object) -> autotune.Result:
    parts = {"strategy": "random", "runner": RUNNER}
    return tune_toy(database, target="zen4", trials=trials, parts=parts, **others)


def test_an_interrupted_run_of_several_machines_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Candidates are out on both machines when it is interrupted, some of them with an outcome."""
    database, finished = tmp_path / "records.db", list[TrialFinished]()

    def listen(event: object) -> None:
        if isinstance(event, TrialFinished):
            finished.append(event)
            if len(finished) == 23:
                raise KeyboardInterrupt

    with pytest.raises(TuningInterrupted):
        tuned(database, trials=50, round_size=4, listeners=(listen,))
    assert not [it for it in threading.enumerate() if it.name.startswith("lane ")]
    result = tuned(database, trials=50, round_size=4)
    assert result.trials == 50 and result.cached == 0 and result.outcomes["ok"] == 50
    with open_database(str(database), read_only=True) as opened:
        records = [it for it in opened.records() if it.run_id == result.run_id]
    assert sorted(it.trial for it in records) == list(range(50))
    assert len({it.candidate.digest for it in records}) == 50
    assert result.confirmation is not None


def test_records_of_equal_machines_are_reused_and_no_others(
    tmp_path: Path, speed: list[float]
) -> None:
    database = tmp_path / "records.db"
    first = tuned(database)
    assert re.fullmatch(
        r"warm-3\+.*\+machine-[0-9a-f]{12}@0\.001s|warm-3\+machine-[0-9a-f]{12}"
        r"@0\.001s",
        first.key.protocol,
    )
    assert first.trials == 6 and first.cached == 0
    # As fast within the tolerance: the same records, under the same name.
    speed[0] = 1.08e-3
    again = tuned(database, seed=1)
    assert again.key == first.key
    # Throttled: other records.
    speed[0] = 1.3e-3
    slow = tuned(database)
    assert slow.key != first.key and slow.cached == 0 and slow.run_id != first.run_id
    with open_database(str(database), read_only=True) as opened:
        keys = {record.key.protocol for record in opened.records()}
    assert keys == {first.key.protocol, slow.key.protocol} == set(known_protocols(str(database)))


def test_a_run_on_machines_is_continued(tmp_path: Path) -> None:
    database = tmp_path / "records.db"
    first = tuned(database)
    more = tuned(database, trials=9)
    assert more.run_id == first.run_id and more.trials == 9


def test_the_first_speed_that_was_recorded_stands_for_equal_ones() -> None:
    made = fingerprint(seconds=1.05e-3)
    known = ["warm-3", "warm-3+machine-000000000000@0.001s"]
    own = machine_tag(made, known)
    assert own == f"+machine-{made.digest}@0.00105s"
    assert machine_tag(evolve(made, reference_seconds=1.1e-3), [f"warm-3{own}"]) == own
    slow = evolve(made, reference_seconds=1.3e-3)
    assert machine_tag(slow, [f"warm-3{own}"]) == f"+machine-{made.digest}@0.0013s"
    untimed = machine_tag(evolve(made, reference_seconds=0.0), [f"warm-3{own}"])
    assert untimed == f"+machine-{made.digest}"


def test_a_measurer_of_its_own_and_a_runner_contradict() -> None:
    with pytest.raises(InvalidValueError, match="'external' has no machines of its own.*--runner"):
        TuneOptions(target="zen4", threads=1, parts={"measurer": "external", "runner": RUNNER})


def test_threads_of_another_machine_are_not_limited_by_this_one() -> None:
    assert TuneOptions(target="zen4", threads=999, parts={"runner": RUNNER}).machine.cores == 999
    with pytest.raises(InvalidValueError, match="threads must be at most"):
        TuneOptions(target="zen4", threads=999)


class BackendOfOtherMachines(ReferenceBackend):
    """Programs that are measured here fail."""

    def check_measuring(self, target: Target, threads: int = 1) -> None:
        raise UnsupportedTarget("this machine lacks its instructions")


def test_instructions_of_another_machine_may_be_missing_on_this_one(tmp_path: Path) -> None:
    backend = f"{__name__}:{BackendOfOtherMachines.__name__}"
    result = tuned(tmp_path / "records.db", trials=2, backend=backend)
    assert result.outcomes["ok"] == 2
    with pytest.raises(UnsupportedTarget, match="lacks its instructions"):
        autotune.tune(gemm(m=8, n=8, k=8), target="zen4", threads=1, backend=backend, trials=1)


def test_a_fleet_says_who_would_take_part() -> None:
    options = TuneOptions(
        target="zen4", threads=1, backend=REFERENCE_BACKEND, parts={"runner": RUNNER}
    )
    fleet = look_at_fleet(options)
    assert [(it.machine.name, it.takes_part) for it in fleet.machines] == [
        ("a", True),
        ("b", True),
        ("z", False),
    ]
    data = fleet.to_json()
    assert data["runner"] == "scripted" and data["machines"][0]["lease_group"] == "a"
    assert data["machines"][0]["fingerprint"]["digest"] == fingerprint().digest
