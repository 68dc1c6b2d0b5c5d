"""Observers, which read counters or energy while candidates are built and run.

Several are asked as one, isolated from each other and from the measurement.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from numbers import Real

from attrs import define, frozen

from autotune.errors import InvalidValueError, PluginError
from autotune.plugins import Context
from autotune.plugins.calling import Calling
from autotune.plugins.parts import create_part
from autotune.process.child import describe

__all__ = ["Availability", "Observer", "ObserverSet"]

_MESSAGE_CHARACTERS = 500
_MOST_CALLS = 1_000_000

Readings = Mapping[str, "float | None"]


@frozen
class Availability:
    """The readings of an observer on this machine.

    Attributes:
        reads: Names of the readings that it gives.
        absent: Names of those that it would give elsewhere; here they are None.
        reason: Why those are absent, for people; "" where none is.
    """

    reads: tuple[str, ...]
    absent: tuple[str, ...] = ()
    reason: str = ""


class Observer(ABC):
    """Reads something about a candidate beside its latency: counters, energy, a clock rate.

    An observer lives in the worker process, which builds and runs one candidate at a time. Its
    hooks surround the build, and a number of calls of the program that are made for observers
    only: whatever a hook costs, timed samples do not pay for it.

    Readings are finite numbers, with the unit in the name: ``instructions_per_call``,
    ``energy_joules_per_call``, ``build_page_faults``. What cannot be read is None, never zero.

    An observer that raises is not asked again by this worker; one that hangs or ends the process
    is given up on by the host. Either way the run continues without its readings.

    Attributes:
        run_seconds: How long the observed calls should last together for readings that mean
            something.
    """

    run_seconds: float = 0.02

    def __init__(self, context: Context | None = None) -> None:  # noqa: B027
        """An observer is made like every other part, and needs nothing."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name that its readings are filed under: lower-case letters, digits, ``-`` and ``_``."""

    @abstractmethod
    def check(self) -> Availability:
        """Check what can be read in this process; called once, before any hook."""

    def before_build(self) -> None:  # noqa: B027 (optional)
        """Called just before a candidate is built."""

    def after_build(self) -> None:  # noqa: B027 (optional)
        """Called as soon as it is built or has failed to; to stop, not to evaluate."""

    def build_readings(self) -> Mapping[str, float | None]:
        """Return what was read between the two, by name; called after a build that succeeded."""
        return {}

    def before_run(self) -> None:  # noqa: B027 (optional)
        """Called just before the program is called a number of times."""

    def after_run(self) -> None:  # noqa: B027 (optional)
        """Called as soon as the calls have returned or failed; to stop, not to evaluate."""

    def readings(self, calls: int) -> Mapping[str, float | None]:
        """Return what was read between the two, by name.

        Args:
            calls: How often the program was called, at least once.
        """
        return {}


@define
class _Member:
    """An observer, and whether it is still active."""

    observer: Observer
    name: str
    run_seconds: float
    absent: tuple[str, ...] = ()
    active: bool = True


class ObserverSet:
    """The observers of a worker.

    What an observer raises ends here: it is not called again, with one message.

    Args:
        names: Registered names, or import strings ``module:Class``.
        announce: Surrounds whatever calls an observer, so that a hang or a crash is put down to
            observers and not to the candidate.

    Raises:
        UnknownNameError: no observer has this name.
        PluginError: one cannot be imported or made.
        InvalidValueError: one is no observer, or two have the same name.
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        announce: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._announce = announce
        self._members: list[_Member] = []
        self._messages: list[str] = []
        self._readings: dict[str, float | None] = {}
        self._checked = False
        for name in dict.fromkeys(names):
            self._add(name, create_part("observer", name))

    @property
    def active(self) -> bool:
        """True if any is still active; if not, no program runs for observers."""
        return any(member.active for member in self._members)

    @property
    def readings(self) -> Readings:
        """Return what was read in the last :meth:`build` or :meth:`run`, by ``observer/reading``.

        Empty if what it surrounded raised. None stands for what cannot be read here.
        """
        return dict(self._readings)

    def calls(self, seconds_per_call: float) -> int:
        """Number of calls to make in :meth:`run`, so that every observer has enough to see."""
        wanted = max((it.run_seconds for it in self._members if it.active), default=0.0)
        return min(_MOST_CALLS, max(1, math.ceil(wanted / max(seconds_per_call, 1e-9))))

    def take_messages(self) -> list[str]:
        """Return what a person should know, such as a failed observer; each message only once."""
        taken, self._messages = self._messages, []
        return taken

    @contextmanager
    def build(self) -> Iterator[None]:
        """Surrounds the build of a candidate."""
        self._readings = {}
        with self._asking():
            begun = self._begin("before_build")
        try:
            yield
        finally:
            with self._asking():
                self._end(begun, "after_build")
        with self._asking():
            self._collect(begun, "build_readings", lambda observer: observer.build_readings())

    @contextmanager
    def run(self, calls: int) -> Iterator[None]:
        """Surrounds ``calls`` calls of a program, which are not its timed samples.

        Raises:
            InvalidValueError: there are no calls to observe.
        """
        if calls < 1:
            raise InvalidValueError(f"at least one call must be observed, not {calls}")
        self._readings = {}
        # Nothing is announced between a hook and the program: that would be observed too.
        with self._asking():
            begun = self._begin("before_run")
            try:
                yield
            finally:
                self._end(begun, "after_run")
            self._collect(begun, "readings", lambda observer: observer.readings(calls))
        for member in self._members:
            for name in member.absent:
                self._readings.setdefault(f"{member.name}/{name}", None)

    def _add(self, given: str, observer: Observer) -> None:
        noun = f"observer {given!r}"
        with Calling(noun, "in name"):
            name: object = observer.name
        with Calling(noun, "in run_seconds"):
            seconds: object = observer.run_seconds
        if not isinstance(name, str):
            raise PluginError(f"{noun} has a name that is no text: {name!r:.80}")
        if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise PluginError(f"{noun} has run_seconds that are no seconds: {seconds!r:.80}")
        if any(member.name == name for member in self._members):
            raise InvalidValueError(f"two observers are called {name!r}")
        self._members.append(_Member(observer, name, float(seconds)))

    def _check(self, member: _Member) -> None:
        """Find out what an observer can read: if that is nothing, it is not asked."""
        try:
            found = member.observer.check()
            member.absent = tuple(found.absent)
            member.active = bool(found.reads)
            reason = found.reason
        except BaseException as error:  # a foreign part may raise anything
            self._disable(member, "check", error)
            return
        if member.absent or not member.active:
            self._say(member, reason or "it can read nothing here")

    def _asking(self) -> AbstractContextManager[None]:
        return self._announce() if self.active else nullcontext()

    def _begin(self, hook: str) -> list[_Member]:
        """Call a hook of every observer; returns those to call when it is over."""
        if not self._checked:
            self._checked = True
            for member in self._members:
                self._check(member)
        active = [member for member in self._members if member.active]
        for member in active:
            self._call(member, hook)
        return [member for member in active if member.active]

    def _end(self, begun: Sequence[_Member], hook: str) -> None:
        # The last to begin is the first to end, so that none observes more of the others' work.
        for member in reversed(begun):
            self._call(member, hook)

    def _call(self, member: _Member, hook: str) -> None:
        try:
            getattr(member.observer, hook)()
        except BaseException as error:  # a foreign part may raise anything
            self._disable(member, hook, error)

    def _collect(
        self, begun: Sequence[_Member], hook: str, read: Callable[[Observer], Readings]
    ) -> None:
        for member in begun:
            if not member.active:
                continue
            try:
                found = _checked(read(member.observer))
            except BaseException as error:  # a foreign part may raise anything
                self._disable(member, hook, error)
                continue
            self._readings |= {f"{member.name}/{name}": value for name, value in found.items()}

    def _disable(self, member: _Member, hook: str, error: BaseException) -> None:
        member.active = False
        text = describe(error)[:_MESSAGE_CHARACTERS]
        self._say(member, f"it failed in {hook} and is not asked again: {text}")

    def _say(self, member: _Member, text: str) -> None:
        self._messages.append(f"observer {member.name!r}: {text}")


def _checked(readings: Readings) -> dict[str, float | None]:
    """An observer's readings, as plain numbers."""
    checked: dict[str, float | None] = {}
    for name, value in readings.items():
        if not (isinstance(name, str) and name.isidentifier()):
            raise InvalidValueError(f"{name!r} does not name a reading: use letters, digits and _")
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
            raise InvalidValueError(f"reading {name!r} must be a number or None, not {value!r}")
        checked[name] = None if value is None else float(value)
        if not math.isfinite(checked[name] or 0.0):
            raise InvalidValueError(f"reading {name!r} must be finite, not {value!r}")
    return checked
