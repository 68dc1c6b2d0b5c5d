"""Real tuning processes that are killed at any moment, and gone on with."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from tuner_processes import PATIENCE, TUNE, Stored, finish, start, stop, wait_for_records

TRIALS = 36
COMMAND = (*TUNE, "--quiet", "--trials", str(TRIALS))

FOUR_TASKS = """
import sys
from autotune.tuning import api
from autotune.tuning.programs import Task
from autotune.ir.workloads.builders import gemm
from autotune.testing.reference_backend import SIMULATED_NATIVE

if __name__ == "__main__":
    lookahead, trials = map(int, sys.argv[1:])
    shapes = [(16, 16, 16), (8, 32, 8), (32, 8, 8), (8, 16, 32)]
    tasks = [
        Task(gemm(m=m, n=n, k=k), weight=1.0 + 2.0 * (number == 0))
        for number, (m, n, k) in enumerate(shapes)
    ]
    api.tune_tasks(
        tasks, backend=SIMULATED_NATIVE, threads=1, trials=trials, round_size=6,
        lookahead=lookahead, database="records.db",
    )
"""


def run_in_pieces(
    folder: Path, commands: list[tuple[str, ...]], seed: int, signals: list[int]
) -> int:
    """Run commands that tune more and more; all but the last are stopped by the signals.

    The moments are random, but everybody gets somewhere. Returns how many were stopped before
    they had ended.
    """
    rng, stopped, seen = random.Random(seed), 0, 0
    for command, number in zip(commands, signals, strict=True):
        # Far from its end when it has so many records, although that is seen a little later.
        process = start(folder, *command, build_seconds=0.1)
        seen += rng.randrange(3, 14)
        wait_for_records(folder / "records.db", seen, process)
        time.sleep(rng.random() * 0.2)
        stopped += process.poll() is None
        stop(process, number)
    return stopped


def compare(command: tuple[str, ...], whole: Path, pieces: Path) -> None:
    """Finish the run in ``pieces``, which must then be the one in ``whole``."""
    finish(start(pieces, *command))
    expected, found = (Stored.read(path / "records.db") for path in (whole, pieces))
    (one,), (other,) = expected.runs, found.runs
    assert found.facts(other) == expected.facts(one)
    assert expected.facts(one)["status"] == "finished"
    assert len(expected.facts(one)["records"]) == TRIALS
    assert all(expected.facts(one)["winners"])


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    whole.mkdir()
    pieces.mkdir()
    return whole, pieces


@pytest.mark.slow
@pytest.mark.promise(
    "a run that is stopped again and again",
    "the candidates and results are those of a run that was not",
)
def test_a_command_that_is_killed_again_and_again(folders: tuple[Path, Path]) -> None:
    whole, pieces = folders
    complete = start(whole, *COMMAND)
    smaller = [(*TUNE, "--quiet", "--trials", str(trials)) for trials in (16, TRIALS, 26, TRIALS)]
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT]
    stopped = run_in_pieces(pieces, smaller, 1, signals)
    finish(complete)
    assert stopped >= 2
    compare(COMMAND, whole, pieces)


@pytest.mark.slow
@pytest.mark.promise(
    "a run of several tasks, which share workers, that is killed again and again",
    "the candidates and results of every task are those of a run that was not",
)
@pytest.mark.parametrize("lookahead", [0, 1])
def test_four_tasks_that_are_killed_again_and_again(
    folders: tuple[Path, Path], lookahead: int
) -> None:
    whole, pieces = folders
    for folder in folders:
        (folder / "four_tasks.py").write_text(FOUR_TASKS)
    command = ("four_tasks.py", str(lookahead), str(TRIALS))
    complete = start(whole, *command)
    signals = [signal.SIGKILL, signal.SIGKILL]
    stopped = run_in_pieces(pieces, [command, command], lookahead, signals)
    finish(complete)
    assert stopped >= 1
    compare(command, whole, pieces)


@pytest.mark.slow
def test_a_strategy_that_ends_the_process_is_named_and_its_run_goes_on(tmp_path: Path) -> None:
    command = (*TUNE, "--quiet", "--trials", "24", "--strategy", "ending_strategy:Ending")
    with start(tmp_path, *command) as process:
        said, errors = process.communicate(timeout=PATIENCE)
    assert (said, errors) == (
        "",
        "autotune: error: the process ended in a call: strategy 'random' (ending_strategy) in "
        "ask(); the same call resumes the run\n",
    )
    (left,) = Stored.read(tmp_path / "records.db").runs
    assert left.status == "running"
    finish(start(tmp_path, *command))
    stored = Stored.read(tmp_path / "records.db")
    (run,) = stored.runs
    assert (run.run_id, run.status) == (left.run_id, "finished")
    assert len(stored.facts(run)["logs"][0]) == 24


@pytest.mark.slow
def test_a_run_that_is_killed_after_its_last_trial_is_confirmed(tmp_path: Path) -> None:
    command = (*TUNE, "--quiet", "--trials", "12")
    process = start(tmp_path, *command)
    wait_for_records(tmp_path / "records.db", 12, process)
    stop(process, signal.SIGKILL)
    left = Stored.read(tmp_path / "records.db").runs[0].status
    assert left in ("running", "finished")
    finish(start(tmp_path, *command))
    stored = Stored.read(tmp_path / "records.db")
    (run,) = stored.runs
    assert all(stored.facts(run)["winners"]) and run.status == "finished"
    assert len(stored.records) == 12
