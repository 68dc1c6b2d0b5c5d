"""Measurers of two processes do not time at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from other_timer import other_process
from process_facts import becomes_true

from autotune.measure import LocalMeasurer
from autotune.process.timing_lock import BUSY_VARIABLE, TimingLock


@pytest.mark.promise("another run times on the same CPUs", "the two take turns")
def test_a_measurer_times_when_another_process_has_ended_its_turn(
    make_measurer: Callable[..., LocalMeasurer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(BUSY_VARIABLE, raising=False)
    measurer = make_measurer()
    measurer.start()
    # Its backend simulates times, and would lock nothing.
    lock = TimingLock((0,), path=tmp_path / "lock")
    monkeypatch.setattr(measurer._workers, "timing_lock", lock)
    with other_process(tmp_path / "lock", "0") as other:
        assert other.acquires()
        released: list[float] = []

        def end_turn() -> None:
            assert becomes_true(lambda: lock.is_waiting)
            time.sleep(0.3)
            released.append(time.monotonic())
            other.release()

        thread = threading.Thread(target=end_turn)
        thread.start()
        [outcome] = measurer.measure_baselines([None])
        ended = time.monotonic()
        thread.join()
        assert outcome.ok and ended > released[0]
        # It keeps nothing once it has timed, nor after an interrupt while it waits.
        assert not lock.is_held and other.acquires()
        monkeypatch.setattr(lock, "clock", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            measurer.measure_baselines([None])
        other.release()
        assert other.acquires()


def _interrupt() -> float:
    raise KeyboardInterrupt
