"""Recorded outcomes of many tasks: recording them, training on them, judging what was learned."""

from __future__ import annotations

from autotune.dataset.quality import (
    Interval,
    ScoredTask,
    drafted_score,
    paired_bootstrap,
    pairwise_accuracy,
    peak_score,
    quality_figures,
    score_groups,
    top_k_score,
)
from autotune.dataset.recording import RecordedTask, record_tasks
from autotune.dataset.task_list import ListedTask, TaskList, builtin_task_lists
from autotune.dataset.training import (
    FoldScore,
    Trained,
    cross_validate,
    judge,
    make_trainable,
    mean_figures,
    train,
)
from autotune.dataset.training_data import (
    folds_by_task,
    only_target,
    select_tasks,
    training_groups,
)

__all__ = [
    "FoldScore",
    "Interval",
    "ListedTask",
    "RecordedTask",
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
    "paired_bootstrap",
    "pairwise_accuracy",
    "peak_score",
    "quality_figures",
    "record_tasks",
    "score_groups",
    "select_tasks",
    "top_k_score",
    "train",
    "training_groups",
]
