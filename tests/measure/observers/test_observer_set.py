from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from autotune.errors import InvalidValueError, PluginError, UnknownNameError
from autotune.measure.observers import Availability, Observer, ObserverSet
from autotune.plugins import Context
from autotune.plugins.parts import create_part

HERE = __name__
told: list[str] = []


class Recorder(Observer):
    """Writes down what is called, and reads a number."""

    name = "one"
    run_seconds = 0.5

    def check(self) -> Availability:
        self._say("check")
        return Availability(("number",))

    def before_build(self) -> None:
        self._say("before_build")

    def after_build(self) -> None:
        self._say("after_build")

    def build_readings(self) -> Mapping[str, float | None]:
        return {"built": 1}

    def before_run(self) -> None:
        self._say("before_run")

    def after_run(self) -> None:
        self._say("after_run")

    def readings(self, calls: int) -> Mapping[str, float | None]:
        self._say("readings")
        return {"number": 10 / calls}

    def _say(self, hook: str) -> None:
        told.append(f"{self.name}.{hook}")


class Other(Recorder):
    name = "other"
    run_seconds = 0.25


class Absent(Recorder):
    """Can read nothing here."""

    name = "absent"

    def check(self) -> Availability:
        return Availability((), ("joules",), "no meter here")


class Partial(Recorder):
    name = "partial"

    def check(self) -> Availability:
        return Availability(("number",), ("cycles",), "no counter here")


class Faulty(Recorder):
    """Raises in the hook that the class attribute names."""

    name = "faulty"
    fault = ""

    def _say(self, hook: str) -> None:
        super()._say(hook)
        if hook == self.fault:
            raise ZeroDivisionError("some trouble")


class Odd(Recorder):
    name = "odd"
    returned: object = None

    def readings(self, calls: int) -> Mapping[str, float | None]:
        return self.returned  # type: ignore[return-value]


def broken(_context: Context) -> Observer:
    raise OSError("cannot be made")


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    told.clear()


def observers(*names: str) -> ObserverSet:
    return ObserverSet([f"{HERE}:{name}" for name in names])


def test_hooks_surround_each_other() -> None:
    made = observers("Recorder", "Other")
    assert not told, "nothing is asked before the first candidate"
    with made.build():
        told.append("build")
    assert made.readings == {"one/built": 1, "other/built": 1}
    with made.run(5):
        told.append("run")
    assert made.readings == {"one/number": 2, "other/number": 2}
    assert told == [
        *("one.check", "other.check"),
        *("one.before_build", "other.before_build", "build"),
        *("other.after_build", "one.after_build"),
        *("one.before_run", "other.before_run", "run"),
        *("other.after_run", "one.after_run", "one.readings", "other.readings"),
    ]


def test_without_observers_nothing_happens() -> None:
    announced = Announcements()
    made = ObserverSet([], announced)
    with made.build(), made.run(1):
        pass
    assert not made.active and made.readings == {} and not announced.events


class Announcements:
    """Writes down when it is entered and left, among the calls of hooks."""

    def __init__(self) -> None:
        self.events: list[str] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.events.append("enter")
        told.append("(")
        yield
        told.append(")")


def test_every_hook_is_announced_and_a_build_is_not() -> None:
    made = ObserverSet([f"{HERE}:Recorder"], Announcements())
    with made.build():
        told.append("build")
    with made.run(1):
        told.append("run")
    depth = 0
    for call in told:
        depth += {"(": 1, ")": -1}.get(call, 0)
        assert depth in (0, 1)
        assert (depth == 1) == (call != "build" and call != ")"), told


def test_what_is_absent_is_said_once_and_never_asked() -> None:
    made = observers("Absent", "Partial")
    with made.build():
        pass
    assert made.take_messages() == [
        "observer 'absent': no meter here",
        "observer 'partial': no counter here",
    ]
    for _ in range(2):
        with made.run(1):
            pass
        assert made.readings == {
            "absent/joules": None,
            "partial/number": 10,
            "partial/cycles": None,
        }
    assert made.take_messages() == []
    assert not [call for call in told if "absent." in call]


@pytest.mark.parametrize(
    "fault", ["check", "before_build", "after_build", "before_run", "after_run", "readings"]
)
def test_one_that_raises_is_not_asked_again(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faulty, "fault", fault)
    made = observers("Recorder", "Faulty", "Other")
    for _ in range(3):
        with made.build():
            pass
        with made.run(1):
            pass
        assert {"one/number", "other/number"} == set(made.readings)
    (message,) = made.take_messages()
    assert message == (
        f"observer 'faulty': it failed in {fault} and is not asked again: "
        "ZeroDivisionError: some trouble"
    )
    assert told.count(f"faulty.{fault}") == 1 and told.count("one.readings") == 3


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ({"number": float("nan")}, "'number' must be finite"),
        ({"number": float("inf")}, "'number' must be finite"),
        ({"number": "12"}, "must be a number or None, not '12'"),
        ({"number": True}, "must be a number or None, not True"),
        ({"a number": 1.0}, "'a number' does not name a reading"),
        ({3: 1.0}, "3 does not name a reading"),
        (None, "AttributeError"),
    ],
)
def test_odd_readings_are_refused(
    returned: object, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Odd, "returned", returned)
    made = observers("Odd")
    with made.run(1):
        pass
    assert made.readings == {} and not made.active
    assert complaint in made.take_messages()[0]


def test_a_failing_program_keeps_its_own_error_and_leaves_nothing_behind() -> None:
    made = observers("Recorder")
    with made.run(1):
        pass
    for surround in (made.build, lambda: made.run(1)):
        with pytest.raises(KeyError, match="of the program"), surround():
            raise KeyError("of the program")
        assert made.readings == {}
    assert told.count("one.after_build") == 1 and told.count("one.after_run") == 2
    assert made.active and not made.take_messages()


def test_the_number_of_calls_suits_the_most_demanding_observer() -> None:
    assert observers("Recorder", "Other").calls(0.1) == 5
    assert observers("Other").calls(0.1) == 3
    assert observers("Other").calls(7.0) == 1
    assert observers("Other").calls(0.0) == 1_000_000
    with pytest.raises(InvalidValueError, match="at least one call"), observers("Other").run(0):
        pass


def test_what_cannot_be_an_observer_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown observer 'pref'.*Did you mean 'perf'"):
        ObserverSet(["pref"])
    with pytest.raises(PluginError, match="made a Availability, not a Observer"):
        create_part("observer", f"{HERE}:nothing_known")
    with pytest.raises(PluginError, match="failed on construction: OSError: cannot be made"):
        observers("broken")
    with pytest.raises(PluginError, match="cannot be imported"):
        ObserverSet(["no_such_module:Observer"])
    with pytest.raises(InvalidValueError, match="two observers are called 'one'"):
        ObserverSet([f"{HERE}:Recorder", f"{HERE}:again"])


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("name", 5, "has a name that is no text: 5"),
        ("name", property(lambda self: 1 // 0), "failed in name: ZeroDivisionError"),
        ("run_seconds", None, "has run_seconds that are no seconds: None"),
        ("run_seconds", float("nan"), "has run_seconds that are no seconds: nan"),
        ("run_seconds", -1.0, "has run_seconds that are no seconds: -1.0"),
    ],
)
def test_attributes_that_would_harm_candidates_are_refused(
    attribute: str, value: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, attribute, value)
    with pytest.raises(PluginError, match=f"observer '{HERE}:Recorder' {message}"):
        ObserverSet([f"{HERE}:Recorder"])


def nothing_known(_context: Context) -> Availability:
    return Availability(())


def again(_context: Context) -> Observer:
    return Recorder()


def test_the_same_name_twice_is_one_observer() -> None:
    with observers("Recorder", "Recorder").build():
        pass
    assert told == ["one.check", "one.before_build", "one.after_build"]
