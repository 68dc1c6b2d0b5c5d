"""Expected gain of a network from one more round of each task: pure functions.

From section 6.2 of Zheng et al., "Ansor: Generating High-Performance Tensor Programs for Deep
Learning", OSDI 2020 (arXiv:2006.06762). With g_i(t) the best latency of task i after t rounds,
and the objective f = sum over tasks of w_i * g_i, the weighted latency of the network::

    df/dt_i  ~  df/dg_i * (alpha * backward_i + (1 - alpha) * forward_i)

    df/dg_i    = w_i, or a difference quotient where the objective is a function of the user's
    backward_i = (g_i(t_i) - g_i(t_i - window)) / window
    forward_i  = min(-g_i(t_i) / t_i,  beta * C_i / max over k in N(i) of V_k  -  g_i(t_i))

``forward`` is optimistic twice: as many rounds again might bring the latency to zero, and a
task might come within a factor beta of the flop/s V_k of the tasks N(i) that resemble it (C_i:
its flop). The gradient is never positive; the most negative one deserves the next round.

Where several backends compete for one program, only the fastest of them counts: the objective
has the minimum over their tasks. A task that is behind closes the gap before it gains anything.
With the same optimism as above, its slope holds for as many rounds again as it has had::

    df/dt_i  ~  w_i * min(0, slope_i + (g_i - min over its contest of g_k) / t_i)

so that backends which are near each other get about as many rounds, and one that is slower by more
than 1 / alpha gets none.

Rounds may differ in size: all of the above counts in rounds of the largest size, of which a
smaller one is a fraction.

Three cases that the formula leaves open:

- ``backward`` is 0 until there are ``window`` earlier rounds with a latency, as in the authors'
  code.
- A task in a group that stays below 1 / beta of the group's best flop/s although it had over
  ``PATIENCE`` rounds more than every other member is not like them: it counts as alone, or it
  would get every round from then on. The authors' code does the same.
- A task without any valid candidate yet is taken to be as slow, in flop/s, as the slowest task
  that has one (or, without flop, to take as long as the longest), so that it is tried again but
  does not get every round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from autotune.search.schedulers.task_scheduler import Objective, TaskInfo, objective_slopes

PATIENCE = 5
"""Rounds more than all others of its group after which a slow task counts as alone."""

History: TypeAlias = "Sequence[float | None]"
"""Best latency so far in seconds after each round; None where no candidate was valid yet."""


def task_gradients(
    tasks: Sequence[TaskInfo],
    histories: Sequence[History],
    sizes: Sequence[Sequence[int]] | None = None,
    *,
    alpha: float = 0.2,
    beta: float = 2.0,
    window: int = 3,
    objective: Objective | None = None,
) -> list[float]:
    """Expected change of the objective per round, for each task.

    It is in seconds where the objective is the weighted latency.

    Args:
        tasks: The tasks.
        histories: For each task its latencies, at least one.
        sizes: For each task the trials of these rounds; None where all rounds have as many.
        alpha: Trust in the past improvement, in [0, 1]; the rest is trust in the optimistic guess.
        beta: How far from the flop/s of similar tasks a task may be expected to end.
        window: Rounds over which the past improvement is taken.
        objective: What is minimised; None for the weighted sum of latencies.

    Returns:
        One number per task, 0 or negative unless the objective falls with a latency; all 0 while
        no task has a latency.

    Raises:
        InvalidValueError: the objective is no finite number.
        PluginError: the objective raised something.
    """
    if sizes is None:
        sizes = [[1] * len(history) for history in histories]
    largest = max((size for rounds in sizes for size in rounds), default=1)
    latencies = expected_latencies(tasks, histories)
    slopes = objective_slopes(tasks, latencies, objective)
    result = []
    for index, (task, history) in enumerate(zip(tasks, histories, strict=True)):
        now, spent = latencies[index], sum(sizes[index]) / largest
        similar = similar_latency(index, tasks, histories, beta)
        forward = min(-now / spent, now if similar is None else beta * similar - now)
        past = backward_gradient(history, window, sum(sizes[index][-window:]) / largest)
        slope = alpha * past + (1 - alpha) * forward
        behind = now - _fastest_rival(task, tasks, latencies)
        # What is not behind keeps its slope, also when that is not a number that is below zero.
        gained = slope if behind <= 0 else min(0.0, slope + behind / spent)
        result.append(slopes[index] * gained)
    return result


def _fastest_rival(task: TaskInfo, tasks: Sequence[TaskInfo], latencies: Sequence[float]) -> float:
    """Latency of the fastest task in a task's contest, its own included; infinite without one."""
    if not task.contest:
        return math.inf
    rivals = zip(tasks, latencies, strict=True)
    return min(latency for other, latency in rivals if other.contest == task.contest)


def backward_gradient(history: History, window: int, spent: float | None = None) -> float:
    """Seconds per round gained over the last ``window`` rounds, 0 or negative.

    Args:
        history: Latencies.
        window: How many rounds.
        spent: How many rounds of the largest size these are; None for ``window``.
    """
    if len(history) <= window:
        return 0.0
    now, before = history[-1], history[-1 - window]
    return 0.0 if now is None or before is None else (now - before) / (spent or window)


def expected_latencies(tasks: Sequence[TaskInfo], histories: Sequence[History]) -> list[float]:
    """Latency of each task in seconds, guessed where it has none; 0 while no task has one."""
    known = [
        (history[-1], task.flop)
        for task, history in zip(tasks, histories, strict=True)
        if history[-1] is not None
    ]
    longest = max((latency for latency, _ in known), default=0.0)
    slowest = max((latency / flop for latency, flop in known if flop), default=None)
    result = []
    for task, history in zip(tasks, histories, strict=True):
        latency = history[-1]
        if latency is None:
            latency = slowest * task.flop if slowest is not None and task.flop else longest
        result.append(latency)
    return result


def similar_latency(
    index: int, tasks: Sequence[TaskInfo], histories: Sequence[History], beta: float
) -> float | None:
    """Seconds that a task would take at the best flop/s of its group; None if it is alone.

    A task is alone without a group, latency or flop, and once it proved unlike its group.
    """
    task, latency = tasks[index], histories[index][-1]
    if not task.group or latency is None or not task.flop:
        return None
    others = [k for k, other in enumerate(tasks) if other.group == task.group and k != index]
    # Seconds per flop rather than flop per second: a latency of zero divides nothing.
    rates = [
        rate / tasks[k].flop
        for k in others
        if tasks[k].flop and (rate := histories[k][-1]) is not None
    ]
    if not rates:
        return None
    rounds = max(len(histories[k]) for k in others)
    best = min(rates) * task.flop
    if latency > beta * best and len(histories[index]) > PATIENCE + rounds:
        return None
    return min(best, latency)
