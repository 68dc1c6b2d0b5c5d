"""The machines of a run whose runner is not this machine alone, and what its records call them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from autotune.errors import DatabaseError, InvalidValueError
from autotune.measure import SharedWorkers
from autotune.measure.engines import Fingerprint, MeasureEngine, RunnerContext, same_speed
from autotune.measure.engines.engine_workers import EngineWorkers
from autotune.measure.workers import WorkerSetup
from autotune.plugins.parts import create_part
from autotune.store.sqlite import open_database
from autotune.tuning.options import TuneOptions

__all__ = ["engine_workers", "known_protocols", "machine_tag", "make_engine", "machines_tag"]

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


def engine_workers(options: TuneOptions, backend: str, shared: SharedWorkers) -> EngineWorkers:
    """The machines that measure for a backend in this run; measurers find them in ``shared``."""
    threads = options.machine.cores
    setup = WorkerSetup(backend, options.machine, threads, options.protocol, options.observers)

    def make(setup: WorkerSetup, *, is_late: Callable[[], bool]) -> EngineWorkers:
        return EngineWorkers(make_engine(options, backend), setup, is_late=is_late)

    workers = shared.get(setup, make)
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
