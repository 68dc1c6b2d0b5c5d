"""Training and evaluation of cost models on recorded outcomes of many tasks."""

from __future__ import annotations

from autotune.models.training.quality import (
    ScoredTask,
    drafted_score,
    pairwise_accuracy,
    peak_score,
    quality_figures,
    score_groups,
    top_k_score,
)
from autotune.models.training.task_list import ListedTask, TaskList, builtin_task_lists
from autotune.models.training.training import (
    FoldScore,
    Trained,
    cross_validate,
    folds_by_task,
    judge,
    make_trainable,
    mean_figures,
    only_target,
    select_tasks,
    train,
    training_groups,
)

__all__ = [
    "FoldScore",
    "ListedTask",
    "ScoredTask",
    "TaskList",
    "Trained",
    "builtin_task_lists",
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
