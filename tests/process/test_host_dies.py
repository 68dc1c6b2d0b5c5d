"""A host may die at any moment: nothing that it started goes on, and no file of it stays."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from process_facts import becomes_true
from python_processes import start_python
from thinning import thinned

from autotune.process.private_folder import remove_stale_folders
from autotune.process.processes import marked_processes

HOST = """
import json, time
from autotune.process import WorkerProcess, make_private_folder
folder = make_private_folder()
plan = {"beget": ["child", "group", "daemon", "stopped"], "then": "hang"}
workers = []
for number in range(3):
    path = folder.path / f"worker-{number}"
    worker = WorkerProcess("scripted_child", {"plan": json.dumps(plan)}, 1, {}, 1 << 30, path)
    workers.append(worker)
print(*[worker.keeper_pid for worker in workers], flush=True)
time.sleep(60)
"""


def others(folder: Path) -> list[int]:
    """Processes below the folder of a host, which itself has the folder as it is."""
    return [pid for path in folder.iterdir() for pid in marked_processes(path)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_of_a_host_that_worked(tmp_path: Path, number: signal.Signals) -> None:
    with start_python("-c", HOST, TMPDIR=str(tmp_path)) as host:
        assert host.stdout is not None
        host.stdout.readline()
        # Three keepers, workers, and four more of each.
        assert becomes_true(lambda: len(others(tmp_path)) == 3 * 6)
        host.send_signal(number)
    assert becomes_true(lambda: not marked_processes(tmp_path))
    # Not even a later host is needed.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", thinned([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], 3))
def test_a_host_that_dies_at_any_moment(tmp_path: Path, number: signal.Signals) -> None:
    moments = random.Random(int(number))
    for case in range(8):
        folder = tmp_path / str(case)
        folder.mkdir()
        die_after(moments.uniform(0, 0.15), number, folder)
        for path in folder.iterdir():
            # Killed before it held its lock, or its last keeper was too early: then it is for
            # the next host, which leaves alone what may just be being made.
            os.utime(path, (0, 0))
        remove_stale_folders(folder)
        assert list(folder.iterdir()) == []


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
