"""What is kept of a network's time before it is tuned, and when it is checked."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.networks.early_check import EarlyCheck
from autotune.networks.import_limit import ImportLimit
from autotune.networks.loading import UniqueTask
from autotune.networks.running import saving_seconds
from autotune.tuning.options import TuneOptions


@pytest.mark.parametrize(
    ("flop", "options", "is_affordable"),
    [
        (1e9, {}, True),
        (5e9, {}, False),
        (1e9, {"time": 54.0}, True),
        (1e9, {"time": 51.0}, False),
        (1e9, {"time": 54.0, "session_time": 51.0}, False),
    ],
)
def test_the_check_takes_little_of_the_time(
    flop: float, options: dict[str, Any], is_affordable: bool
) -> None:
    task = UniqueTask("task", ("task",), object(), None, 2, flop / 2, ())
    network: Any = None
    check = EarlyCheck(
        network=network,
        tasks=[task],
        options=TuneOptions(threads=1, **options),
        limit=ImportLimit("network"),
        clock=lambda: 0.0,
        compares=True,
        builds=True,
        saves=False,
    )
    assert check.is_affordable == is_affordable


@pytest.mark.parametrize(("load", "wanted"), [(0.5, 2.0), (2.0, 2.0), (8.0, 8.0)])
def test_writing_takes_longer_on_a_busy_machine(
    load: float, wanted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert saving_seconds(120_000_000) == wanted
