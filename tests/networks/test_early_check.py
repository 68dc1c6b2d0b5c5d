"""What is kept of a network's time before it is tuned, and when it is checked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.networks.api import EarlyCheck
from autotune.networks.loading import ImportLimit, UniqueTask
from autotune.networks.running import saving_seconds
from autotune.tuning.options import TuneOptions


@pytest.mark.parametrize(
    ("flop", "options", "is_affordable"),
    [
        (1e9, {}, True),
        (5e9, {}, False),
        (1e9, {"time": 58.0}, True),
        (1e9, {"time": 57.0}, False),
        (1e9, {"time": 58.0, "session_time": 57.0}, False),
    ],
)
def test_the_check_takes_little_of_the_time(
    flop: float, options: dict[str, Any], is_affordable: bool
) -> None:
    task = UniqueTask("task", ("task",), object(), None, None, 2, flop / 2, ())
    network: Any = None
    check = EarlyCheck(
        network=network,
        tasks=[task],
        options=TuneOptions(threads=1, **options),
        limit=ImportLimit("network"),
        clock=lambda: 0.0,
        compares=True,
        builds=True,
        saves=None,
    )
    assert check.is_affordable == is_affordable


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"time": 51.0}, ""),
        ({"time": 49.0}, "17 s are left of 49 s to tune it; a trial of each of its 18 programs"),
        ({"time": 49.0, "trials": 4}, ""),
        ({"time": 30.0}, "nothing is left of 30 s to tune it"),
        ({}, ""),
    ],
)
def test_a_time_that_is_too_short_for_a_trial_of_each_program_is_said_with_what_it_takes(
    options: dict[str, Any], warned: str
) -> None:
    said: list[str] = []
    tasks = [
        UniqueTask(str(n), (str(n),), object(), None, None, 1, 0.0, (), refusal="no" * (n > 17))
        for n in range(20)
    ]
    check = EarlyCheck(
        network=SimpleNamespace(name="network", tasks=tasks, weight_bytes=0),  # type: ignore[arg-type]
        tasks=tasks,
        options=TuneOptions(
            threads=1, listeners=[lambda event: said.append(event.message)], **options
        ),
        limit=ImportLimit("network", spent=lambda: 30.0),
        clock=lambda: 0.0,
        compares=False,
        builds=True,
        saves=None,
    )
    check.run()
    assert len(said) == bool(warned)
    assert warned in "".join(said) and ("about 50 s (--time)" in "".join(said)) == bool(warned)


@pytest.mark.parametrize(("load", "wanted"), [(0.5, 2.0), (2.0, 2.0), (8.0, 8.0)])
def test_writing_takes_longer_on_a_busy_machine(
    load: float, wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert saving_seconds(120_000_000) == wanted
