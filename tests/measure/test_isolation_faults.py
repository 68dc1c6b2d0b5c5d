"""Harm to workers, by a candidate or from outside, ends as an outcome, and leaves nothing."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import evolve
from patient_clock import PatientClock
from process_facts import becomes_true, children_of, open_descriptors
from small_disk import run_on_small_disk
from thinning import thinned

from autotune.measure import LocalMeasurer, MeasureProtocol
from autotune.process import prepare_workers
from autotune.process.processes import marked_processes
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.testing.reference_backend import HANGING, SIMULATED_NATIVE

MakeMeasurer = Callable[..., LocalMeasurer]

PHASES = {2: "build", 4: "load", 6: "verify", 8: "run"}
"""Phases in which the candidates with these values go wrong."""


@pytest.fixture
def backend_name() -> str:
    """Candidates are compiled."""
    return SIMULATED_NATIVE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory of the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _leaves_nothing(folder: Path) -> Iterator[None]:
    # The process that workers are forked from stays for the next ones.
    prepare_workers()
    before = {*children_of(os.getpid())}, len(open_descriptors())
    yield
    assert list(folder.iterdir()) == []
    assert marked_processes(folder) == []
    assert {*children_of(os.getpid())} <= before[0]
    assert len(open_descriptors()) == before[1]


def in_each_phase(fault: str) -> list[dict[str, object]]:
    return [
        {"fault": fault, "phase": phase, "where": {"tile": tile}} for tile, phase in PHASES.items()
    ]


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


def in_phases(status: str) -> list[str]:
    """Statuses of ten candidates of which those in ``PHASES`` have this one."""
    return [status if tile in PHASES else "ok" for tile in range(1, 11)]


@contextmanager
def signalling_what_hangs(folder: Path, number: signal.Signals) -> Iterator[None]:
    """Send a signal to each worker that hangs, in whatever phase."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            for path in folder.glob(f"*/*/{HANGING}"):
                try:
                    pid = path.read_text()
                    if not pid.endswith("\n"):  # it is being written
                        continue
                    path.unlink()
                except FileNotFoundError:  # it was ended meanwhile
                    continue
                os.kill(int(pid), number)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("number", thinned([signal.SIGKILL, signal.SIGTERM], 2))
def test_a_worker_killed_from_outside_in_any_phase(
    make_measurer: MakeMeasurer,
    candidates: list[Candidate],
    folder: Path,
    number: signal.Signals,
) -> None:
    measurer = make_measurer(*in_each_phase("hang"))
    with measurer, signalling_what_hangs(folder, number):
        outcomes = measurer.measure(candidates)
    assert statuses(outcomes) == in_phases("crash")
    for tile, phase in PHASES.items():
        message = outcomes[tile - 1].message
        assert f"failed during {phase}: killed by {number.name}" in message


@pytest.mark.parametrize("fault", thinned(["stop", "silence", "hang", "grandchild"], 4))
def test_a_worker_that_says_no_more(
    make_measurer: MakeMeasurer,
    quick: MeasureProtocol,
    candidates: list[Candidate],
    fault: str,
) -> None:
    with make_measurer(*in_each_phase(fault), protocol=quick, clock=PatientClock()) as measurer:
        outcomes = measurer.measure(candidates)
        assert statuses(outcomes) == in_phases("timeout")
    for tile, phase in PHASES.items():
        assert outcomes[tile - 1].message == f"{phase} took more than 1 s"
        assert 1 <= outcomes[tile - 1].timings[phase] < 20


@pytest.mark.parametrize(
    ("number", "seconds"),
    thinned(
        [
            (signal.SIGKILL, 0.05),
            (signal.SIGKILL, 0.3),
            (signal.SIGTERM, 0.1),
            (signal.SIGSTOP, 0.0),
        ],
        4,
    ),
)
def test_workers_signalled_while_they_start(
    make_measurer: MakeMeasurer,
    quick: MeasureProtocol,
    candidates: list[Candidate],
    number: signal.Signals,
    seconds: float,
) -> None:
    deadlines = {**quick.deadlines, "start": 5.0, "task": 5.0}
    with make_measurer(
        protocol=evolve(quick, deadlines=deadlines), clock=PatientClock()
    ) as measurer:
        measurer.start()
        time.sleep(seconds)
        for pid in measurer.worker_pids:
            os.kill(pid, number)
        assert statuses(measurer.measure(candidates[:3])) == ["ok"] * 3


@pytest.mark.slow
def test_workers_stopped_while_idle(
    make_measurer: MakeMeasurer, quick: MeasureProtocol, candidates: list[Candidate]
) -> None:
    deadlines = {**quick.deadlines, "start": 5.0, "task": 5.0}
    with make_measurer(
        protocol=evolve(quick, deadlines=deadlines), clock=PatientClock()
    ) as measurer:
        measurer.measure(candidates[:2])
        for pid in measurer.worker_pids:
            os.kill(pid, signal.SIGSTOP)
        # One candidate for each worker may be given up; the run goes on.
        assert statuses(measurer.measure(candidates)).count("ok") >= 8
        assert statuses(measurer.measure(candidates)) == ["ok"] * 10


def test_a_daemon_of_a_candidate_goes_when_its_worker_goes(
    make_measurer: MakeMeasurer,
    quick: MeasureProtocol,
    candidates: list[Candidate],
    folder: Path,
) -> None:
    daemon = {"fault": "daemon", "phase": "run", "where": {"tile": 1}}
    with make_measurer(daemon, protocol=quick, clock=PatientClock()) as measurer:
        assert statuses(measurer.measure(candidates[:3])) == ["timeout", "ok", "ok"]
        # Two keepers, two workers.
        assert becomes_true(lambda: len(marked_processes(folder)) == 4)


@pytest.mark.slow
def test_every_generation_of_workers_gives_back_its_descriptors(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    with make_measurer({"fault": "exit", "phase": "verify", "every": 1}) as measurer:
        measurer.wait_ready()
        before = len(open_descriptors())
        assert statuses(measurer.measure(candidates[:4])) == ["crash"] * 4
        measurer.wait_ready()
        assert len(open_descriptors()) == before


HOST = """
import json, os, tempfile
from autotune.errors import AutotuneError
from autotune.measure import LocalMeasurer
from autotune.sketches import Candidate, Ordinal, Sketch
from autotune.targets import Target
from autotune.testing.reference_backend import SIMULATED_NATIVE
from autotune.ir.workloads import gemm

def room():
    disk = os.statvfs(tempfile.gettempdir())
    return disk.f_bavail * disk.f_frsize

workload = gemm(m=SIZE, n=SIZE, k=8)
sketch = Sketch("toy", workload, (Ordinal("tile", (1, 2, 3, 4, 5, 6)),), (), ())
faults = [{"fault": "disk", "phase": phase, "where": {"tile": tile}}
          for tile, phase in ((2, "build"), (4, "run"))]
try:
    with LocalMeasurer(SIMULATED_NATIVE, Target("cpu", "test", processor="x86-64"), 1, workload,
                       json.dumps({"faults": faults}), workers=2) as measurer:
        outcomes = measurer.measure([Candidate(sketch, (value,)) for value in range(1, 7)])
        for outcome in outcomes:
            print(outcome.status, outcome.message)
        measurer.wait_ready()
        print(room() > 2 << 20)
except AutotuneError as error:
    print(type(error).__name__, error)
print(os.listdir(tempfile.gettempdir()))
"""


def test_a_candidate_that_fills_the_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    lines = run_on_small_disk(HOST.replace("SIZE", "8"), disk, "size=8m").splitlines()
    words = [line.split()[0] for line in lines]
    assert words == ["ok", "build_error", "ok", "crash", "ok", "ok", "True", "[]"]
    assert "No space left on device" in lines[1]
    assert "No space left on device" in lines[3]


def test_a_disk_without_room_for_folders(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    options = "size=256k,nr_inodes=2"
    lines = run_on_small_disk(HOST.replace("SIZE", "8"), disk, options).splitlines()
    assert lines[0].startswith("WorkerStartFailed cannot write temporary files")
    assert f"make room in {disk}, or set TMPDIR" in lines[0]
    assert lines[1:] == ["[]"]


def test_inputs_larger_than_the_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # 64 KiB of inputs, and little to compute from them.
    source = HOST.replace("m=SIZE, n=SIZE, k=8", "m=128, n=1, k=128")
    source = source.replace('"disk", "phase"', '"exit", "phase"').replace('"run"', '"verify"')
    lines = run_on_small_disk(source, disk, "size=48k").splitlines()
    words = [line.split()[0] for line in lines]
    assert words == ["ok", "crash", "ok", "crash", "ok", "ok", "False", "[]"]


@pytest.mark.parametrize("fault", ["folder", "files", "environment"])
def test_what_a_candidate_does_to_its_process_harms_no_other(
    fault: str, make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    phases = {2: "build", 3: "run"}
    faults = [
        {"fault": fault, "phase": phase, "where": {"tile": tile}} for tile, phase in phases.items()
    ]
    with make_measurer(*faults) as measurer:
        outcomes = measurer.measure(candidates)
        assert statuses(measurer.rematch([candidates[0], candidates[-1]])) == ["ok"] * 2
    ends = "crash" if fault == "files" else "ok"
    assert statuses(outcomes) == [ends if tile in phases else "ok" for tile in range(1, 11)]
    for tile in phases if fault == "files" else ():
        assert "lowered the limit of open files from" in outcomes[tile - 1].message
