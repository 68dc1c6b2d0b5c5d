"""``autotune tune``: results, bad input, faults, interrupts."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_lines import TUNE
from thinning import thinned
from tuner_processes import count_records, wait_for_records

from autotune.process.stopwatch import ACTIVITIES
from autotune.store.records import OUTCOME_STATUSES
from autotune.testing.reference_backend import SCRIPT_VARIABLE


def test_a_run_shows_a_table_and_writes_json(cli: Any) -> None:
    done = cli.tune_with_workers(
        "--trials", "20", "--database", "records.db", "--json", "out.json"
    )
    assert done.status == 0, done.stderr
    for text in (
        "gemm m=8 n=8 k=8 float32",
        "naive loop nest (ReferenceBackend)",
        "tuned",
        "20 ok",
    ):
        assert text in done.stdout
    assert "records.db" in done.stdout and "start-up" in done.stdout
    assert "20/20 trials" in done.stderr and "naive loop nest: " in done.stderr
    report = json.loads((cli.folder / "out.json").read_text())
    assert report["schema"] == "autotune.result" and report["version"] == 1
    assert report["strategy"] == "evolutionary" and report["seed"] == 0
    assert report["trials"] == len(report["history"]) == 20
    assert set(report["outcomes"]) == set(OUTCOME_STATUSES)
    assert set(report["seconds"]) == {*ACTIVITIES, "total"}
    parts = sum(report["seconds"][name] for name in ACTIVITIES)
    assert parts == pytest.approx(report["seconds"]["total"])
    assert report["baseline"]["latency"] > report["best"]["latency"] > 0
    assert report["history"][-1] == [19, report["history"][-1][1], report["best"]["latency"]]
    assert report["best"]["config"] and report["best"]["sketch"]["steps"]


def test_the_same_command_answers_from_the_records(cli: Any) -> None:
    first = cli.tune("--json", "1.json")
    again = cli.tune("--json", "2.json")
    assert first.status == again.status == 0
    assert "answered from records" in again.stdout and "answered from run" in again.stderr
    one, two = (json.loads((cli.folder / name).read_text()) for name in ("1.json", "2.json"))
    assert two["run"]["from_records"] and not one["run"]["from_records"]
    assert {**one, "run": 0} == {**two, "run": 0}
    assert "answered" not in cli.tune("--fresh", "--trials", "8").stdout


def test_json_on_standard_output_is_all_of_it(cli: Any) -> None:
    done = cli.tune("--trials", "4", "--json", "-", "--quiet")
    assert json.loads(done.stdout)["trials"] == 4
    assert "naive loop nest" in done.stderr


def test_runs_are_listed_with_what_they_tuned(cli: Any) -> None:
    assert cli.tune("--trials", "2", "--quiet").status == 0
    (run,) = json.loads(cli("records", "runs", "--json", "-").stdout)
    (name,) = run["tasks"]
    assert name.startswith("gemm m=") and name in cli("records", "runs").stdout


def test_strategy_options_and_round_size(cli: Any) -> None:
    options = ("--strategy-option", "epsilon=0.5", "--strategy-option", "population=16")
    done = cli.tune(*options, "--round-size", "4", "--trials", "8")
    assert done.status == 0, done.stderr
    assert "4/8 trials" in done.stderr and "8/8 trials" in done.stderr


def test_options_of_the_cost_model_are_its_own(cli: Any) -> None:
    done = cli.tune("--cost-model-option", "x=1", "--json", "out.json")
    assert done.status == 2 and not (cli.folder / "out.json").exists()
    assert "cost model 'random' has no option 'x'; allowed: none" in done.stderr


def test_no_valid_candidate_is_status_1(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [{"fault": "build_error", "every": 1}]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"faults": faults}))
    done = cli.tune_with_workers("--trials", "10", "--json", "out.json")
    assert done.status == 1
    assert "warning: the first 8 candidates all ended in build_error" in done.stderr
    assert "none of 10 candidates was valid (10 build_error)" in done.stderr.splitlines()[-1]
    assert json.loads((cli.folder / "out.json").read_text())["best"] is None


@pytest.mark.slow
def test_the_final_message_counts_failures(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [
        {"fault": "crash", "every": 4, "offset": 0},
        {"fault": "wrong", "every": 4, "offset": 1},
        {"fault": "invalid", "every": 4, "offset": 2},
    ]
    monkeypatch.setenv(SCRIPT_VARIABLE, json.dumps({"faults": faults}))
    done = cli.tune_with_workers("--trials", "24", "--json", "out.json")
    assert done.status == 0, done.stderr
    outcomes = json.loads((cli.folder / "out.json").read_text())["outcomes"]
    for status in ("ok", "crash", "wrong_result", "invalid"):
        assert outcomes[status] > 0
        assert f"{outcomes[status]} {status}" in done.stdout


@pytest.mark.parametrize("number", thinned([signal.SIGINT, signal.SIGTERM], 2))
def test_an_interrupt_says_how_to_go_on_and_the_same_command_does(
    spawn: Any, cli: Any, tmp_path: Path, number: int
) -> None:
    command = [*TUNE, "--trials", "48", "--database", "records.db", "--json", "out.json"]
    process = spawn(*command, **{SCRIPT_VARIABLE: json.dumps({"build_seconds": 0.2})})
    wait_for_records(tmp_path / "records.db", 3, process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    last = stderr.splitlines()[-1]
    assert "interrupted after" in last and "the same command resumes the run" in last
    assert "Traceback" not in stderr
    assert _processes_of(process.pid) == []
    stored = count_records(tmp_path / "records.db")
    assert 3 <= stored < 48
    finished = cli(*command)
    assert finished.status == 0, finished.stderr
    assert "resuming run" in finished.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["trials"] == 48 and report["cached"] == 0
    assert count_records(tmp_path / "records.db") == 48
    assert _runs(tmp_path / "records.db") == 1


def test_a_killed_run_is_resumed(spawn: Any, cli: Any, tmp_path: Path) -> None:
    command = [*TUNE, "--trials", "40", "--database", "records.db", "--json", "out.json"]
    process = spawn(*command, **{SCRIPT_VARIABLE: json.dumps({"build_seconds": 0.2})})
    wait_for_records(tmp_path / "records.db", 10, process)
    process.kill()
    process.communicate(timeout=300)
    finished = cli(*command)
    assert finished.status == 0, finished.stderr
    assert count_records(tmp_path / "records.db") == 40
    assert _runs(tmp_path / "records.db") == 1


def _runs(path: Path) -> int:
    return _query(path, "SELECT count(*) FROM runs")


def _query(path: Path, query: str) -> int:
    connection = sqlite3.connect(path, timeout=10)
    try:
        return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError:  # the tables are just being made
        return 0
    finally:
        connection.close()


def _processes_of(session: int) -> list[str]:
    """Processes whose parent was the given one; its workers have sessions of their own."""
    done = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True)
    lines = (line.split(maxsplit=1) for line in done.stdout.splitlines()[1:])
    return [args for ppid, args in lines if int(ppid) == session]
