"""Every way to end a worker leaves nothing: no process, no descriptor, no file."""

from __future__ import annotations

import itertools
import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from process_facts import becomes_true, children_of, open_descriptors, session_members, zombies_of
from scripted_workers import ENDS, HELLO, StartChild, hear, listen
from thinning import thinned

from autotune import process
from autotune.process import WorkerDied, WorkerProcess, WorkerStartFailed, encode, worker_process
from autotune.process.processes import is_exiting, ready

FAMILY = ["child", "group", "daemon", "nameless", "stopped", "begetter"]


@pytest.mark.parametrize("then", [then for then in ENDS if then not in ("stop", "hang")])
def test_how_it_ended_is_told(start_child: StartChild, then: str) -> None:
    worker = start_child(say=encode(HELLO).hex(), then=then)
    messages, how = listen(worker)
    assert messages == [HELLO]
    assert how.splitlines()[0] == ENDS[then]
    assert ("scripted: an error" in how) == (then == "raise")
    # Not pushed out by the report of the fault, whose length is that of the paths in it.
    assert ("scripted: last words\nFatal Python error" in how) == (then == "crash-deep")
    assert ("scripted_child.py" in how) == (then in ("raise", "crash", "crash-deep"))
    assert len(how) < 2100
    assert worker.end() == ""
    assert not worker.alive


@pytest.mark.parametrize("then", ["leave", "close"])
def test_one_that_ends_is_waited_for_however_long_that_takes(
    start_child: StartChild, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """Its pipe closes before it has ended; that of one which lives on tells nothing."""
    worker = start_child(say=encode(HELLO).hex(), wait=True, then=then)
    hear(worker)
    pid, patience = worker.pid, list[float]()
    finished = WorkerProcess.finished

    def noted(process: WorkerProcess, seconds: float = 0.0) -> bool:
        patience.append(seconds)
        return finished(process, seconds)

    worker.send({})
    assert becomes_true(lambda: ready(worker.fileno(), select.POLLIN, 0))
    assert is_exiting(pid) == (then == "leave")
    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "finished", noted)
        assert worker.end() == ENDS[then]
    assert max(patience[:2]) == (worker_process._ENDING_SECONDS if then == "leave" else 0.0)
    assert is_exiting(pid)


@pytest.mark.parametrize("then", ["kill", "leave", "hang", "close"])
def test_descendants_go_with_their_worker_wherever_they_are(
    start_child: StartChild, then: str
) -> None:
    worker = start_child(beget=FAMILY, say=encode(HELLO).hex(), wait=True, then=then)
    hear(worker)
    assert len(session_members(worker.pid)) >= 2
    assert len(children_of(worker.keeper_pid)) == 2  # the daemon, forked twice, is its child now
    nameless = f"sleep {600 + worker.pid}"
    assert becomes_true(lambda: _processes_of(nameless))
    worker.send({})
    _, how = listen(worker, 0.3 if then in ("hang", "close") else 300)
    assert how == ENDS[then]
    # It was found although nothing about it names the folder.
    assert not _processes_of(nameless)


def _processes_of(command: str) -> list[int]:
    found = subprocess.run(["pgrep", "-fx", command], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.parametrize(
    ("number", "beget"),
    thinned(
        itertools.product(
            [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV],
            [["child", "group", "daemon", "stopped"], []],
        ),
        2,
    ),
)
def test_a_worker_that_is_killed_from_outside(
    start_child: StartChild, number: signal.Signals, beget: list[str]
) -> None:
    worker = start_child(beget=beget, say=encode(HELLO).hex(), then="hang")
    hear(worker)
    os.kill(worker.pid, number)
    assert listen(worker)[1].splitlines()[0] == f"killed by {number.name}"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "its keeper was killed by SIGKILL"),
        (signal.SIGTERM, "made to end from outside"),
        (signal.SIGHUP, "made to end from outside"),
    ],
)
def test_a_keeper_that_is_killed_from_outside(
    start_child: StartChild, number: signal.Signals, words: str
) -> None:
    worker = start_child(
        beget=["child", "group", "daemon", "stopped"], say=encode(HELLO).hex(), then="hang"
    )
    hear(worker)
    # By another process than the host.
    subprocess.run(["kill", f"-{int(number)}", str(worker.keeper_pid)], check=True)
    assert listen(worker)[1] == words


def test_a_keeper_that_is_stopped_from_outside_is_woken(start_child: StartChild) -> None:
    worker = start_child(beget=["daemon"], say=encode(HELLO).hex(), then="hang")
    hear(worker)
    os.kill(worker.keeper_pid, signal.SIGSTOP)
    assert worker.end() == "killed by its host"


def test_a_keeper_that_does_not_answer_is_killed(
    start_child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.process.worker_process._PATIENCE_SECONDS", 0.2)
    # As if somebody stopped it again and again.
    monkeypatch.setattr(signal, "SIGCONT", signal.SIGURG)
    worker = start_child(beget=["daemon"], say=encode(HELLO).hex(), then="hang")
    hear(worker)
    os.kill(worker.keeper_pid, signal.SIGSTOP)
    assert worker.end() == "killed by its host"


def test_orphans_do_not_stay_zombies(start_child: StartChild) -> None:
    worker = start_child(beget=["daemon", "daemon"], say=encode(HELLO).hex(), then="hang")
    hear(worker)
    daemons = [pid for pid in children_of(worker.keeper_pid) if pid != worker.pid]
    assert len(daemons) == 2
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)
    assert becomes_true(lambda: children_of(worker.keeper_pid) == [worker.pid])
    assert worker.alive


@pytest.mark.parametrize(
    "garbage",
    [b"hello, world", b"\0" * 64, encode({"phase": 7}), encode({}), encode({"done": [1]})],
)
def test_garbage_shows_after_what_came_before_it(start_child: StartChild, garbage: bytes) -> None:
    say = encode(HELLO) + garbage + encode({"done": {}})
    messages, how = listen(start_child(say=say.hex(), then="hang"))
    assert messages == [HELLO]
    assert how.startswith("sent something that is not a message")


def test_a_worker_that_has_been_ended_is_not_talked_to(start_child: StartChild) -> None:
    worker = start_child(say=encode(HELLO).hex(), then="hang")
    worker.end()
    with pytest.raises(WorkerDied, match="has been ended"):
        worker.receive()
    with pytest.raises(WorkerDied, match="has been ended"):
        worker.send({})


def test_a_worker_that_does_not_read(
    start_child: StartChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.process.worker_process._SEND_SECONDS", 0.1)
    worker = start_child(say=encode(HELLO).hex(), then="hang")
    with pytest.raises(WorkerDied, match="does not read"):
        worker.send({"text": "x" * (1 << 20)})


def test_no_module_beside_the_keeper_hides_one_of_the_standard_library() -> None:
    # The keeper is run as a script: where it lies is searched first.
    names = {path.stem for path in Path(process.__file__).parent.iterdir()}
    assert names.isdisjoint(sys.stdlib_module_names)


# --- nothing is inherited, nothing leaks ------------------------------------------------------


def test_no_descriptor_of_the_host_is_inherited(start_child: StartChild, tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        os.set_inheritable(file.fileno(), True)
        other = start_child(say=encode(HELLO).hex(), then="hang")
        worker = start_child(say=encode(HELLO).hex(), then="hang")
        hear(worker)
        # It may still be writing a file of its own.
        assert becomes_true(
            lambda: sorted(_kinds(worker.pid)) == ["/dev/null", *["/memfd"] * 2, *["pipe"] * 2]
        )
        # The worker may be ahead of its keeper, which closes what is only the worker's.
        assert becomes_true(
            lambda: sorted(_kinds(worker.keeper_pid)) == ["/dev/null", *["/memfd"] * 2, "pipe"]
        )
        theirs = open_descriptors(worker.pid)
        hear(other)
        shared = set(theirs.values()) & set(open_descriptors(other.pid).values())
        assert not any("pipe" in what for what in shared)


def _kinds(pid: int) -> list[str]:
    """Kinds of the descriptors of a process."""
    return [what.partition(":")[0] for what in open_descriptors(pid).values()]


@pytest.mark.slow
def test_two_hundred_generations_leave_nothing(start_child: StartChild) -> None:
    thens = ["leave", "kill", "crash", "terminate", "hang", "stop"]
    for number in range(200):
        worker = start_child(say=encode(HELLO).hex(), then=thens[number % len(thens)])
        hear(worker)
        worker.end()
        assert zombies_of(os.getpid()) == []
        if number == 10:
            early = open_descriptors()
    assert open_descriptors().items() <= early.items()


def test_descriptors_beyond_what_select_knows(start_child: StartChild) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    many = [os.dup(0) for _ in range(1100)]
    try:
        worker = start_child(say=encode(HELLO).hex(), then="leave")
        assert listen(worker) == ([HELLO], ENDS["leave"])
    finally:
        for descriptor in many:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_worker_that_cannot_be_started_leaves_nothing(
    start_child: StartChild, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "missing"))
    with pytest.raises(WorkerStartFailed, match="cannot start a worker process.*No such file"):
        start_child(then="hang")
    (tmp_path / "workers").rmdir()
    with pytest.raises(WorkerStartFailed, match="cannot write temporary files.*TMPDIR"):
        start_child(then="hang")
    (tmp_path / "workers").mkdir()
