"""Which machines take part in a race: all of one fingerprint, and no others."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measure.engines.fingerprint import SPEED_TOLERANCE, Fingerprint
from autotune.measure.engines.interface import Machine

__all__ = ["builders_of", "choose_fingerprint", "equal_machines"]


def choose_fingerprint(machines: Sequence[Machine]) -> Fingerprint | None:
    """The fingerprint of most machines that can time at the same time; None without any.

    Of equally frequent ones that of the first name, so that the choice does not depend on the
    order in which machines join.
    """
    timers = sorted((it for it in machines if _times(it)), key=lambda it: it.name)
    best: tuple[int, Fingerprint] | None = None
    for machine in timers:
        if machine.fingerprint is None:
            continue
        alike = equal_machines(machine.fingerprint, timers)
        if best is None or len(alike) > best[0]:
            best = len(alike), machine.fingerprint
    return None if best is None else best[1]


def equal_machines(fingerprint: Fingerprint, machines: Sequence[Machine]) -> list[Machine]:
    """Machines that may share a race, by name: one of each lease group, the first.

    Those that share what they run on would only wait for one another. One whose speed has drifted
    comes after the others of its group.
    """
    found: dict[str, Machine] = {}
    for machine in sorted(machines, key=lambda it: (_has_drifted(it), it.name)):
        if _times(machine) and machine.fingerprint and machine.fingerprint.equals(fingerprint):
            found.setdefault(machine.lease_group or machine.name, machine)
    return sorted(found.values(), key=lambda it: (_has_drifted(it), it.name))


def builders_of(machines: Sequence[Machine]) -> int:
    """Number of simultaneous builds of all machines."""
    return sum(machine.slots for machine in machines if "build" in machine.roles)


def _times(machine: Machine) -> bool:
    return "time" in machine.roles and machine.fingerprint is not None


def _has_drifted(machine: Machine) -> bool:
    return abs(machine.drift - 1) > SPEED_TOLERANCE
