"""Faults with real processes: the outcome is recorded, the rest of the batch is measured."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from patient_clock import PatientClock
from process_facts import becomes_true, session_members
from python_processes import start_python
from thinning import thinned

from autotune.ir.workloads import Workload
from autotune.measure import LocalMeasurer, MeasureProtocol, WorkerStartFailed
from autotune.sketches import Candidate
from autotune.store.records import Outcome
from autotune.targets import Target
from autotune.testing.reference_backend import SIMULATED_NATIVE, virtual_latency

MakeMeasurer = Callable[..., LocalMeasurer]


def processes_with_folder(folder: Path) -> set[int]:
    """Every process that runs with its temporary files below ``folder``."""
    found = set()
    for entry in os.listdir("/proc"):
        try:
            environment = Path("/proc", entry, "environ").read_bytes()
        except OSError:
            continue
        if f"TMPDIR={folder}/".encode() in environment:
            found.add(int(entry))
    return found


@pytest.fixture
def backend_name() -> str:
    """Candidates are compiled."""
    return SIMULATED_NATIVE


@pytest.fixture(autouse=True)
def _leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []
    assert processes_with_folder(folder) == set()


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]


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


@pytest.mark.parametrize(
    ("fault", "words"),
    thinned(
        [
            ("crash", ["killed by SIGSEGV", "scripted: last words"]),
            ("kill", ["killed by SIGKILL"]),
            ("exit", ["exited with status 3"]),
            ("garbage", ["not a message"]),
        ],
        4,
    ),
)
def test_death(
    make_measurer: MakeMeasurer, candidates: list[Candidate], fault: str, words: list[str]
) -> None:
    phases = {2: "build", 4: "load", 6: "verify", 8: "run"}
    measurer = make_measurer(
        *({"fault": fault, "phase": phases[tile], "where": {"tile": tile}} for tile in phases)
    )
    outcomes = measurer.measure(candidates)
    for tile, outcome in enumerate(outcomes, start=1):
        if tile not in phases:
            assert outcome.status == "ok"
            continue
        assert outcome.status == "crash"
        for word in [f"failed during {phases[tile]}", *words]:
            assert word in outcome.message
        assert phases[tile] in outcome.timings


def test_a_grandchild_goes_with_its_worker(
    make_measurer: MakeMeasurer, quick: MeasureProtocol, candidates: list[Candidate]
) -> None:
    fault = {"fault": "grandchild", "phase": "run", "where": {"tile": 1}}
    measurer = make_measurer(fault, protocol=quick, clock=PatientClock())
    measurer.wait_ready()
    sessions = measurer.worker_pids
    measurer.measure(candidates[:2])
    alive = [session for session in sessions if session_members(session)]
    assert len(alive) == 1
    assert alive[0] in measurer.worker_pids


FAILURES = {
    2: ("invalid", None, "invalid", ["step tile cannot be applied"]),
    3: ("build_error", None, "build_error", ["BuildFailed", "the compiler rejects this"]),
    4: ("exception", None, "build_error", ["RuntimeError", "no known kind"]),
    5: ("wrong", None, "wrong_result", ["1 of 64 elements", "largest error 1 ", "allowed"]),
    6: ("nothing", None, "wrong_result", ["64 of 64 elements", "nan"]),
    7: ("exception", "load", "crash", ["RuntimeError"]),
    8: ("exception", "verify", "crash", ["RuntimeError"]),
    9: ("exception", "run", "crash", ["RuntimeError"]),
}
"""By ``tile``: the fault and its phase, and the outcome with words of its message."""


def test_failures_without_a_death(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    measurer = make_measurer(
        *(
            {"fault": fault, "where": {"tile": tile}} | ({"phase": phase} if phase else {})
            for tile, (fault, phase, _, _) in FAILURES.items()
        )
    )
    measurer.wait_ready()
    before = measurer.worker_pids
    outcomes = measurer.measure(candidates)
    assert statuses(outcomes) == ["ok", *(status for _, _, status, _ in FAILURES.values()), "ok"]
    for tile, (_, _, _, words) in FAILURES.items():
        for word in words:
            assert word in outcomes[tile - 1].message
    assert measurer.worker_pids == before


@pytest.mark.slow
def test_everything_fails(make_measurer: MakeMeasurer, candidates: list[Candidate]) -> None:
    measurer = make_measurer({"fault": "kill", "phase": "run", "every": 1})
    assert statuses(measurer.measure(candidates[:4])) == ["crash"] * 4


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


def test_an_interrupt_in_the_callback_leaves_the_measurer_usable(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    measurer = make_measurer()

    def interrupt(index: int, outcome: Outcome) -> None:
        if index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measurer.measure(candidates, interrupt)
    assert statuses(measurer.measure(candidates)) == ["ok"] * 10


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


HOST = """
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
    script = HOST.replace("FAULT", fault).replace("THEN", then)
    with start_python("-c", script, TMPDIR=str(folder)) as host:
        assert host.stdout is not None
        workers = [int(word) for word in host.stdout.readline().split()]
        assert len(workers) == 2
        if number is not None:
            time.sleep(0.3)
            host.send_signal(number)
        host.wait(timeout=300)
    assert becomes_true(lambda: not any(map(session_members, workers)))
    assert becomes_true(lambda: not processes_with_folder(folder))
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


NO_LATENCIES = [-1, 0, float("inf"), float("nan"), None, "fast", True, [1e-3]]


def test_a_time_that_is_no_latency_is_an_outcome(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    faults: list[dict[str, object]] = [
        {"fault": "time", "value": value, "where": {"tile": tile}}
        for tile, value in enumerate(NO_LATENCIES, 2)
    ]
    with make_measurer(*faults) as measurer:
        outcomes = measurer.measure(candidates)
    assert statuses(outcomes) == ["ok", *["crash"] * len(NO_LATENCIES), "ok"]
    for value, outcome in zip(NO_LATENCIES, outcomes[1:], strict=False):
        assert "NotALatency: time() returned" in outcome.message
        assert f"{type(value).__name__} {value!r}, not a finite" in outcome.message


NO_DIGESTS = [None, 7, "\ud800", "x" * 201]


def test_a_digest_that_is_no_text_is_an_outcome(
    make_measurer: MakeMeasurer, candidates: list[Candidate]
) -> None:
    faults: list[dict[str, object]] = [
        {"fault": "digest", "value": digest, "where": {"tile": tile}}
        for tile, digest in enumerate(NO_DIGESTS, 2)
    ]
    with make_measurer(*faults) as measurer:
        outcomes = measurer.measure(candidates[:6])
    assert statuses(outcomes) == ["ok", *["build_error"] * len(NO_DIGESTS), "ok"]
    for digest, outcome in zip(NO_DIGESTS, outcomes[1:], strict=False):
        said = f"the digest of the executable is {repr(digest)[:80]}; a digest is printable text"
        assert said in outcome.message
