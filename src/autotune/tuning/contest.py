"""Comparison of several backends on one program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from attrs import evolve

from autotune.measure import LoadedProgram, MeasureProtocol
from autotune.measure.racing import Race, compare
from autotune.process.stopwatch import Stopwatch
from autotune.store.records import Contest
from autotune.store.trial_log import TrialLog
from autotune.tuning.programs import TaskRun
from autotune.tuning.result import Result, Rival
from autotune.tuning.task import TaskSession

__all__ = ["finalists", "compare_backends", "needs_comparison", "joined_results", "rivals"]


def rivals(tasks: Sequence[TaskRun]) -> dict[str, list[int]]:
    """Positions of the tasks that compete for each program, by the program's name."""
    found: dict[str, list[int]] = {}
    for position, task in enumerate(tasks):
        if task.contest:
            found.setdefault(task.contest, []).append(position)
    return found


def finalists(tasks: Iterable[tuple[TaskRun, TrialLog]]) -> dict[str, str]:
    """Digest of each backend's best candidate, by name of the backend."""
    return {task.key.backend: log.best.digest for task, log in tasks if log.best is not None}


def needs_comparison(tasks: Iterable[tuple[TaskRun, TrialLog]], earlier: Contest | None) -> bool:
    """Return whether there is something to compare that has not been compared.

    Args:
        tasks: Those that compete, with their trials.
        earlier: What is known of the contest.
    """
    found = finalists(tasks)
    return len(found) > 1 and (earlier is None or dict(earlier.finalists) != found)


def compare_backends(
    sessions: Sequence[TaskSession],
    protocol: MeasureProtocol,
    rng: np.random.Generator,
    watch: Stopwatch,
) -> Contest:
    """Time the best candidate of each backend in turns with those of the others.

    What fails now is left out; the recorded best of a backend remains.

    Args:
        sessions: The tasks of one program, of which two at least have a valid candidate.
        protocol: How to time.
        rng: Shuffles the turns.
        watch: Time of the run.
    """
    able = sorted(
        (session for session in sessions if session.log.best is not None),
        key=lambda session: session.log.best_latency or 0.0,
    )
    names = [session.run.key.backend for session in able]
    found = finalists((session.run, session.log) for session in sessions)
    held = [session.hold_winner() for session in able]
    with watch.timing("confirm"):
        times = _race(held, protocol, rng)
    timed = [number for number, seconds in enumerate(times) if seconds]
    if not timed:
        return Contest(names[0], found, {})
    winner = min(timed, key=lambda number: compare(times[timed[0]], times[number]).ratio)
    over = {
        names[number]: compare(times[winner], times[number])
        for number in timed
        if number != winner
    }
    return Contest(names[winner], found, over)


def _race(
    held: Sequence[LoadedProgram], protocol: MeasureProtocol, rng: np.random.Generator
) -> list[list[float]]:
    """Seconds of each program, turn by turn; none for those that failed."""
    race = Race.under(protocol, len(held))
    race.run(
        lambda number, placement: held[number].turn(placement),
        rng,
        is_over=_is_over,
        drop=lambda race: None,
        needs_first=False,
    )
    return [race.times[number] if number in race.running else [] for number in range(len(held))]


def _is_over(race: Race) -> bool:
    return not race.running or (race.rounds >= race.min_rounds and race.over)


def joined_results(
    tasks: Sequence[TaskRun], results: Sequence[Result], contests: Mapping[str, Contest]
) -> list[Result]:
    """Join results to one for each program: the winner's, with the other backends' beside it.

    Without a contest the winner is the backend with the lowest latency, or the first one where
    no candidate of any was valid.

    Args:
        tasks: The tasks of a run.
        results: Theirs, in order.
        contests: What is known of each contest, by name.
    """
    groups = rivals(tasks)
    joined = []
    for position, (task, result) in enumerate(zip(tasks, results, strict=True)):
        group = groups.get(task.contest, [position])
        if group[0] != position:
            continue
        if not task.contest:
            joined.append(result)
            continue
        competing = [results[other] for other in group]
        joined.append(_winner(task.contest, competing, contests.get(task.contest)))
    return joined


def _winner(name: str, results: Sequence[Result], contest: Contest | None) -> Result:
    def place(result: Result) -> tuple[bool, bool, float]:
        lost = contest is not None and result.backend != contest.winner
        latency = None if result.best is None else result.best.latency
        return result.best is None, lost, latency or 0.0

    first, *others = sorted(results, key=place)
    over = {} if contest is None else contest.over
    beaten = tuple(Rival(evolve(other, task=name), over.get(other.backend)) for other in others)
    return evolve(first, task=name, rivals=beaten)
