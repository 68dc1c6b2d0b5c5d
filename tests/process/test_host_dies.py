"""A host may die at any moment: nothing that it started goes on, and no file of it stays."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from process_facts import becomes_true, children_of
from python_processes import start_python
from scripted_workers import HELLO, hear
from thinning import thinned

from autotune.process import WorkerProcess, encode, make_private_folder
from autotune.process.processes import marked_processes
from autotune.process.stale_folders import remove_stale_folders
from autotune.testing.reference_backend import SIMULATED_NATIVE

HOST = """
import json, os, sys, time
from autotune.process import WorkerProcess, encode, make_private_folder
folder = make_private_folder()
plan = {"beget": ["child", "group", "daemon", "stopped"], "then": "hang"}
workers = []
for number in range(3):
    path = folder.path / f"worker-{number}"
    worker = WorkerProcess("scripted_child", {"plan": json.dumps(plan)}, 1, {}, 1 << 30, path)
    workers.append(worker)
if "holding" in sys.argv and os.fork() == 0:  # holds the lock as a thread that is slow to die does
    time.sleep(60)
print(*[worker.keeper_pid for worker in workers], flush=True)
time.sleep(60)
"""


TUNE = (
    *("-m", "autotune", "tune", "gemm", "--shape", "m=64,n=64,k=64", "--threads", "1", "--quiet"),
    *("--backend", SIMULATED_NATIVE, "--round-size", "8", "--trials", "100000"),
)
KILLS = 60


def others(folder: Path) -> list[int]:
    """Processes below the folder of a host, which itself has the folder as it is."""
    return [pid for path in folder.iterdir() for pid in marked_processes(path)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.promise(
    "a host that is killed while workers run",
    "no process and no folder stays",
)
def test_nothing_is_left_of_a_host_that_worked(tmp_path: Path, number: signal.Signals) -> None:
    with start_python("-c", HOST, TMPDIR=str(tmp_path)) as host:
        assert host.stdout is not None
        host.stdout.readline()
        # Three keepers, workers, and four more of each.
        assert becomes_true(lambda: len(others(tmp_path)) == 3 * 6)
        host.send_signal(number)
    assert becomes_true(lambda: not marked_processes(tmp_path))
    # Not even a later host is needed.
    assert becomes_true(lambda: not list(tmp_path.iterdir()))


def test_the_folder_goes_however_long_a_dying_host_holds_its_lock(tmp_path: Path) -> None:
    with start_python("-c", HOST, "holding", TMPDIR=str(tmp_path)) as host:
        assert host.stdout is not None
        keepers = [int(word) for word in host.stdout.readline().split()]
        (holder,) = (pid for pid in children_of(host.pid) if _argument(pid) == "holding")
        host.kill()
    # Workers and their folders are gone, and keepers find again and again that the lock is held.
    assert becomes_true(lambda: [path.name for path in tmp_path.glob("*/*")] == ["lock"])
    before = {pid: _waits_of(pid) for pid in keepers}
    assert becomes_true(lambda: all(_waits_of(pid) >= before[pid] + 5 for pid in keepers))
    (left,) = tmp_path.iterdir()
    os.kill(holder, signal.SIGKILL)
    assert becomes_true(lambda: not left.exists())


def _argument(pid: int) -> str:
    """The last argument of a process."""
    return Path("/proc", str(pid), "cmdline").read_text().rstrip("\0").rpartition("\0")[2]


def _waits_of(pid: int) -> int:
    """Number of times that a process has given up its CPU to wait for something."""
    status = Path("/proc", str(pid), "status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


@pytest.mark.parametrize("ends", ["worker", "thread"])
def test_the_folder_of_a_host_that_lives_stays(tmp_path: Path, ends: str) -> None:
    """Also when the thread has ended that started the worker."""
    folder = make_private_folder()
    started: list[WorkerProcess] = []
    plan = {"plan": json.dumps({"say": encode(HELLO).hex(), "then": "hang"})}

    def start() -> None:
        worker = WorkerProcess("scripted_child", plan, 1, {}, 1 << 30, folder.path / "worker")
        started.append(worker)
        hear(worker)

    if ends == "worker":
        start()
    else:
        starter = threading.Thread(target=start)
        starter.start()
        starter.join()
        assert becomes_true(lambda: not started[0].alive)
    started[0].end()
    assert [path.name for path in folder.path.iterdir()] == ["lock"]
    folder.remove()


@pytest.mark.long
def test_the_folders_of_killed_runs_are_gone_in_time(tmp_path: Path) -> None:
    """Real runs, killed at random moments while the machine has other work."""
    moments, waited, killed = random.Random(1), [0.0], 0
    with ExitStack() as ending:
        for _ in range(3):
            busy = ending.enter_context(start_python("-c", "while True: pass"))
            ending.callback(busy.kill)
        for case in range(KILLS):
            folder = tmp_path / str(case)
            (folder / "temporary").mkdir(parents=True)
            with start_python(*TUNE, cwd=folder, TMPDIR=str(folder / "temporary")) as run:
                time.sleep(moments.uniform(0.8, 14))
                killed += run.poll() is None
                run.kill()
            began = time.monotonic()
            assert becomes_true(lambda it=folder: not any((it / "temporary").iterdir())), case
            waited.append(time.monotonic() - began)
    print(f"{killed} runs were killed; their folders were there for {max(waited):.1f} s at most")
    assert killed == KILLS


@pytest.mark.parametrize("number", thinned([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], 3))
def test_a_host_that_dies_at_any_moment(tmp_path: Path, number: signal.Signals) -> None:
    moments = random.Random(int(number))
    for case in range(8):
        folder = tmp_path / str(case)
        folder.mkdir()
        die_after(moments.uniform(0, 0.15), number, folder)
        # Not even a later host is needed.
        assert becomes_true(lambda it=folder: not list(it.iterdir())), case


def die_after(seconds: float, number: signal.Signals, folder: Path) -> None:
    """Start a host and send it a signal so long after it has begun to make its folder."""
    with start_python("-c", HOST, TMPDIR=str(folder)) as host:
        assert becomes_true(lambda: list(folder.iterdir()))
        time.sleep(seconds)
        host.send_signal(number)
    assert becomes_true(lambda: not marked_processes(folder))


def test_what_outlives_host_and_keepers_ends_with_the_next_host(tmp_path: Path) -> None:
    with start_python("-c", HOST, TMPDIR=str(tmp_path)) as host:
        assert host.stdout is not None
        keepers = [int(word) for word in host.stdout.readline().split()]
        assert becomes_true(lambda: len(others(tmp_path)) == 3 * 6)
        host.send_signal(signal.SIGSTOP)
        for pid in keepers:
            os.kill(pid, signal.SIGKILL)
        host.kill()
    # Workers die with their keepers; of what they started, nobody knows.
    assert becomes_true(lambda: len(marked_processes(tmp_path)) == 3 * 4)
    (left,) = tmp_path.iterdir()
    assert remove_stale_folders(tmp_path) == [left]
    assert marked_processes(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
