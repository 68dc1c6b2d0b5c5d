"""Does building disturb timing: the part of `measuring.py` that builds beside and before timings.

The same candidates are timed in turns, with and without something else going on; what counts is
the ratio within a turn.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from draft import draw

from autotune.measure import Collecting, LocalMeasurer
from autotune.measure.pinning import quiet_neighbour_matters, timing_cpus
from autotune.measure.timing import median_interval
from autotune.store.records import Outcome
from support.candidate_server import CandidateServer
from support.common import Bar, cores

OPERATOR = "gemm"
# About as long as a build.
IDLE_SECONDS = 0.1

BIAS = 0.02


@dataclass
class Disturbance:
    """Effects of building on timings.

    Attributes:
        neighbours: Whether the CPUs that are left over share cores with those that time; None
            where none is left over.
        beside: By turn, the median over candidates of seconds with the other CPUs building over
            seconds with them idle; one thread.
        built: How many candidates were built meanwhile.
        after: The same for seconds right after a build over seconds after idling; all cores.
        overlapping: Outcomes of one-threaded candidates that the measurer told while it was
            building others.
        told: Outcomes that it told in all.
    """

    neighbours: bool | None = None
    beside: list[float] = field(default_factory=list)
    built: int = 0
    after: list[float] = field(default_factory=list)
    overlapping: int = 0
    told: int = 0


def measure_beside(found: Disturbance, count: int, turns: int) -> None:
    """Time one-threaded candidates with and without builds on the other CPUs."""
    (cpu,), others = timing_cpus(1)
    if not others:
        return
    found.neighbours = any(quiet_neighbour_matters(cpu, other) for other in others)
    _, target, candidates = draw(OPERATOR, count, 1)
    with contextlib.ExitStack() as stack:
        timer = stack.enter_context(CandidateServer(candidates, target, 1, [cpu]))
        builders = [
            stack.enter_context(CandidateServer(candidates, target, 1, [other], build=False))
            for other in others
        ]
        for turn in range(turns):
            seconds: dict[bool, list[float]] = {}
            for busy in (True, False) if turn % 2 else (False, True):
                with contextlib.ExitStack() as at_work:
                    counts = [at_work.enter_context(it.building()) for it in builders if busy]
                    seconds[busy] = [timer.ask("time", i)["seconds"] for i in timer.ready]
                found.built += sum(map(sum, counts))
            found.beside.append(_ratio(seconds[True], seconds[False]))


def measure_after(found: Disturbance, count: int, turns: int) -> None:
    """Time candidates on all cores right after a build in the same process, and after idling."""
    _, target, candidates = draw(OPERATOR, count, 2)
    with CandidateServer(candidates, target, cores(), range(cores())) as server:
        for turn in range(turns):
            seconds: dict[bool, list[float]] = {True: [], False: []}
            for number in server.ready:
                for busy in (True, False) if turn % 2 else (False, True):
                    if busy:
                        server.ask("build", number)
                    else:
                        time.sleep(IDLE_SECONDS)
                    seconds[busy].append(server.ask("time", number)["seconds"])
            found.after.append(_ratio(seconds[True], seconds[False]))


def watch_measurer(found: Disturbance, count: int) -> None:
    """See whether the measurer builds while it times programs of one thread."""
    workload, target, candidates = draw(OPERATOR, 2 * count, 3)
    moments: list[float] = []

    def note(_number: int, outcome: Outcome) -> None:
        if outcome.ok:
            moments.append(time.monotonic())

    with LocalMeasurer("tvm", target, 1, workload) as measurer:
        measurer.submit(candidates[:count])
        measurer.submit(candidates[count:])
        measurer.collect(Collecting(on_outcome=note))
        measurer.collect(Collecting(on_outcome=note))
        spans = measurer.take_build_spans()
    found.told = len(moments)
    found.overlapping = sum(
        any(begin < moment < end for begin, end in spans) for moment in moments
    )


def _ratio(busy: Sequence[float], idle: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(busy, idle, strict=True))


def _interval(ratios: Sequence[float]) -> str:
    interval = median_interval(ratios)
    if interval is None:
        return f"{len(ratios)} turns from {min(ratios):.3f} to {max(ratios):.3f}"
    return "95 % interval {:.3f} to {:.3f}".format(*interval)


def show(found: Disturbance) -> None:
    """Print it."""
    if found.neighbours is None:
        print("one thread: no CPU is left over that could build")
    else:
        share = "share a core" if found.neighbours else "do not share a core"
        print(f"one thread: the CPU that times and the others {share}")
        print(
            f"  beside builds over alone: {statistics.median(found.beside):.3f}, "
            f"{_interval(found.beside)}; {found.built} built meanwhile"
        )
        print(
            f"  the measurer told {found.overlapping} of {found.told} outcomes while it was "
            "building"
        )
    print(
        f"all cores: after a build over after idling: {statistics.median(found.after):.3f}, "
        f"{_interval(found.after)}",
        flush=True,
    )


def bars_of(found: Disturbance) -> list[Bar]:
    """The promises: no bias, and no overlap where that would be one."""
    bars = []
    if found.neighbours:
        bars.append(
            Bar(
                "one thread, CPUs share a core: outcomes told during builds",
                found.overlapping,
                0,
                at_most=True,
            )
        )
    elif found.neighbours is not None:
        bias = abs(statistics.median(found.beside) - 1) if found.built else None
        note = _interval(found.beside)
        bars.append(Bar("one thread: bias by builds on other CPUs", bias, BIAS, True, note))
    after = abs(statistics.median(found.after) - 1)
    note = _interval(found.after)
    return [*bars, Bar("all cores: bias by a build before", after, BIAS, True, note)]
