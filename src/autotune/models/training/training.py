"""Cross-validation of cost models over recorded tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from attrs import field, frozen

from autotune.errors import InvalidValueError
from autotune.models.context import ModelContext
from autotune.models.cost import TrainableCostModel, TrainingGroup
from autotune.models.training.quality import ScoredTask, quality_figures, score_groups
from autotune.models.training.training_data import folds_by_task, select_tasks
from autotune.plugins.parts import create_part

__all__ = [
    "FoldScore",
    "Trained",
    "cross_validate",
    "judge",
    "make_trainable",
    "mean_figures",
    "train",
]


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
