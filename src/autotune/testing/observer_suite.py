"""Conformance suite of observers; see :mod:`autotune.testing.strategy_suite` for the use."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from autotune.measure.observers import Observer, ObserverSet

ObserverFactory = Callable[[], Observer]


class ObserverSuite:
    """The contract of observers on any machine: readings may be absent, never zero."""

    @pytest.fixture
    def observer_factory(self) -> ObserverFactory:
        """Makes the observer."""
        raise NotImplementedError("give the fixture 'observer_factory'")

    @pytest.fixture
    def observers(
        self, observer_factory: ObserverFactory, monkeypatch: pytest.MonkeyPatch
    ) -> ObserverSet:
        """The observer as a worker has it."""
        monkeypatch.setattr(
            "autotune.measure.observers.create_part",
            lambda _kind, _name: observer_factory(),
        )
        return ObserverSet(["the observer"])

    def test_it_has_a_plain_name(self, observer_factory: ObserverFactory) -> None:
        name = observer_factory().name
        plain = name.replace("-", "").replace("_", "")
        assert plain.isascii() and plain.isalnum() and plain == plain.lower()

    def test_what_it_can_read_is_told_apart(self, observer_factory: ObserverFactory) -> None:
        found = observer_factory().check()
        assert set(found.reads) | set(found.absent), "it must name its readings"
        assert not set(found.reads) & set(found.absent)
        assert bool(found.reason) == bool(found.absent), (
            "a reason exactly where something is absent"
        )
        assert all(name.isidentifier() for name in (*found.reads, *found.absent))

    def test_readings_are_those_it_named(
        self, observer_factory: ObserverFactory, observers: ObserverSet
    ) -> None:
        observer = observer_factory()
        found = observer.check()
        with observers.build():
            work()
        names = {name.partition("/")[2] for name in observers.readings}
        with observers.run(3):
            work()
        readings = {name.partition("/")[2]: value for name, value in observers.readings.items()}
        assert names | set(readings) == {*found.reads, *found.absent}
        assert all(readings.get(name) is None for name in found.absent)
        told = observers.take_messages()
        assert len(told) == bool(found.absent), told

    def test_it_can_observe_many_candidates_in_any_order(self, observers: ObserverSet) -> None:
        kept: set[frozenset[str]] = set()
        with observers.build():
            work()
        active = observers.active
        for _ in range(3):
            for _ in range(2):
                with observers.build():
                    work()
            for calls in (1, 2, 1000):
                with observers.run(calls):
                    work()
                kept.add(frozenset(observers.readings))
        assert len(kept) == 1 and observers.active == active

    def test_threads_come_and_go(self, observers: ObserverSet) -> None:
        for _ in range(3):
            thread = threading.Thread(target=work)
            with observers.run(1):
                thread.start()
                work()
                thread.join()
        assert not [text for text in observers.take_messages() if "failed" in text]

    def test_a_candidate_that_fails_leaves_no_readings_and_does_no_harm(
        self, observers: ObserverSet
    ) -> None:
        with observers.build():
            work()
        active = observers.active
        for surround in (observers.build, lambda: observers.run(1)):
            with pytest.raises(ZeroDivisionError), surround():
                raise ZeroDivisionError
            assert observers.readings == {}
        with observers.run(1):
            work()
        assert observers.active == active and observers.readings


def work() -> int:
    """Something to observe: it takes memory and time."""
    return sum(bytearray(1 << 18)) + sum(range(10_000))
