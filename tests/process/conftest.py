from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from process_facts import children_of, open_descriptors
from scripted_workers import StartChild

from autotune.process import WorkerProcess, prepare_workers
from autotune.process.processes import marked_processes


@pytest.fixture
def start_child(tmp_path: Path) -> Iterator[StartChild]:
    """Starts scripted children; at the end nothing of any of them is left."""
    folder = tmp_path / "workers"
    folder.mkdir()
    numbers = itertools.count()
    started = []
    # The process that workers are forked from stays for the next ones.
    prepare_workers()
    before = {*children_of(os.getpid())}, open_descriptors()

    def start(**plan: Any) -> WorkerProcess:
        options = {"plan": json.dumps(plan)}
        path = folder / f"worker-{next(numbers)}"
        started.append(WorkerProcess("scripted_child", options, 1, {}, 1 << 30, path))
        return started[-1]

    yield start
    for worker in started:
        worker.end()
    assert marked_processes(folder) == []
    assert list(folder.iterdir()) == []
    # Nothing is there that was not before. Less may be: a process to fork from, with its socket.
    assert {*children_of(os.getpid())} <= before[0]
    assert open_descriptors().items() <= before[1].items()
