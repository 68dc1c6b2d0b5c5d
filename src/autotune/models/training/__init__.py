"""Training and evaluation of cost models on recorded outcomes of many tasks."""

from __future__ import annotations

from autotune.models.training.task_list import ListedTask, TaskList, builtin_task_lists
from autotune.models.training.training import (
    FoldScore,
    ScoredTask,
    Trained,
    cross_validate,
    drafted_score,
    folds_by_task,
    judge,
    make_trainable,
    mean_figures,
    only_target,
    pairwise_accuracy,
    peak_score,
    quality_figures,
    score_groups,
    select_tasks,
    top_k_score,
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
