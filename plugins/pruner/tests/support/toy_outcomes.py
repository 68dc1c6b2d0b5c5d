"""Data for tests of cost models."""

from __future__ import annotations

import io

import numpy as np

from autotune.cost_models import TrainableCostModel, TrainingGroup
from autotune.records import Outcome
from autotune.sketches import Candidate
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace, toy_outcome

TARGET = preset("skylake-avx512")

Told = list[tuple[Candidate, Outcome]]


def told(n: int, seed: int = 0, extent: int = 64) -> Told:
    """Candidates of the toy space with their synthetic outcomes."""
    candidates = list(ToySpace(extent).sample(n, np.random.default_rng(seed)))
    return [(candidate, toy_outcome(candidate)) for candidate in candidates]


def crashes(n: int, seed: int = 0) -> Told:
    """Candidates that all failed."""
    return [(candidate, Outcome("crash")) for candidate, _ in told(n, seed)]


def group(outcomes: Told) -> TrainingGroup:
    """Outcomes of one task, to train on."""
    workload = outcomes[0][0].sketch.workload.digest if outcomes else ""
    return TrainingGroup("toy", workload, tuple(outcomes))


def saved(model: TrainableCostModel) -> io.BytesIO:
    """What a model saves, to be read."""
    stream = io.BytesIO()
    model.save(stream)
    stream.seek(0)
    return stream
