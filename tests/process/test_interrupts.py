"""Signals stop a run once, at a moment that suits it."""

from __future__ import annotations

import signal
import time

import pytest

from autotune.process import interrupts
from autotune.process.interrupts import InterruptGuard, UserInterrupt


@pytest.fixture(autouse=True)
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals that are to be repetitions are soon enough after the first."""
    now = time.monotonic()
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_and_a_repeated_one_does_not_stop_the_cleanup(
    number: signal.Signals,
) -> None:
    cleaned = []
    with InterruptGuard():
        with pytest.raises(UserInterrupt):
            try:
                signal.raise_signal(number)
            finally:
                signal.raise_signal(number)
                cleaned.append("files")
        signal.raise_signal(number)
    assert cleaned == ["files"]


def test_a_shielded_signal_comes_at_the_end_and_only_once() -> None:
    done = []
    guard = InterruptGuard()
    with guard:
        with pytest.raises(UserInterrupt), guard.shield():
            signal.raise_signal(signal.SIGINT)
            done.append("first")
        with guard.shield():
            signal.raise_signal(signal.SIGINT)
            done.append("second")
    assert done == ["first", "second"]


def test_a_signal_long_after_another_raises_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with InterruptGuard():
        with pytest.raises(UserInterrupt):
            signal.raise_signal(signal.SIGINT)
        now = time.monotonic() + 2 * interrupts._REPEATED_SECONDS
        monkeypatch.setattr(interrupts.time, "monotonic", lambda: now)
        with pytest.raises(UserInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with InterruptGuard():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
