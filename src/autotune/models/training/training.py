"""Cross-validation of cost models over recorded tasks.

Quality of a model's ranking: pure functions of scores and latencies.

A model is asked about tasks; a task has one score and one latency per candidate. Scores of
different tasks need not compare. A candidate that failed has an infinite latency.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.ir.workloads import Workload
from autotune.models.context import ModelContext
from autotune.models.cost import TrainableCostModel, TrainingGroup
from autotune.plugins.parts import create_part
from autotune.plugins.workload_names import task_name
from autotune.sketches import Candidate, CandidateBatch
from autotune.sketches.candidates import in_order
from autotune.store.records import MeasureKey, Outcome, Record
from autotune.targets import Target

__all__ = [
    "FoldScore",
    "ScoredTask",
    "Trained",
    "cross_validate",
    "drafted_score",
    "folds_by_task",
    "judge",
    "make_trainable",
    "mean_figures",
    "only_target",
    "pairwise_accuracy",
    "peak_score",
    "quality_figures",
    "score_groups",
    "select_tasks",
    "top_k_score",
    "train",
    "training_groups",
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
            scores = in_order([candidate for candidate, _ in group.outcomes], score)
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


@frozen(eq=False)
class FoldScore:
    """Quality of a model trained on the other folds in ranking the candidates of one.

    Attributes:
        names: Names of the tasks that it was judged by.
        tasks: Its scores of them, beside their latencies.
        figures: See :func:`autotune.models.training.quality_figures`.
    """

    names: tuple[str, ...]
    tasks: tuple[ScoredTask, ...] = field(repr=False)
    figures: Mapping[str, float]


@frozen(eq=False)
class Trained:
    """A model, and what is known of it.

    Attributes:
        model: The model.
        groups: The tasks that it was trained on.
        facts: What the model says of its training.
        scores: How well it, or models that were trained like it, rank what they have not seen.
    """

    model: TrainableCostModel
    groups: tuple[TrainingGroup, ...]
    facts: Mapping[str, float]
    scores: tuple[FoldScore, ...]

    @property
    def rows(self) -> int:
        """Outcomes that it was trained on."""
        return sum(len(group.outcomes) for group in self.groups)


def make_trainable(name: str, context: ModelContext) -> TrainableCostModel:
    """A new cost model.

    Args:
        name: Its name, or an import string.
        context: What it is made with.

    Raises:
        UnknownNameError: there is no such model.
        InvalidValueError: it cannot be trained on recorded data.
    """
    model = create_part("cost_model", name, context)
    if not isinstance(model, TrainableCostModel):
        raise InvalidValueError(
            f"cost model {name!r} cannot be trained on recorded data: it is not a "
            "TrainableCostModel"
        )
    return model


def train(
    make: Callable[[], TrainableCostModel],
    groups: Sequence[TrainingGroup],
    *,
    folds: int = 0,
    held_out: Iterable[str] = (),
    seed: int = 0,
) -> Trained:
    """Train a model on recorded tasks, and judge it by tasks that it has not seen.

    Args:
        make: Makes an untrained model.
        groups: The tasks; those without a valid candidate are left out.
        folds: So many models are trained on parts of the tasks and judged by the rest; 0 for none.
            The model that is returned is trained on all.
        held_out: Tasks that are left out of all training, and that the model is judged by; see
            :func:`autotune.models.training.select_tasks`.
        seed: Decides which tasks are together in a fold.

    Raises:
        UnknownNameError: a task that is to be held out is not there.
        InvalidValueError: there is nothing to train on, or there are fewer tasks than folds.
    """
    informative = [group for group in groups if group.is_informative]
    kept, held = select_tasks(informative, held_out)
    if not kept:
        raise InvalidValueError("there is no task with a valid candidate to train on")
    scores = cross_validate(make, kept, folds, seed) if folds else []
    model = make()
    facts = model.fit(kept)
    if held:
        scores.append(judge(model, held))
    return Trained(model, tuple(kept), facts, tuple(scores))


def cross_validate(
    make: Callable[[], TrainableCostModel],
    groups: Sequence[TrainingGroup],
    folds: int,
    seed: int = 0,
) -> list[FoldScore]:
    """Train a new model for each fold on the tasks of all others, and judge it by its own.

    Args:
        make: Makes an untrained model.
        groups: The tasks; those without a valid candidate are left out.
        folds: How many folds.
        seed: Decides which tasks are together.

    Raises:
        InvalidValueError: there are fewer tasks than folds, or fewer than two folds.
    """
    groups = [group for group in groups if group.is_informative]
    scores = []
    for held in folds_by_task(groups, folds, seed):
        model = make()
        model.fit([group for number, group in enumerate(groups) if number not in held])
        scores.append(judge(model, [groups[number] for number in held]))
    return scores


def judge(model: TrainableCostModel, groups: Sequence[TrainingGroup]) -> FoldScore:
    """Judge a model's ranking of the candidates of tasks.

    Raises:
        InvalidValueError: no task has a valid candidate.
    """
    informative = [group for group in groups if group.is_informative]
    tasks = score_groups(model.predict, informative)
    names = tuple(group.name for group in informative)
    return FoldScore(names, tuple(tasks), quality_figures(tasks))


def mean_figures(folds: Sequence[FoldScore]) -> dict[str, float]:
    """Mean of each figure over folds."""
    return {
        name: float(np.mean([fold.figures[name] for fold in folds])) for name in folds[0].figures
    }


def training_groups(records: Iterable[Record]) -> list[TrainingGroup]:
    """Make a group for each workload under each measure key, in order of appearance.

    Latencies of different keys do not compare: another protocol, backend or target measures
    something else. A candidate that was measured several times counts once, with the last outcome
    that is no retriable failure, if there is one.
    """
    found: dict[tuple[str, MeasureKey], dict[str, tuple[Candidate, Outcome]]] = {}
    workloads: dict[str, Workload] = {}
    for record in records:
        candidate, workload = record.candidate, record.candidate.sketch.workload
        workloads.setdefault(workload.digest, workload)
        group = found.setdefault((workload.digest, record.key), {})
        if candidate.digest not in group or not record.outcome.retriable:
            group[candidate.digest] = candidate, record.outcome
    return [
        TrainingGroup(task_name(workloads[digest]), digest, tuple(told.values()))
        for (digest, _), told in found.items()
    ]


def only_target(records: Sequence[Record], wanted: Target | None = None) -> Target:
    """The target that records are of.

    Args:
        records: The records, at least one.
        wanted: The target that is meant; None where there has to be one only.

    Raises:
        InvalidValueError: there are several, or none is the wanted one.
    """
    found = {record.key.target: record.target for record in records}
    if wanted is not None:
        if wanted.fingerprint not in found:
            raise InvalidValueError(
                f"there are no records of target {wanted.name!r} with {wanted.cores} cores; "
                f"there are of {_named(found.values())}"
            )
        return wanted
    if len(found) != 1:
        raise InvalidValueError(
            f"there are records of several targets ({_named(found.values())}); name one"
        )
    (description,) = found.values()
    return Target.from_json(description)


def select_tasks(
    groups: Sequence[TrainingGroup], names: Iterable[str]
) -> tuple[list[TrainingGroup], list[TrainingGroup]]:
    """Groups that are not named, and those that are.

    Args:
        groups: All groups.
        names: What a person calls a task, such as ``"gemm m=64 n=64 k=64 float32"``; the name of
            its workload, which may be that of many; or the digest of its workload.

    Raises:
        UnknownNameError: a name is that of no group.
    """
    held: set[int] = set()
    for name in names:
        meant = {
            number
            for number, group in enumerate(groups)
            if name in (group.name, group.name.partition(" ")[0], group.workload)
        }
        if not meant:
            raise UnknownNameError("task", name, dict.fromkeys(group.name for group in groups))
        held |= meant
    kept = [group for number, group in enumerate(groups) if number not in held]
    return kept, [groups[number] for number in sorted(held)]


def folds_by_task(
    groups: Sequence[TrainingGroup], folds: int, seed: int = 0
) -> list[tuple[int, ...]]:
    """Numbers of the groups of each fold; all groups of one workload are in the same one.

    Args:
        groups: The groups.
        folds: How many folds.
        seed: Decides which tasks are together.

    Raises:
        InvalidValueError: there are fewer workloads than folds, or fewer than two folds.
    """
    workloads = list(dict.fromkeys(group.workload for group in groups))
    if not 2 <= folds <= len(workloads):
        raise InvalidValueError(
            f"folds must be between 2 and {len(workloads)}, the number of tasks, not {folds}"
        )
    order = np.random.default_rng(seed).permutation(len(workloads))
    fold_of = {workloads[task]: place % folds for place, task in enumerate(order.tolist())}
    return [
        tuple(number for number, group in enumerate(groups) if fold_of[group.workload] == fold)
        for fold in range(folds)
    ]


def _named(targets: Iterable[object]) -> str:
    described = [Target.from_json(dict(target)) for target in targets]  # type: ignore[call-overload]
    return ", ".join(f"{target.name} with {target.cores} cores" for target in described)
