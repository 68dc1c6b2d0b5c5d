"""Several real processes that tune into one database at once."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from toy_parts import TOY_SPACE
from tuner_processes import TUNE, Stored, finish, start, stop, wait_for_records

TRIALS = 24
TRIALS_OF_SEVERAL = 40
# A small space: the runs come upon the same candidates.
CHEAP = (
    *(*TUNE, "--quiet", "--space", TOY_SPACE),
    *("--cost-model", "random", "--pruning-model", "none"),
)


@pytest.mark.slow
def test_runs_of_other_seeds_share_a_database(tmp_path: Path) -> None:
    """A run is killed in between, and gone on with, while the others are at work."""
    commands = [
        (*CHEAP, "--trials", str(TRIALS_OF_SEVERAL), "--seed", str(seed)) for seed in range(3)
    ]
    processes = [start(tmp_path, *command) for command in commands]
    wait_for_records(tmp_path / "records.db", 20, processes[0])
    stop(processes[0], signal.SIGKILL)
    processes[0] = start(tmp_path, *commands[0])
    for process in processes:
        finish(process)
    stored = Stored.read(tmp_path / "records.db")
    assert sorted(run.seed for run in stored.runs) == [0, 1, 2]
    for run in stored.runs:
        assert run.status == "finished"
        (log,) = stored.logs(run)
        assert len(log) == TRIALS_OF_SEVERAL
        measured = [it for it in stored.records if it.run_id == run.run_id]
        assert len(measured) == sum(not entry[4] for entry in log)


@pytest.mark.slow
def test_the_same_command_twice_at_once_is_two_runs(tmp_path: Path) -> None:
    command = (*CHEAP, "--trials", str(TRIALS))
    for process in [start(tmp_path, *command), start(tmp_path, *command)]:
        assert "goes on" not in finish(process)
    stored = Stored.read(tmp_path / "records.db")
    logs = [stored.logs(run)[0] for run in stored.runs]
    assert [len(log) for log in logs] in ([TRIALS, TRIALS], [TRIALS])
    assert len({tuple(entry[0] for entry in log) for log in logs}) == 1


@pytest.mark.slow
def test_one_of_several_goes_on_with_a_run_that_was_killed(tmp_path: Path) -> None:
    command = (*CHEAP, "--trials", str(TRIALS))
    process = start(tmp_path, *command)
    wait_for_records(tmp_path / "records.db", 10, process)
    stop(process, signal.SIGKILL)
    (killed,) = Stored.read(tmp_path / "records.db").runs
    assert killed.status == "running"
    for process in [start(tmp_path, *command) for _ in range(3)]:
        finish(process)
    stored = Stored.read(tmp_path / "records.db")
    assert stored.runs[0].run_id == killed.run_id
    assert {run.status for run in stored.runs} == {"finished"}
    for run in stored.runs:
        (log,) = stored.logs(run)
        assert len(log) == TRIALS
