"""Quality of a model's ranking: pure functions of scores and latencies.

A model is asked about tasks; a task has one score and one latency per candidate. Scores of
different tasks need not compare. A candidate that failed has an infinite latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.models.cost import TrainingGroup
from autotune.sketches import CandidateBatch
from autotune.sketches.candidates import order_of

__all__ = [
    "ScoredTask",
    "drafted_score",
    "pairwise_accuracy",
    "peak_score",
    "quality_figures",
    "score_groups",
    "top_k_score",
]

Numbers = Sequence[float] | NDArray[np.float64]
Scorer = Callable[[CandidateBatch], NDArray[np.float64]]

_ALL_TOP = (1, 5)


def _column(values: Numbers) -> NDArray[np.float64]:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1 or np.isnan(column).any():
        raise InvalidValueError("scores and latencies are numbers in a row, none of them NaN")
    return column


@frozen(eq=False)
class ScoredTask:
    """Predictions of a model for a task's candidates, beside their latencies.

    Attributes:
        scores: [n], higher is better.
        latencies: [n], in seconds; infinite for failures. One at least is finite.
        weight: How often the task occurs.

    Raises:
        InvalidValueError: lengths differ, something is not a number, or nothing is finite.
    """

    scores: NDArray[np.float64] = field(converter=_column)
    latencies: NDArray[np.float64] = field(converter=_column)
    weight: float = 1.0

    def __attrs_post_init__(self) -> None:
        if len(self.scores) != len(self.latencies):
            raise InvalidValueError(
                f"{len(self.scores)} scores for {len(self.latencies)} latencies"
            )
        if not np.isfinite(self.latencies).any():
            raise InvalidValueError("a task without a valid candidate has no best one")

    @property
    def best(self) -> float:
        """Lowest latency of all candidates, in seconds."""
        return float(self.latencies.min())

    def best_of_top(self, k: int) -> float:
        """Lowest latency among the ``k`` with the highest scores, in seconds.

        Candidates with equal scores might come in any order: the mean of the outcome over all of
        them is taken, in terms of speed. Infinite where all of them failed.
        """
        if k < 1:
            raise InvalidValueError(f"the best of the first {k} is not defined")
        k = min(k, len(self.scores))
        threshold = np.sort(self.scores)[-k]
        sure = self.latencies[self.scores > threshold]
        tied = np.sort(self.latencies[self.scores == threshold])
        mean = _mean_best(float(sure.min()) if len(sure) else math.inf, tied, k - len(sure))
        return max(mean, self.best)


def _mean_best(sure: float, tied: NDArray[np.float64], drawn: int) -> float:
    """Harmonic mean of the best latency when ``drawn`` of ``tied`` (ascending) join ``sure``."""
    count = len(tied)
    speed, left = 0.0, 1.0
    for place, latency in enumerate(tied.tolist()):
        if count - place < drawn:
            break
        # Probability that the fastest drawn is this one, given that no faster one was drawn.
        chance = drawn / (count - place)
        speed += left * chance / max(min(sure, latency), 1e-300)
        left *= 1 - chance
    return math.inf if speed == 0 else 1 / speed


def top_k_score(tasks: Sequence[ScoredTask], k: int) -> float:
    """TenSet's top-k score, in [0, 1].

    The weighted sum of the best latencies of all tasks over that of the best among the ``k``
    candidates with the highest scores (Zheng et al., NeurIPS 2021, section 4).
    """
    reached = sum(task.weight * task.best_of_top(k) for task in tasks)
    return sum(task.weight * task.best for task in tasks) / reached


def peak_score(tasks: Sequence[ScoredTask], k: int) -> float:
    """Mean over tasks of best latency over best latency among the top ``k``, in [0, 1].

    Unlike in :func:`top_k_score`, a long task counts no more than a short one.
    """
    shares = [task.best / task.best_of_top(k) for task in tasks]
    return float(np.average(shares, weights=[task.weight for task in tasks]))


def drafted_score(tasks: Sequence[ScoredTask], size: int, k: int) -> float:
    """Quality of a draft that keeps ``size`` candidates, in [0, 1].

    The weighted sum of the best latencies over that of the k-th best latencies among those that
    were kept (Pruner, ASPLOS 2025: Best-k, with 256 kept and k of 1, 5, 20).
    """
    reached = 0.0
    for task in tasks:
        kept = np.argsort(-task.scores, kind="stable")[:size]
        ordered = np.sort(task.latencies[kept])
        reached += task.weight * float(ordered[min(k, len(ordered)) - 1])
    return sum(task.weight * task.best for task in tasks) / reached


def pairwise_accuracy(task: ScoredTask) -> float:
    """Share of pairs of different latency that the scores order rightly, in [0, 1].

    Equal scores are half right. Any failure is slower than what works; pairs of failures do not
    count. Without a pair, it is 1/2: nothing is known.
    """
    faster = task.latencies[:, None] < task.latencies[None, :]
    higher = task.scores[:, None] > task.scores[None, :]
    equal = task.scores[:, None] == task.scores[None, :]
    pairs = int(faster.sum())
    if not pairs:
        return 0.5
    return float((faster & higher).sum() + 0.5 * (faster & equal).sum()) / pairs


def score_groups(score: Scorer, groups: Sequence[TrainingGroup]) -> list[ScoredTask]:
    """Predictions of a model for recorded tasks; those without a valid candidate are left out.

    Args:
        score: ``CostModel.predict`` or ``PruningModel.score``.
        groups: The tasks.
    """
    tasks = []
    for group in groups:
        if group.is_informative:
            candidates = [candidate for candidate, _ in group.outcomes]
            scores = score(CandidateBatch.of(candidates))[order_of(candidates)]
            latencies = [outcome.latency for _, outcome in group.outcomes]
            known = [math.inf if latency is None else latency for latency in latencies]
            tasks.append(ScoredTask(scores, known))
    return tasks


def quality_figures(tasks: Sequence[ScoredTask]) -> Mapping[str, float]:
    """The figures by which models are compared: ``top1``, ``top5``, ``pairwise``.

    Raises:
        InvalidValueError: there is no task.
    """
    if not tasks:
        raise InvalidValueError("there is no task with a valid candidate to judge a model by")
    figures = {f"top{k}": top_k_score(tasks, k) for k in _ALL_TOP}
    pairwise = float(np.mean([pairwise_accuracy(task) for task in tasks]))
    return {**figures, "pairwise": pairwise}
