"""The machines of a run whose runner is not this machine alone, and what its records call them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from autotune.errors import DatabaseError, InvalidValueError
from autotune.measure import SharedWorkers
from autotune.measure.engines import (
    ArtefactStore,
    Fingerprint,
    Machine,
    MeasureEngine,
    RunnerContext,
    same_speed,
)
from autotune.measure.engines.interface import choose_fingerprint
from autotune.measure.workers import EngineWorkers, WorkerSetup
from autotune.plugins.parts import create_part
from autotune.process.errors import WorkerStartFailed
from autotune.process.private_folder import make_private_folder
from autotune.store.sqlite import open_database
from autotune.tuning.options import TuneOptions
from autotune.tuning.programs import backend_for

__all__ = [
    "Fleet",
    "MachineState",
    "engine_workers",
    "known_protocols",
    "look_at_fleet",
    "machine_tag",
    "machines_tag",
    "make_engine",
    "worker_setup",
]

_TAG = re.compile(r"\+machine-([0-9a-f]+)(?:@([0-9.e+-]+)s)?$")


def make_engine(options: TuneOptions, backend: str) -> MeasureEngine:
    """The engine of the chosen runner, not started.

    Args:
        options: How to tune.
        backend: Name of the backend.

    Raises:
        AutotuneError: the runner cannot be made, an option of it is wrong, or it cannot measure
            on the target.
    """
    chosen = options.chosen["runner"]
    if options.machine.kind != "cpu":
        raise InvalidValueError(
            f"runner {chosen.name!r} measures on CPUs so far; for target {options.machine.name!r} "
            f"of kind {options.machine.kind!r}, leave --runner out: the device of this machine is "
            "used"
        )
    context = RunnerContext(
        backend=backend,
        target=options.machine,
        threads=options.machine.cores,
        protocol=options.protocol,
        observers=options.observers,
        options=chosen.options,
    )
    engine: MeasureEngine = create_part("runner", chosen.name, context)
    return engine


def worker_setup(options: TuneOptions, backend: str) -> WorkerSetup:
    """The workers that the usual measurer takes for a backend."""
    machine = options.machine
    return WorkerSetup(backend, machine, machine.cores, options.protocol, options.observers)


def engine_workers(options: TuneOptions, backend: str, shared: SharedWorkers) -> EngineWorkers:
    """The machines that measure for a backend in this run; measurers find them in ``shared``."""

    def make(setup: WorkerSetup, *, is_late: Callable[[], bool]) -> EngineWorkers:
        return EngineWorkers(make_engine(options, backend), setup, is_late=is_late)

    workers = shared.get(worker_setup(options, backend), make)
    if not isinstance(workers, EngineWorkers):
        raise TypeError(f"the workers for backend {backend!r} are {type(workers).__name__}")
    return workers


def machines_tag(options: TuneOptions, backend: str, shared: SharedWorkers) -> str:
    """Tag of measure keys for a run's machines; "" for this machine without an engine.

    Starts the engine, and waits until a machine has joined.

    Raises:
        WorkerStartFailed: none has; says what is missing.
    """
    if not options.uses_engine:
        return ""
    fingerprint = engine_workers(options, backend, shared).fingerprint
    return machine_tag(fingerprint, known_protocols(options.database))


def machine_tag(fingerprint: Fingerprint, known: Iterable[str]) -> str:
    """Names machines of a fingerprint in the protocol of a measure key.

    The speed is compared with a tolerance, so that the first one that was recorded stands for all
    machines that are as fast.

    Args:
        fingerprint: Of the machines.
        known: Protocols of measure keys that are recorded.
    """
    digest, seconds = fingerprint.digest, fingerprint.reference_seconds
    for protocol in known:
        found = _TAG.search(protocol)
        if found and found[1] == digest and same_speed(float(found[2] or 0.0), seconds):
            return found[0]
    return f"+machine-{digest}" + (f"@{seconds:.4g}s" if seconds else "")


def known_protocols(database: str) -> Sequence[str]:
    """Protocols of the runs in a database, the oldest first; none where it cannot be read."""
    try:
        with open_database(database, read_only=True) as opened:
            runs = sorted(opened.runs(), key=lambda run: run.created)
    except DatabaseError:
        # The run itself opens it for writing, and says what is wrong with it.
        return []
    return list(dict.fromkeys(run.key.protocol for run in runs))


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
        """Convert to JSON data."""
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
        """Convert to JSON data."""
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
