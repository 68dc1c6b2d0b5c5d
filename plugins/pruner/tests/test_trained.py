"""The weights that the distribution brings, on recorded programs of operators unknown to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_pruner.cost_models import PaCM
from autotune_pruner.momentum import MomentumPaCM
from autotune_pruner.trained import pacm_cpu

from autotune.ir.workloads import Workload
from autotune.models import ModelContext
from autotune.models.cost import TrainableCostModel, TrainingGroup
from autotune.models.training import pairwise_accuracy, score_groups
from autotune.plugins import Context
from autotune.sketches import Candidate, Sketch
from autotune.store.records import Outcome
from autotune.targets import Target

MODELS: list[Callable[[ModelContext], TrainableCostModel]] = [PaCM, MomentumPaCM]


def _group(task: dict[str, Any]) -> TrainingGroup:
    workload = Workload.from_json(task["workload"])
    sketches = [Sketch.from_json(each, workload) for each in task["sketches"]]
    outcomes = tuple(
        (Candidate(sketches[number], tuple(values)), Outcome("ok", latency))
        for number, values, latency in task["programs"]
    )
    return TrainingGroup(workload.name, workload.digest, outcomes)


@pytest.fixture(scope="module")
def held_out() -> tuple[list[TrainingGroup], Target]:
    """Outcomes of tasks that the weights were not trained on, and their target."""
    file = Path(__file__).parent / "data" / "held_out.json"
    recorded = json.loads(file.read_text(encoding="utf-8"))
    return [_group(task) for task in recorded["tasks"]], Target.from_json(recorded["target"])


@pytest.mark.parametrize("make", MODELS)
def test_it_ranks_what_it_has_not_seen(
    make: Callable[[ModelContext], TrainableCostModel],
    held_out: tuple[list[TrainingGroup], Target],
) -> None:
    groups, target = held_out
    model = make(ModelContext(target=target))
    with pacm_cpu(Context()).open("rb") as stream:
        model.load(stream)
    accuracies = [pairwise_accuracy(task) for task in score_groups(model.predict, groups)]
    assert len(accuracies) == 3 and np.mean(accuracies) > 0.62 and min(accuracies) > 0.55


def test_it_is_small() -> None:
    assert pacm_cpu(Context()).stat().st_size < 4e6
