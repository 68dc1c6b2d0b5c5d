"""The time of a call, of which the import of a network may leave nothing."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve

from autotune.errors import InvalidValueError
from autotune.networks.api import EarlyCheck, ModelOptions, run_model
from autotune.networks.loading import ImportLimit, UniqueTask
from autotune.networks.running import saving_seconds
from autotune.networks.source import Source
from autotune.process.deadline import Deadline
from autotune.testing.reference_frontend import REFERENCE_FRONTEND, three_layers
from autotune.tuning.events import Event, WarningRaised
from autotune.tuning.options import TuneOptions

READING = ModelOptions(frontend=REFERENCE_FRONTEND)
# Imports as on a machine that is infinitely fast: what a call does is no matter of its speed.
UNHURRIED = ImportLimit("three layers")


def test_where_import_and_build_take_all_the_time_one_line_says_so(tmp_path: Path) -> None:
    events: list[Event] = []
    source = Source(three_layers()[0], None, "three_layers")
    options = TuneOptions(
        threads=1, time=2.0, database=tmp_path / "records.db", listeners=[events.append]
    )
    result = run_model(source, READING, options, builds=True, limit=UNHURRIED)
    (warning,) = (it.message for it in events if isinstance(it, WarningRaised))
    # As much is kept for timing it alone.
    found = re.fullmatch(
        "to import and check it took 0 s, and to build, check and time it about ([0-9]+) s: "
        "nothing is left of 2 s to tune it; a trial of each of its [1-3] programs needs about "
        r"([0-9]+) s \(--time\)",
        warning,
    )
    assert found is not None and 2 <= int(found[1]) < int(found[2])
    assert result.trials == 0
    assert {task.run_by for task in result.tasks} == {"default schedule"}


def test_an_import_that_outlasts_the_call_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    class SlowDeadline(Deadline):
        """Its time is not over before the pass has begun, however slow the machine is."""

        def _watch(self, thread: int | None) -> None:
            assert begun.wait(300)
            super()._watch(thread)

    def endless(graph: object) -> object:
        begun.set()
        while True:
            pass

    monkeypatch.setattr("autotune.networks.loading.Deadline", SlowDeadline)
    options = TuneOptions(threads=1, time=0.3, database=tmp_path / "records.db")
    source = Source(three_layers()[0], None, "layers")
    for name, doing in (("check", "it was read"), ("number", "prepared, after pass 'check'")):
        begun.clear()
        reading = evolve(READING, passes={name: endless})
        with pytest.raises(InvalidValueError, match=rf"layers: .* 0.3 s were over while.*{doing}"):
            run_model(source, reading, options, limit=ImportLimit("layers", 0.3))
    assert not (tmp_path / "records.db").exists()


@pytest.mark.parametrize(("saves", "seconds"), [(None, 30), (Path("network.so"), 80)])
def test_weights_are_part_of_what_is_kept_of_the_time(
    saves: Path | None, seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = three_layers()
    said: list[Event] = []
    options = TuneOptions(
        trials=2, time=5.0, threads=1, database=tmp_path / "records.db", listeners=[said.append]
    )
    monkeypatch.setattr("autotune.networks.frontend.NetworkProgram.weight_bytes", 3 * 10**9)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    source = Source(model, None, "layers")
    run_model(source, READING, options, builds=True, saves=saves, limit=UNHURRIED)
    (warning,) = [it for it in said if isinstance(it, WarningRaised) and "nothing" in it.message]
    (kept,) = re.findall(r"check and time it about (\d+) s", warning.message)
    assert seconds <= int(kept) <= seconds + 10


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
    task = UniqueTask("task", object(), 2, flop / 2, names=("task",))
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
        UniqueTask(str(n), object(), 1, 0.0, names=(str(n),), refusal="no" * (n > 17))
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
