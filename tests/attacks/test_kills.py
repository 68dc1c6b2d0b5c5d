"""A tuner that is killed at any moment loses no record, repeats none, and leaves nothing."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from attack_cases import sampled
from process_facts import becomes_true
from tuner_processes import TUNE_FOR_REAL, Stored, finish, start, wait_for_records

from autotune.process.processes import marked_processes

pytestmark = pytest.mark.attack("kill")

TRIALS = 12
KILLS = 100
CASES = {f"kill {seed}": seed for seed in range(KILLS)}


@pytest.mark.parametrize("seed", sampled(CASES, now=1, slow=4, least=KILLS))
@pytest.mark.promise(
    "a tuner that is killed at any moment",
    "no record is lost or there twice, no process or folder stays, and the run is resumed",
)
def test_a_killed_tuner(
    seed: int, tmp_path: Path, verdict: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    temporary, database = tmp_path / "temporary", tmp_path / "records.db"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    command = (*TUNE_FOR_REAL, "--quiet", "--trials", str(TRIALS))
    process = start(tmp_path, *command)
    if seed % 2:
        wait_for_records(database, rng.randrange(1, TRIALS), process)
        time.sleep(rng.random() * 0.1)
    else:
        # Before the first record: while it starts, makes its folder, opens its database.
        time.sleep(rng.random() * 2)
    was_killed = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.communicate()
    assert becomes_true(lambda: not marked_processes(temporary))
    assert becomes_true(lambda: not list(temporary.iterdir()))
    before = len(Stored.read(database).records) if database.exists() else 0
    finish(start(tmp_path, *command))
    stored = Stored.read(database)
    assert len(stored.records) == TRIALS >= before
    assert [run.status for run in stored.runs] == ["finished"]
    assert list(temporary.iterdir()) == []
    verdict("resumed" if was_killed else "finished before")
