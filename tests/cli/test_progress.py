"""Progress, from events alone, and on a real terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_lines import IN_PROCESS, TUNE
from hypothesis import given
from hypothesis import strategies as st
from python_processes import python_environment
from thinning import thinned

from autotune.cli.progress import (
    LiveProgress,
    PlainProgress,
    RunState,
    TaskNames,
    Warnings,
    chosen_mode,
    progress,
)
from autotune.errors import InvalidValueError
from autotune.store.records import Comparison, Confirmation, Outcome
from autotune.testing.reference_backend import SCRIPT_VARIABLE
from autotune.testing.toy_space import ToySpace
from autotune.tuning.events import (
    AnsweredFromRecords,
    BaselineMeasured,
    CheckpointSaved,
    Event,
    LeadersCompared,
    RoundStarted,
    RunFinished,
    RunStarted,
    TrialFinished,
    WarningRaised,
    WinnerConfirmed,
    WorkersReady,
)

CANDIDATE = next(iter(ToySpace().enumerate()))
CRASH = Outcome("crash", message="worker failed during run: killed by SIGSEGV")
LATE = Outcome("timeout", message="build took more than 30 s")
RUN = (*TUNE, "--trials", "20")
QUICK_RUN = (*RUN, *IN_PROCESS)


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def started(task: str = "gemm", trials: int | None = 64, **changes: Any) -> RunStarted:
    fields: dict[str, Any] = {
        "run_id": "0123456789ab",
        "task": task,
        "workload": "w",
        "flop": 2 * 10**9,
        "trials": trials,
        "seconds": None,
        "resumed_trials": 0,
        "resumed_outcomes": {},
        "resumed_rejections": {},
        "resumed_best": None,
        "resumed_seconds": 0.0,
        "database": "records.db",
        "sketches": 2,
        "configurations": 760,
        **changes,
    }
    return RunStarted(**fields)


def trial(
    number: int, outcome: Outcome, elapsed: float, best: float | None = 1e-3, task: str = "gemm"
) -> TrialFinished:
    return TrialFinished(task, number, CANDIDATE, outcome, best, False, elapsed)


def a_run() -> list[Event]:
    return [
        started(),
        WorkersReady("gemm", 2.0),
        BaselineMeasured("gemm", Outcome("ok", 12e-3)),
        RoundStarted("gemm", 0, 0, 16),
        trial(0, Outcome("ok", 1e-3), 4.0),
        trial(1, CRASH, 5.0),
        trial(2, CRASH, 5.5),
        trial(3, LATE, 6.0),
        LeadersCompared("gemm", "a" * 16, "b" * 16, Comparison(1.034, 1.01, 1.05, 7), True),
        LeadersCompared("gemm", "b" * 16, "c" * 16, Comparison(0.98, 0.97, 1.01, 7), False),
        CheckpointSaved("0123456789ab", 4, {"build": 3.0, "run": 1.0, "startup": 2.0}),
        WarningRaised("gemm", "odd\nthings"),
        trial(4, CRASH, 7.0),
        WinnerConfirmed(
            "gemm", Confirmation("b" * 16, 1e-3, over_baseline=Comparison(1.0, 0.9, 1.1, 9))
        ),
        RunFinished("0123456789ab", "gemm", 5, "the time is over", None),
    ]


def test_plain_lines() -> None:
    stream = io.StringIO()
    listener = PlainProgress(stream)
    for event in a_run():
        listener(event)
    assert stream.getvalue().splitlines() == [
        "gemm: 2 sketches, 760 configurations, 64 trials",
        "gemm: workers ready after 2.00 s",
        "gemm: naive loop nest: 12.0 ms",
        "gemm: bbbbbbbb beats aaaaaaaa 1.03x (1.01x to 1.05x)",
        "gemm: 4/64 trials; best 1.00 ms (2.00 TFLOP/s); 1 ok, 2 crash, 1 timeout; "
        "6.0 s, about 60 s left; build 50 %, start-up 33 %, run 17 %; 12.0x the naive loop nest",
        "gemm: rejected: 2 crash: SIGSEGV in run; 1 timeout: build",
        "gemm: warning: odd things",
        "gemm: 5/64 trials; best 1.00 ms (2.00 TFLOP/s); 1 ok, 3 crash, 1 timeout; "
        "7.0 s, about 59 s left; build 50 %, start-up 33 %, run 17 %; 12.0x the naive loop nest",
        "gemm: rejected: 3 crash: SIGSEGV in run; 1 timeout: build",
        "gemm: winner ties the naive loop nest (0.90x to 1.10x)",
        "gemm: done: the time is over",
    ]


def test_where_time_alone_limits_a_run_no_number_of_trials_is_promised() -> None:
    stream = io.StringIO()
    listener = PlainProgress(stream)
    listener(started(trials=None, seconds=60.0))
    listener(trial(0, Outcome("ok", 1e-3), 15.0))
    listener(CheckpointSaved("0123456789ab", 1, {"run": 15.0}))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "gemm: 2 sketches, 760 configurations, 60 s"
    assert lines[1].startswith("gemm: 1 trials; best 1.00 ms")
    assert "15.0 s, about 45 s left" in lines[1]


def test_the_bar_shows_the_limit_that_is_nearest() -> None:
    run = RunState()
    assert run.share_done == 0.0
    run.update(started(trials=4, seconds=60.0))
    run.update(trial(0, Outcome("ok", 1e-3), 6.0))
    assert run.share_done == 0.25
    run.update(trial(1, Outcome("ok", 1e-3), 45.0))
    assert run.share_done == 0.75


def test_why_candidates_were_rejected_is_said_when_it_changes() -> None:
    stream = io.StringIO()
    listener = PlainProgress(stream)
    listener(started(resumed_rejections={"timeout: run": 2}, resumed_outcomes={"timeout": 2}))
    for number, outcome in enumerate((Outcome("ok", 1.0), Outcome("ok", 1.0), LATE)):
        listener(trial(number, outcome, 1.0))
        listener(CheckpointSaved("0123456789ab", number, {}))
    lines = [line for line in stream.getvalue().splitlines() if "rejected" in line]
    assert lines == [
        "gemm: rejected: 2 timeout: run",
        "gemm: rejected: 2 timeout: run; 1 timeout: build",
    ]


def test_an_answer_from_records_is_a_line() -> None:
    for make in (PlainProgress, LiveProgress):
        stream = Terminal()
        make(stream)(AnsweredFromRecords("0123456789ab", "gemm", 8, None))
        assert "gemm: answered from run 0123456789ab, 8 trials" in stream.getvalue()


def test_the_display_says_all_of_it() -> None:
    text = "\n".join(_drawn(a_run()))
    for part in (
        "4/64",
        "1.00 ms  2.00 TFLOP/s  1 ok, 2 crash, 1 timeout  cccccccc ties bbbbbbbb (0.97x to 1.01x)",
        "rejected: 2 crash: SIGSEGV in run; 1 timeout: build",
        "time: build 50 %, start-up 33 %, run 17 %",
        "gemm: warning: odd things",
        "gemm: winner ties the naive loop nest",
    ):
        assert part in text
    last = text[text.rindex("5/64") :]
    assert "bbbbbbbb" in last and "aaaaaaaa" not in last, "only the last comparison is shown"


def test_the_display_of_many_tasks_stays_small() -> None:
    names = [f"task {number}" for number in range(30)]
    events: list[Event] = [started(name, 300) for name in names]
    events += [trial(0, Outcome("ok", 1.0), 1.0, task=name) for name in names]
    lines = _drawn([*events, CheckpointSaved("0123456789ab", 30, {"run": 1.0})])
    last = lines[max(at for at, line in enumerate(lines) if "30/300" in line) :]
    assert "30 tasks" in last[0] and len(last) <= 20
    assert any("and 22 more tasks" in line for line in last)
    assert any(re.match(r"task 29 +1 +1.00 ms", line) for line in last)


def test_tasks_have_short_names() -> None:
    names = TaskNames()
    shape = "gemm m=512 n=512 k=512 float32"
    assert [names.short(shape), names.short(f"{shape} on tvm")] == ["gemm", "gemm on tvm"]
    assert names.short("gemm m=1 n=1 k=1 float32 on mlir") == "gemm#2 on mlir"
    assert names.short("my program") == "my program"
    assert names.details(f"{shape} on tvm") == "m=512 n=512 k=512 float32"
    assert names.details("my program") == ""


def test_the_display_draws_on_events_only_and_not_on_every_one() -> None:
    now = [0.0]
    threads = threading.active_count()
    with LiveProgress(Terminal(), lambda: now[0]) as live:
        draws = []
        refresh = live._live.refresh
        live._live.refresh = lambda: (draws.append(now[0]), refresh())  # type: ignore[method-assign]
        live(started(trials=1000))
        for number in range(1000):
            now[0] += 0.001
            live(trial(number, Outcome("ok", 1.0), now[0]))
        assert 3 <= len(draws) <= 6, draws
        count = len(draws)
        live(CheckpointSaved("0123456789ab", 1000, {}))
        assert len(draws) == count + 1, "the latest is shown before a silence"
        assert threading.active_count() == threads, "nothing is to run while a program is timed"


@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=20), st.floats(0, 10), st.integers(0, 9))
def test_time_left_follows_the_pace_of_this_session(
    steps: list[float], startup: float, resumed: int
) -> None:
    state = RunState()
    state.update(started(trials=40, resumed_trials=resumed, resumed_seconds=100.0))
    state.update(WorkersReady("gemm", startup))
    assert state.remaining is None
    elapsed = 100.0 + startup
    for number, step in enumerate(steps):
        elapsed += step
        state.update(trial(resumed + number, Outcome("ok", 1.0), elapsed))
    pace = sum(steps) / len(steps)
    assert state.remaining == pytest.approx(pace * (40 - resumed - len(steps)), abs=1e-6)


def test_time_left_of_a_budget_in_seconds_and_of_several_tasks() -> None:
    state = RunState()
    state.update(started("a", 40, seconds=10.0))
    assert state.remaining == 10.0
    state.update(started("b", 40, seconds=10.0))
    state.update(trial(0, Outcome("ok", 1.0), 1.0, task="a"))
    state.update(trial(0, Outcome("ok", 1.0), 2.0, task="b"))
    assert state.trials == 2 and state.budget == 40
    assert state.remaining == 8.0, "the time is over before the trials are"
    state.update(trial(1, Outcome("ok", 1.0), 12.0, task="b"))
    assert state.remaining == 0.0


@pytest.mark.parametrize(
    ("mode", "terminal", "variable", "chosen"),
    [
        ("auto", True, "xterm", "live"),
        ("auto", True, "dumb", "plain"),
        ("auto", False, "xterm", "plain"),
        ("plain", True, "xterm", "plain"),
        ("quiet", True, "xterm", "quiet"),
        ("live", True, "xterm", "live"),
    ],
)
def test_modes(
    mode: str, terminal: bool, variable: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", variable)
    stream = Terminal() if terminal else io.StringIO()
    assert chosen_mode(mode, stream) == chosen
    with progress(stream, chosen) as listeners:
        kinds = {"live": LiveProgress, "plain": PlainProgress, "quiet": Warnings}
        assert [type(listener) for listener in listeners] == [kinds[chosen]]


def test_a_display_needs_a_terminal() -> None:
    with pytest.raises(InvalidValueError, match="needs a terminal on standard error; plain"):
        chosen_mode("live", io.StringIO())


def test_the_options(cli: Any) -> None:
    assert cli.tune("--trials", "2", "--progress", "quiet").stderr == ""
    assert cli.tune("--trials", "2", "--quiet", "--progress", "quiet").stderr == ""
    assert "answered from run" in cli.tune("--trials", "2", "--progress", "plain").stderr


@pytest.mark.parametrize("variables", thinned([{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], 3))
def test_on_a_real_terminal(variables: dict[str, str], tmp_path: Path) -> None:
    shown, status = _on_a_terminal(QUICK_RUN, tmp_path, {"TERM": "xterm-256color", **variables})
    assert status == 0, shown
    assert "20/20" in shown and "20 ok" in shown and "Traceback" not in shown
    assert ("20/20 trials; best" in shown) == ("TERM" in variables), "plain where it is dumb"
    colours = re.findall(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38|48)[;m]", shown)
    assert bool(colours) == (not variables)


def test_an_interrupt_leaves_a_usable_terminal(tmp_path: Path) -> None:
    slow = {SCRIPT_VARIABLE: json.dumps({"build_seconds": 1.0}), "TERM": "xterm-256color"}
    shown, status = _on_a_terminal(RUN, tmp_path, slow, interrupt_at="naive loop nest")
    assert status == 130 and "the same command resumes the run" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "Traceback" not in shown


@pytest.mark.parametrize("columns", thinned(["1", "500"], 2))
def test_a_terminal_of_any_width_without_unicode(columns: str, tmp_path: Path) -> None:
    variables = {"COLUMNS": columns, "PYTHONIOENCODING": "ascii", "TERM": "xterm"}
    shown, status = _on_a_terminal(QUICK_RUN, tmp_path, variables)
    assert status == 0 and shown.isascii() and "Traceback" not in shown


def test_a_full_disk_under_standard_error_ends_no_run(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "autotune", *QUICK_RUN],
            cwd=tmp_path,
            env=_environment({}),
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
        )
    assert done.returncode == 0 and "20 ok" in done.stdout


def _drawn(events: Sequence[Event]) -> list[str]:
    """Every line that the display has drawn, without control sequences."""
    stream = Terminal()
    now = [0.0]
    with LiveProgress(stream, lambda: now[0]) as live:
        live._console.width = 120
        for event in events:
            now[0] += 1.0
            live(event)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "").splitlines()


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = python_environment(COLUMNS="120")
    for name in ("NO_COLOR", "TERM"):
        kept.pop(name, None)
    return {**kept, **variables}


def _on_a_terminal(
    arguments: Sequence[str], folder: Path, variables: dict[str, str], interrupt_at: str = ""
) -> tuple[str, int]:
    """Output of a command on a terminal, and its exit status.

    It is interrupted when it has written ``interrupt_at``, unless that is empty.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "autotune", *arguments],
        cwd=folder,
        env=_environment(variables),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 1 << 16):
            shown += data
            if interrupt_at and interrupt_at.encode() in shown:
                process.send_signal(signal.SIGINT)
                interrupt_at = ""
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    return shown.decode(), process.wait(300)
