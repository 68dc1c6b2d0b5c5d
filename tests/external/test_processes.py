"""Commands and calls: how they end, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.external import processes
from autotune.external.processes import Ended, Isolation, saved_outputs
from autotune.external.results import NoResult, require_success
from autotune.process.processes import marked_processes


def run(tmp_path: Path, script: str, timeout: float = 300.0, **settings: Any) -> Ended:
    around = Isolation(tmp_path, dict(os.environ), tmp_path, timeout, **settings)
    return around.run(["sh", "-c", script])


def test_a_command_has_its_folder_and_its_words(tmp_path: Path) -> None:
    body = run(tmp_path, 'pwd; echo "$TMPDIR"; echo no >&2; exit 3')
    assert body.stdout.split() == [str(tmp_path)] * 2
    assert (body.status, body.ended, body.stderr) == (3, "", "no\n")
    assert 0 < body.seconds < 300


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000",
        "sleep 1000 & sleep 1000",
        "setsid sleep 1000 & sleep 1000",
        # Not even what catches all signals, or has a session of its own, is left.
        "trap '' TERM INT HUP; setsid sh -c 'setsid sleep 1000 & sleep 1000' & sleep 1000",
    ],
)
def test_what_hangs_is_killed_with_all_that_it_started(script: str, tmp_path: Path) -> None:
    body = run(tmp_path, script, timeout=0.3)
    assert body.ended == "timeout"
    assert marked_processes(tmp_path) == []


def test_what_ends_leaves_nothing_running(tmp_path: Path) -> None:
    assert run(tmp_path, "setsid sleep 1000 & sleep 1000 & exit 0").status == 0
    assert marked_processes(tmp_path) == []


def test_what_prints_without_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MOST_OUTPUT", 1 << 20)
    with pytest.raises(NoResult, match="run printed more than can be kept"):
        require_success(run(tmp_path, "yes"), "run", 1.0)


def test_a_run_is_given_up_when_it_is_late(tmp_path: Path) -> None:
    assert run(tmp_path, "sleep 1000", is_late=lambda: True).ended == "late"
    assert marked_processes(tmp_path) == []


def call(
    tmp_path: Path, function: Callable[..., Any], timeout: float = 300.0, **settings: Any
) -> Ended:
    around = Isolation(tmp_path, {"SHOWN": "yes"}, tmp_path, timeout)
    return around.call(function, {"n": 2}, 3, **settings)


def test_a_function_is_called_in_another_process(tmp_path: Path) -> None:
    def measure(n: int) -> tuple[float, np.ndarray[Any, Any]]:
        print("called", os.environ["SHOWN"], os.getcwd(), flush=True)
        return float(os.getpid()), np.arange(n)

    body = call(tmp_path, measure)
    values = {entry.value for entry in body.calls}
    assert len(body.calls) == 3 and len(values) == 1 and os.getpid() not in values
    assert body.stdout.split()[:3] == ["called", "yes", str(tmp_path)]
    (path,) = saved_outputs(tmp_path)
    np.testing.assert_array_equal(np.load(path), [0, 1])


def test_calls_end_once_one_is_too_slow(tmp_path: Path) -> None:
    body = call(tmp_path, lambda n: 5.0, skipped=1, limit=1.0)
    assert len(body.calls) == 2


def _exit(n: int) -> None:
    os._exit(7)


def _segfault(n: int) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _raise(n: int) -> None:
    raise SystemExit("enough")


def _hang(n: int) -> None:
    time.sleep(1000)


@pytest.mark.parametrize(
    "function,status,ended,raised",
    [
        (_exit, 7, "", ""),
        (_segfault, -signal.SIGSEGV, "", ""),
        (_raise, 0, "", "SystemExit: enough"),
        (_hang, -signal.SIGKILL, "timeout", ""),
        (lambda n: "fast", 0, "", "TypeError: returned 'fast', which is no number"),
        (lambda n: (1, 2, 3), 0, "", "TypeError: returned 3 values"),
        (lambda n: (1.0, "abc"), 0, "", "TypeError: returned outputs that are not"),
    ],
)
def test_how_calls_end(
    function: Callable[..., Any], status: int, ended: str, raised: str, tmp_path: Path
) -> None:
    body = call(tmp_path, function, timeout=0.5 if ended else 300.0)
    assert (body.status, body.ended, body.calls) == (status, ended, ())
    assert body.raised.startswith(raised) and bool(body.raised) == bool(raised)
