"""Faults of candidates and of workers, with real processes: each is an outcome, the others are
measured, and nothing is left."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import metadata
from pathlib import Path

import pytest
from attrs import evolve
from patient_clock import PatientClock
from process_facts import becomes_true, children_of, open_descriptors, session_members
from python_processes import start_python
from small_disk import run_on_small_disk
from thinning import thinned

from autotune.ir.workloads import Workload
from autotune.measure import LocalMeasurer, MeasureProtocol, WorkerStartFailed
from autotune.process import prepare_workers
from autotune.process.processes import marked_processes
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.reference_backend import HANGING, SIMULATED_NATIVE, virtual_latency

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


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


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


FAULTS = thinned(
    [
        ("crash", None, "failed during PHASE: killed by SIGSEGV", "scripted: last words"),
        ("kill", None, "failed during PHASE: killed by SIGKILL", ""),
        ("exit", None, "failed during PHASE: exited with status 3", ""),
        ("garbage", None, "failed during PHASE: ", "not a message"),
        ("hang", signal.SIGKILL, "failed during PHASE: killed by SIGKILL", ""),
        ("hang", signal.SIGTERM, "failed during PHASE: killed by SIGTERM", ""),
        ("silence", None, "PHASE took more than 1 s", ""),
        ("hang", None, "PHASE took more than 1 s", ""),
        ("stop", None, "PHASE took more than 1 s", ""),
        ("grandchild", None, "PHASE took more than 1 s", ""),
    ],
    4,
)
"""A fault, a signal from outside to what it has made hang, and words of the outcome's message."""


@pytest.mark.parametrize(("fault", "number", "words", "last"), FAULTS)
def test_a_worker_that_ends_or_says_no_more_in_any_phase(
    make_measurer: MakeMeasurer,
    quick: MeasureProtocol,
    candidates: list[Candidate],
    folder: Path,
    fault: str,
    number: signal.Signals | None,
    words: str,
    last: str,
) -> None:
    faults = [
        {"fault": fault, "phase": phase, "where": {"tile": tile}} for tile, phase in PHASES.items()
    ]
    is_late = "took" in words
    given = {"protocol": quick, "clock": PatientClock()} if is_late else {}
    signalling = nullcontext() if number is None else signalling_what_hangs(folder, number)
    with make_measurer(*faults, **given) as measurer, signalling:
        outcomes = measurer.measure(candidates)
    status = "timeout" if is_late else "crash"
    assert statuses(outcomes) == [status if tile in PHASES else "ok" for tile in range(1, 11)]
    for tile, phase in PHASES.items():
        found, said = outcomes[tile - 1], words.replace("PHASE", phase)
        assert found.message == said if is_late else said in found.message
        assert last in found.message
        assert phase in found.timings
        assert not is_late or 1 <= found.timings[phase] < 20


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


def test_all_is_well(
    make_measurer: MakeMeasurer, workload: Workload, candidates: list[Candidate]
) -> None:
    with make_measurer() as measurer:
        seen: list[tuple[int, Outcome]] = []
        outcomes = measurer.measure(candidates, lambda *item: seen.append(item))
        assert statuses(outcomes) == ["ok"] * 10
        assert seen == list(enumerate(outcomes))
        for candidate, outcome in zip(candidates, outcomes, strict=True):
            expected = virtual_latency(workload, candidate)
            assert outcome.latency == pytest.approx(expected)
            assert set(outcome.timings) == {"build", "load", "verify", "run"}
            assert all(sample == pytest.approx(expected) for sample in outcome.samples)
        (baseline,) = measurer.measure_baselines([None])
        assert baseline.latency == pytest.approx(virtual_latency(workload, None))
        assert measurer.measure([]) == []
        assert measurer.versions == {
            "backend_version": "1",
            "compiler_version": f"llvmlite {metadata.version('llvmlite')}",
        }


FAILURES = {
    "outcomes": [
        ({"fault": "invalid"}, "invalid", ["step tile cannot be applied"]),
        ({"fault": "build_error"}, "build_error", ["BuildFailed", "the compiler rejects this"]),
        ({"fault": "exception"}, "build_error", ["RuntimeError", "no known kind"]),
        ({"fault": "wrong"}, "wrong_result", ["1 of 64 elements", "largest error 1 ", "allowed"]),
        ({"fault": "nothing"}, "wrong_result", ["64 of 64 elements", "nan"]),
        ({"fault": "exception", "phase": "load"}, "crash", ["RuntimeError"]),
        ({"fault": "exception", "phase": "verify"}, "crash", ["RuntimeError"]),
        ({"fault": "exception", "phase": "run"}, "crash", ["RuntimeError"]),
    ],
    "times": [
        (
            {"fault": "time", "value": value},
            "crash",
            ["NotALatency: time() returned", f"{type(value).__name__} {value!r}, not a finite"],
        )
        for value in (-1, 0, float("inf"), float("nan"), None, "fast", True, [1e-3])
    ],
    "digests": [
        (
            {"fault": "digest", "value": value},
            "build_error",
            [f"the digest of the executable is {repr(value)[:80]}; a digest is printable text"],
        )
        for value in (None, 7, "\ud800", "x" * 201)
    ],
}
"""Faults by ``tile`` from 2 on, how each ends, and words of its message."""


@pytest.mark.parametrize("rows", FAILURES.values(), ids=FAILURES)
def test_failures_without_a_death(
    make_measurer: MakeMeasurer,
    candidates: list[Candidate],
    rows: list[tuple[dict[str, object], str, list[str]]],
) -> None:
    tiles = dict(enumerate(rows, 2))
    measurer = make_measurer(*({**row[0], "where": {"tile": at}} for at, row in tiles.items()))
    measurer.wait_ready()
    before = measurer.worker_pids
    outcomes = measurer.measure(candidates[: len(rows) + 2])
    assert statuses(outcomes) == ["ok", *(status for _, status, _ in rows), "ok"]
    for tile, (_, _, words) in tiles.items():
        assert all(word in outcomes[tile - 1].message for word in words)
    assert measurer.worker_pids == before


def test_exhausted_memory_is_the_candidates_own_problem(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    protocol = MeasureProtocol(memory_bytes=1 << 30)
    measurer = make_measurer(
        {"fault": "memory", "phase": "build", "where": {"tile": 1}},
        {"fault": "memory", "phase": "run", "where": {"tile": 2}},
        protocol=protocol,
    )
    outcomes = measurer.measure(candidates[:3])
    assert statuses(outcomes) == ["build_error", "crash", "ok"]
    assert "MemoryError" in outcomes[0].message


def test_output_of_a_worker_is_bounded(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    measurer = make_measurer({"fault": "chatter", "phase": "run", "every": 1})
    assert statuses(measurer.measure(candidates)) == ["ok"] * 10
    for pid in measurer.worker_pids:
        assert os.stat(f"/proc/{pid}/fd/1").st_size < 40 << 20


def test_a_worker_killed_from_outside_while_idle_costs_nothing(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    measurer = make_measurer()
    measurer.measure(candidates[:2])
    for pid in measurer.worker_pids:
        os.kill(pid, signal.SIGKILL)
    assert statuses(measurer.measure(candidates)) == ["ok"] * 10


def test_workers_killed_from_outside_during_a_batch(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    measurer = make_measurer()

    def kill_workers(index: int, outcome: Outcome) -> None:
        if index == 3:
            for pid in measurer.worker_pids:
                os.kill(pid, signal.SIGKILL)

    # What they had built is lost, and built again.
    assert statuses(measurer.measure(candidates, kill_workers)) == ["ok"] * 10


def test_duplicates_are_measured_once(
    make_measurer: MakeMeasurer, candidates: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    measurer = make_measurer(log=str(log))
    a, b, c = candidates[:3]
    seen: list[int] = []
    outcomes = measurer.measure([a, b, a, a, c, b], lambda index, _: seen.append(index))
    assert seen == list(range(6))
    assert outcomes[0] == outcomes[2] == outcomes[3]
    assert outcomes[1] == outcomes[5]
    assert log.read_text().count("build begin") == 3


def test_builds_run_at_once_and_never_beside_a_timing(
    make_measurer: MakeMeasurer, candidates: list[Candidate], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    measurer = make_measurer(
        {"fault": "kill", "phase": "run", "where": {"tile": 3}},
        log=str(log),
        build_seconds=0.2,
    )
    measurer.wait_ready()
    measurer.measure(candidates)
    events = [line.split() for line in log.read_text().splitlines()]
    events.sort(key=lambda event: float(event[3]))
    building: set[str] = set()
    timing: set[str] = set()
    most_builds = 0
    for name, event, pid, *_ in events:
        active = building if name == "build" else timing
        if event == "begin":
            active.add(pid)
        else:
            active.discard(pid)
        if name == "time" and event == "begin" and not building:
            timing = {pid}  # one that died has no end
        most_builds = max(most_builds, len(building))
        if name == "time":
            assert not building
        else:
            assert event == "end" or not timing or building
    assert most_builds == 2
    assert measurer.seconds["build"] > 0
    assert measurer.seconds["run"] > 0


def test_start_does_not_wait_for_the_compiler(workload: Workload, target: Target) -> None:
    name = "broken_backends:Slow"
    with LocalMeasurer(name, target, 1, workload, workers=2) as measurer:
        # Each of them takes a minute.
        assert len(measurer.worker_pids) == 2 and not measurer.versions


def test_a_backend_that_cannot_start_is_an_error(workload: Workload, target: Target) -> None:
    name = "broken_backends:Unstartable"
    with (
        LocalMeasurer(name, target, 1, workload, workers=2) as measurer,
        pytest.raises(WorkerStartFailed, match="no compiler here"),
    ):
        measurer.wait_ready()


def test_workers_that_die_at_start_are_an_error(
    workload: Workload, target: Target, candidates: list[Candidate]
) -> None:
    name = "broken_backends:Suicidal"
    with (
        LocalMeasurer(name, target, 1, workload, workers=2) as measurer,
        pytest.raises(WorkerStartFailed, match="in a row.*exited with status 7"),
    ):
        measurer.measure(candidates)


ENDING_HOST = """
from autotune.measure import LocalMeasurer
from autotune.testing.reference_backend import SIMULATED_NATIVE
from autotune.targets import Target
from autotune.ir.workloads import gemm
script = '{"faults": [{"fault": "FAULT", "phase": "run", "candidate": "baseline"}]}'
target, workload = Target("cpu", "test", processor="x86-64"), gemm(m=8, n=8, k=8)
measurer = LocalMeasurer(SIMULATED_NATIVE, target, 1, workload, script, workers=2)
measurer.wait_ready()
print(*measurer.worker_pids, flush=True)
THEN
"""


@pytest.mark.parametrize(
    ("then", "fault", "number"),
    thinned(
        [
            ("raise KeyboardInterrupt", "hang", None),
            ("measurer.measure_baselines([None])", "grandchild", signal.SIGINT),
            ("measurer.measure_baselines([None])", "grandchild", signal.SIGKILL),
        ],
        2,
    ),
)
def test_workers_end_with_their_host(
    then: str, fault: str, number: signal.Signals | None, tmp_path: Path
) -> None:
    folder = tmp_path / "host"
    folder.mkdir()
    script = ENDING_HOST.replace("FAULT", fault).replace("THEN", then)
    with start_python("-c", script, TMPDIR=str(folder)) as host:
        assert host.stdout is not None
        workers = [int(word) for word in host.stdout.readline().split()]
        assert len(workers) == 2
        if number is not None:
            time.sleep(0.3)
            host.send_signal(number)
        host.wait(timeout=300)
    assert becomes_true(lambda: not any(map(session_members, workers)))
    assert becomes_true(lambda: not marked_processes(folder))
    assert becomes_true(lambda: not list(folder.iterdir()))


def test_one_that_waits_for_its_turns_when_its_worker_crashes_is_timed_again(
    make_measurer: MakeMeasurer, workload: Workload, candidates: list[Candidate]
) -> None:
    """Not taken for as fast as the best one, which would then count as a measure for others."""
    latency = {it.digest: virtual_latency(workload, it) for it in candidates}
    fast, *_, crashing, slow = sorted(candidates, key=lambda it: latency[it.digest])
    where = {"tile": crashing.config["tile"]}
    measurer = make_measurer({"fault": "crash", "phase": "run", "where": where}, workers=1)
    first, second, third, last = measurer.measure([slow, fast, crashing, *candidates[:1]])
    assert third.status == "crash"
    for candidate, outcome in ((slow, first), (fast, second), (candidates[0], last)):
        assert outcome.latency == latency[candidate.digest] and outcome.drift == 1.0
