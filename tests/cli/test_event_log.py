"""``--log FILE``: whole lines, appended, and never the end of a run."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS, TUNE
from process_facts import becomes_true
from python_processes import start_python
from small_disk import run_on_small_disk

from autotune.cli.event_log import event_log
from autotune.errors import InvalidValueError
from autotune.testing.reference_backend import SCRIPT_VARIABLE
from autotune.tuning.events import (
    BaselineMeasured,
    RunFinished,
    RunInterrupted,
    RunStarted,
    TrialFinished,
    WarningRaised,
    WorkersReady,
    read_events,
)

EVENT = WarningRaised("task", "words")


def read(path: Path) -> list[Any]:
    with path.open(encoding="utf-8") as file:
        return list(read_events(file))


def test_a_log_holds_every_event_of_a_run(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        SCRIPT_VARIABLE, json.dumps({"faults": [{"fault": "crash", "every": 4, "offset": 0}]})
    )
    before = time.time()
    done = cli.tune_with_workers(
        "--trials", "12", "--quiet", "--log", "run.jsonl", "--json", "out.json"
    )
    assert done.status == 0, done.stderr
    report = json.loads((cli.folder / "out.json").read_text())
    events = read(cli.folder / "run.jsonl")
    assert isinstance(events[0], RunStarted) and isinstance(events[-1], RunFinished)
    assert {WorkersReady, BaselineMeasured} < {type(event) for event in events}
    trials = [event for event in events if isinstance(event, TrialFinished)]
    assert [event.trial for event in trials] == list(range(12))
    assert events[-1].best.latency == report["best"]["latency"] == trials[-1].best
    crashes = sum(event.reason == "crash: SIGSEGV in run" for event in trials)
    assert crashes == report["rejections"]["crash: SIGSEGV in run"]["count"] > 0
    assert f"{crashes} crash: SIGSEGV in run" in done.stdout
    lines = [json.loads(line) for line in (cli.folder / "run.jsonl").read_text().splitlines()]
    times = [line["time"] for line in lines]
    assert before <= times[0] and times == sorted(times) and times[-1] <= time.time()


@pytest.mark.slow
def test_a_resumed_run_goes_on_in_the_same_log(spawn: Any, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    command = [*TUNE, "--trials", "64", "--log", "run.jsonl", "--quiet"]
    slow = {SCRIPT_VARIABLE: json.dumps({"build_seconds": 0.3})}
    first = spawn(*command, **slow)
    assert becomes_true(lambda: _has(log, "trial_finished", 18))
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=300)
    assert first.returncode == 130
    assert isinstance(read(log)[-1], RunInterrupted)
    told = sum(isinstance(event, TrialFinished) for event in read(log))
    second = spawn(*command, **slow)
    assert becomes_true(lambda: _has(log, "trial_finished", told + 10))
    second.kill()
    second.communicate(timeout=300)
    third = spawn(*command)
    _, stderr = third.communicate(timeout=300)
    assert third.returncode == 0, stderr
    events = read(log)
    starts = [event for event in events if isinstance(event, RunStarted)]
    assert len(starts) == 3 and len({event.run_id for event in starts}) == 1
    assert starts[0].resumed_trials == 0 < starts[1].resumed_trials
    assert isinstance(events[-1], RunFinished) and events[-1].trials == 64
    seen = {event.trial for event in events if isinstance(event, TrialFinished)}
    assert seen == set(range(64))


def test_a_log_on_standard_output_has_it_for_itself(cli: Any) -> None:
    done = cli.tune("--trials", "4", "--log", "-", "--quiet")
    assert done.status == 0, done.stderr
    assert isinstance(list(read_events(done.stdout.splitlines()))[-1], RunFinished)
    assert "naive loop nest" in done.stderr


def test_a_reader_that_goes_away_ends_no_run(spawn: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    # More events than a pipe holds: however late the reader goes away, some are still unwritten.
    process = spawn(*TUNE, *IN_PROCESS, "--trials", "128", "--log", "pipe", "--quiet")
    with (tmp_path / "pipe").open() as reader:
        assert '"run_started"' in reader.readline()
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    warnings = [line for line in stderr.splitlines() if "warning" in line]
    assert warnings == [
        "autotune: warning: --log 'pipe' can no longer be written (Broken pipe); "
        "the run continues without it"
    ]
    assert "128 ok" in stdout


def test_lines_are_whole_after_one_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"event": "warn')
    with event_log(str(path), pytest.fail) as (log,):
        log(EVENT)
        log(EVENT)
    assert path.read_bytes().startswith(b'{"event": "warn\n{"event": ')
    assert read(path) == [EVENT, EVENT]


def test_several_processes_may_write_one_log(tmp_path: Path) -> None:
    """None takes back what another one has written, and no line is torn."""
    path = tmp_path / "log"
    text = (
        "import sys\n"
        "from autotune.cli.event_log import event_log\n"
        "from autotune.tuning.events import WarningRaised\n"
        "for number in range(200):\n"
        "    with event_log(sys.argv[1], sys.exit) as (log,):\n"
        "        log(WarningRaised(sys.argv[2], str(number) * 200))\n"
    )
    processes = [start_python("-c", text, str(path), str(writer)) for writer in range(2)]
    assert [process.communicate(timeout=300)[1] for process in processes] == [""] * 2
    lines = path.read_text().splitlines()
    assert len(lines) == 400
    found = {(event.task, event.message) for event in read_events(lines)}
    assert len(found) == 400


def test_nothing_is_left_of_a_log_without_events(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with event_log(path, pytest.fail):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "log").touch()
    with event_log(path, pytest.fail):
        pass
    assert (tmp_path / "log").read_bytes() == b""


def test_a_full_disk_is_one_warning_and_then_an_error(tmp_path: Path) -> None:
    text = (
        "import os\n"
        "from autotune.cli.event_log import event_log\n"
        "from autotune.errors import InvalidValueError\n"
        "from autotune.tuning.events import read_events\n"
        "from autotune.tuning.events import WarningRaised\n"
        "said = []\n"
        "path = os.path.join(os.environ['TMPDIR'], 'log')\n"
        "with event_log(path, said.append) as (log,):\n"
        "    for number in range(2000):\n"
        "        log(WarningRaised('task', str(number)))\n"
        "assert len(said) == 1 and 'No space left' in said[0], said\n"
        "events = list(read_events(open(path)))\n"
        "assert [int(event.message) for event in events] == list(range(len(events)))\n"
        "assert 100 < len(events) < 2000, len(events)\n"
        "for name in (path, path + '2'):\n"
        "    try:\n"
        "        with event_log(name, said.append): pass\n"
        "    except InvalidValueError as error:\n"
        "        assert 'cannot be written: No space left' in str(error)\n"
        "    else:\n"
        "        raise SystemExit(f'{name} was opened')\n"
        "assert os.listdir(os.environ['TMPDIR']) == ['log']\n"
    )
    run_on_small_disk(text, tmp_path, "size=64k")


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(InvalidValueError, match="--log '.*' cannot be written: Not a dir")
    with refused, event_log(str(tmp_path / "file" / "log"), pytest.fail):
        pass


def _has(path: Path, event: str, number: int) -> bool:
    return path.exists() and path.read_text().count(f'"event": "{event}"') >= number
