"""The interface of observers, which read something while candidates are built and run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from attrs import frozen

from autotune.plugins import Context

__all__ = ["Availability", "Observer"]


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
