"""Worth of a round of a task, as published, in exact fractions.

Section 6.2 of Zheng et al., "Ansor", OSDI 2020 (arXiv:2006.06762), with the additions that
``autotune.search.schedulers.gradients`` documents, task by task and without a shortcut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from attrs import frozen

from autotune.search.schedulers import TaskInfo

STEP = Fraction(1, 1000)
"""Share of a latency by which it falls where the objective is the user's."""


@frozen
class Network:
    """Tasks with what was measured of them, and how their gradients are asked for.

    Attributes:
        tasks: The tasks.
        histories: Best latency of each after each of its rounds, None where there was none yet.
        sizes: Trials of these rounds.
        options: ``alpha``, ``beta`` and ``window``.
        objective: Of the latencies of programs; None for the weighted sum.
    """

    tasks: Sequence[TaskInfo]
    histories: Sequence[Sequence[float | None]]
    sizes: Sequence[Sequence[int]]
    options: Mapping[str, Any]
    objective: Callable[[Mapping[str, Any]], Any] | None = None

    def latency(self, task: int) -> Fraction | None:
        """Best latency of a task so far in seconds."""
        last = self.histories[task][-1]
        return None if last is None else Fraction(last)

    def speed(self, task: int) -> Fraction | None:
        """Best flop/s of a task so far: V."""
        latency, flop = self.latency(task), self.tasks[task].flop
        return Fraction(flop) / latency if latency and flop else None

    def rounds(self, task: int, last: int = 0) -> Fraction:
        """Rounds of the largest size that a task had, or that its ``last`` ones amount to: t."""
        return Fraction(sum(self.sizes[task][-last:]), max(max(own) for own in self.sizes))


def expected(network: Network, task: int) -> Fraction:
    """Latency of a task, or that of the slowest of all where it has none: g."""
    known = network.latency(task)
    if known is not None:
        return known
    every = range(len(network.tasks))
    speeds = [speed for other in every if (speed := network.speed(other)) is not None]
    if speeds and network.tasks[task].flop:
        return Fraction(network.tasks[task].flop) / min(speeds)
    return max((it for other in every if (it := network.latency(other)) is not None), default=0)


def backward(network: Network, task: int) -> Fraction:
    """Seconds that each of the last rounds has gained."""
    history, window = network.histories[task], network.options["window"]
    if len(history) < window + 1 or None in (now_and_then := (history[-1], history[-1 - window])):
        return Fraction(0)
    now, then = (Fraction(latency or 0) for latency in now_and_then)
    return (now - then) / network.rounds(task, window)


def reachable(network: Network, task: int, patience: int) -> Fraction | None:
    """Latency that tasks like this one promise, None where there is none: beta * C / max V."""
    info, own, beta = network.tasks[task], network.speed(task), Fraction(network.options["beta"])
    members = [it for it, other in enumerate(network.tasks) if other.group == info.group]
    speeds = {it: speed for it in members if (speed := network.speed(it)) is not None}
    others = [it for it in members if it != task]
    if not info.group or own is None or not any(it in speeds for it in others):
        return None
    fastest = max(speed for it, speed in speeds.items() if it != task)
    longest = max(len(network.histories[it]) for it in others)
    if own < fastest / beta and len(network.histories[task]) - longest > patience:
        return None
    return beta * Fraction(info.flop) / max(speeds.values())


def slope(network: Network, task: int) -> Fraction:
    """Seconds of the objective for a second of the task: df/dg."""
    if network.objective is None:
        return Fraction(network.tasks[task].weight)
    now = expected(network, task)

    def value(share: Fraction) -> Fraction:
        programs: dict[str, Fraction] = {}
        for index, info in enumerate(network.tasks):
            latency = expected(network, index) * (share if index == task else 1)
            programs[info.program] = min(latency, programs.get(info.program, latency))
        assert network.objective is not None
        return Fraction(network.objective(programs))

    return (value(Fraction(1)) - value(1 - STEP)) / (STEP * now) if now else Fraction(0)


def gradient(network: Network, task: int, patience: int) -> Fraction:
    """Change of the objective with a round of a task: df/dt."""
    now, spent, alpha = expected(network, task), network.rounds(task), network.options["alpha"]
    promised = reachable(network, task, patience)
    forward = -now / spent if promised is None else min(-now / spent, promised - now)
    gained = Fraction(alpha) * backward(network, task) + (1 - Fraction(alpha)) * forward
    contest = network.tasks[task].contest
    rivals = [it for it, other in enumerate(network.tasks) if contest and other.contest == contest]
    gap = max((now - expected(network, rival) for rival in rivals), default=Fraction(0))
    if gap > 0:
        gained = min(Fraction(0), gained + gap / spent)
    return slope(network, task) * gained
