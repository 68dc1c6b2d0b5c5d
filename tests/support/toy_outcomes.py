"""Outcomes of the toy space to teach cost models with, and how well a model ranks after it."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from autotune.models.cost import Observation, TrainableCostModel, TrainingGroup
from autotune.store.records import Outcome
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace, toy_outcome

TARGET = preset("skylake-avx512")


def told(n: int, seed: int = 0, extent: int = 64) -> list[Observation]:
    """Candidates of the toy space with their synthetic outcomes."""
    candidates = list(ToySpace(extent).sample(n, np.random.default_rng(seed)))
    return [(candidate, toy_outcome(candidate)) for candidate in candidates]


def crashes(n: int, seed: int = 0) -> list[Observation]:
    """Candidates that all failed."""
    return [(candidate, Outcome("crash")) for candidate, _ in told(n, seed)]


def group(outcomes: list[Observation]) -> TrainingGroup:
    """Outcomes of one task, to train on."""
    workload = outcomes[0][0].sketch.workload.digest if outcomes else ""
    return TrainingGroup("toy", workload, tuple(outcomes))


def saved(model: TrainableCostModel) -> io.BytesIO:
    """State that a model saves, to be read."""
    stream = io.BytesIO()
    model.save(stream)
    stream.seek(0)
    return stream


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Spearman's, of values without ties."""
    return float(np.corrcoef(one.argsort().argsort(), other.argsort().argsort())[0, 1])
