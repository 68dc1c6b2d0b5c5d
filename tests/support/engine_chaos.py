"""Measuring while machines misbehave: every job ends once, whatever happens to who does it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from process_facts import becomes_true, running

from autotune.measure.engines import Fingerprint, Machine, Reply
from autotune.testing.engine_suite import EngineHost

REPEATED = ("again", "lost", "died", "timeout")
# For a machine to be given up, and another one to be there, on a busy machine.
_PATIENCE = 300.0


def measure_through(host: EngineHost, jobs: int, at: int, fault: Callable[[], None]) -> list[str]:
    """Build and time so many programs, with a fault before one of them.

    What was lost is asked for again here, as measurers do. Only machines are timed on that are
    like those of the beginning. Returns the warnings.
    """
    wanted = host.timer().fingerprint
    assert wanted is not None
    replies: Counter[int] = Counter()
    futures: list[Future[Reply]] = []

    def count(future: Future[Reply]) -> Future[Reply]:
        number = len(futures)
        futures.append(future)
        future.add_done_callback(lambda _done: replies.update([number]))
        return future

    def until_done(ask: Callable[[], Future[Reply] | None]) -> Reply:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end:
            future = ask()
            if future is None:
                continue
            reply = host.reply(count(future))
            assert reply.kind in ("done", *REPEATED), reply
            if reply.kind == "done":
                return reply
        raise AssertionError("a job was not done in the end")

    measured = 0
    for number in range(jobs):
        ahead = [count(host.build()) for _ in range(2)]
        if number == at:
            fault()
        artefact = until_done(host.build).body["artefact"]
        reply = until_done(lambda artefact=artefact: _timed(host, artefact, wanted))  # type: ignore[misc]
        measured += len(reply.body["samples"]) > 0
        for future in ahead:
            assert host.reply(future).kind in ("done", *REPEATED)
    host.engine.poll(0.5)
    assert measured == jobs
    assert set(replies.values()) == {1} and len(replies) == len(futures)
    warnings = host.engine.take_warnings()
    assert all(len(warning.splitlines()) == 1 for warning in warnings)
    return warnings


def _timed(host: EngineHost, artefact: str, wanted: Fingerprint) -> Future[Reply] | None:
    """A program's run; None where no machine is free yet."""
    # By all but the speed: what else runs here makes that differ.
    alike = (it for it in host.engine.machines() if "time" in it.roles and it.fingerprint)
    machine = next((it for it in alike if it.fingerprint.digest == wanted.digest), None)  # type: ignore[union-attr]
    lease = None if machine is None else host.engine.lease(machine.name, 600.0)
    if machine is None or lease is None:
        host.engine.poll(0.2)
        return None
    with lease:
        future = host.run(artefact, current(host, machine))
        host.wait(future.done)
    return future


def current(host: EngineHost, machine: Machine) -> Machine:
    """A machine as it is now."""
    alike = (it for it in host.engine.machines() if it.name == machine.name)
    return next(alike, machine)


def are_gone(pids: set[int]) -> bool:
    """Tell whether all these processes end in time; one that waits to be reaped has ended."""
    return becomes_true(lambda: not running(pids))
