"""The machines that a runner has now: what they are, how busy, and whether they have drifted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from autotune.measure.engines import ArtefactStore, Machine, MeasureEngine
from autotune.measure.engines.racers import choose_fingerprint
from autotune.process.errors import WorkerStartFailed
from autotune.process.private_folder import make_private_folder
from autotune.tuning.default_backend import backend_for
from autotune.tuning.machines import make_engine
from autotune.tuning.options import TuneOptions

__all__ = ["Fleet", "MachineState", "look_at_fleet"]

_POLL_SECONDS = 0.1
# Machines are listed once so long has passed without another one joining.
_SETTLE_SECONDS = 2.0
_LEASE_SECONDS = 60.0


@frozen
class MachineState:
    """A machine of a fleet.

    Attributes:
        machine: The machine.
        takes_part: Whether it would take part in a race now: whether it only builds, or has the
            fingerprint of most.
        reference_seconds: What the reference program takes now; None where it was not timed.
    """

    machine: Machine
    takes_part: bool
    reference_seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        machine = self.machine
        mine = machine.fingerprint
        return {
            "name": machine.name,
            "roles": sorted(machine.roles),
            "slots": machine.slots,
            "lease_group": machine.lease_group,
            "load": machine.load,
            "incarnation": machine.incarnation,
            "drift": machine.drift,
            "fingerprint": mine and {"digest": mine.digest, **asdict(mine)},
            "takes_part": self.takes_part,
            "reference_seconds": self.reference_seconds,
        }


@frozen
class Fleet:
    """Machines of a runner.

    Attributes:
        runner: Its name.
        backend: What they build with.
        machines: By name.
        warnings: What the runner has to say.
    """

    runner: str
    backend: str
    machines: tuple[MachineState, ...]
    warnings: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "runner": self.runner,
            "backend": self.backend,
            "machines": [it.to_json() for it in self.machines],
            "warnings": list(self.warnings),
        }


def look_at_fleet(options: TuneOptions, clock: Callable[[], float] = time.monotonic) -> Fleet:
    """Start a runner, list its machines, and time the reference program on each that is free.

    Args:
        options: With the runner and its options, the backend and the protocol.
        clock: Monotonic seconds.

    Raises:
        WorkerStartFailed: no machine joins within the deadline ``start`` of the protocol.
    """
    backend = options.backend[0] if options.backend else backend_for((), options)
    folder = make_private_folder()
    try:
        artefacts = Path(folder.path) / "artefacts"
        os.mkdir(artefacts)
        with make_engine(options, backend) as engine:
            engine.start(ArtefactStore(artefacts))
            said = _await_machines(engine, options.protocol.deadlines["start"], clock)
            states = _looked_at(engine)
            said += engine.take_warnings()
            return Fleet(engine.name, backend, states, tuple(dict.fromkeys(said)))
    finally:
        folder.remove()


def _await_machines(
    engine: MeasureEngine, seconds: float, clock: Callable[[], float]
) -> list[str]:
    """Wait for machines that time, and for others that join right after them.

    Returns what the runner said meanwhile. Where machines only build, it says why.
    """
    begin, said = clock(), list[str]()
    while not any("time" in it.roles for it in engine.machines()):
        said += engine.take_warnings()
        if engine.machines() and said:
            break
        if clock() - begin > seconds:
            if engine.machines():
                break
            what = f"runner {engine.name!r} has no machine after {seconds:g} s"
            raise WorkerStartFailed("; ".join((what, *said)))
        engine.poll(_POLL_SECONDS)
    found, settled = len(engine.machines()), clock() + _SETTLE_SECONDS
    while clock() < settled:
        engine.poll(_POLL_SECONDS)
        if len(engine.machines()) != found:
            found, settled = len(engine.machines()), clock() + _SETTLE_SECONDS
    return said


def _looked_at(engine: MeasureEngine) -> tuple[MachineState, ...]:
    seconds: dict[str, float | None] = {}
    for machine in engine.machines():
        lease = None
        if "time" in machine.roles:
            lease = engine.lease(machine.name, _LEASE_SECONDS)
        if lease is not None:
            with lease:
                seconds[machine.name] = engine.check_speed(machine.name)
    machines = sorted(engine.machines(), key=lambda it: it.name)
    wanted = choose_fingerprint(machines)
    return tuple(
        MachineState(
            machine,
            machine.fingerprint is None
            or (wanted is not None and machine.fingerprint.equals(wanted)),
            seconds.get(machine.name),
        )
        for machine in machines
    )
