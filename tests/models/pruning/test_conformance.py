from __future__ import annotations

import attrs
import numpy as np
import pytest
from toy_parts import KnowingDraft

from autotune.errors import UnsupportedTarget
from autotune.models import ModelContext
from autotune.models.pruning import Roofline
from autotune.sketches import Candidate, CandidateBatch
from autotune.targets import Target, preset
from autotune.testing.pruning_model_suite import PruningModelFactory, PruningModelSuite
from autotune.testing.toy_space import ToySpace


class TestToyModel(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self) -> PruningModelFactory:
        return KnowingDraft


TARGET = preset("skylake-avx512").with_cores(4)


class TestRoofline(PruningModelSuite):
    @pytest.fixture
    def pruning_model_factory(self) -> PruningModelFactory:
        return lambda: Roofline(ModelContext(target=TARGET))


def _candidates(**config: int) -> list[Candidate]:
    """The sequential and the parallel candidate of one configuration."""
    sketches = ToySpace(extent=1024).sketches()
    return [Candidate.from_config(sketch, config) for sketch in sketches]


def _scores(candidates: list[Candidate], target: Target = TARGET) -> list[float]:
    return Roofline(ModelContext(target=target)).score(CandidateBatch.of(candidates)).tolist()


def test_parallel_loops_help_as_far_as_there_are_cores() -> None:
    pair = _candidates(i1=4, i2=4, j1=4, j2=4, k1=16)
    sequential, parallel = _scores(pair)
    assert parallel > sequential + 1
    # Fused parallel loops leave fewer depths at which a working set may fit a cache.
    alone = _scores(pair, TARGET.with_cores(1))
    assert alone[0] == pytest.approx(alone[1], abs=0.1)


def test_tiles_that_are_used_again_beat_none() -> None:
    _, plain = _candidates(i1=1, i2=1, j1=1, j2=1, k1=1)
    _, tiled = _candidates(i1=4, i2=4, j1=4, j2=4, k1=16)
    scores = _scores([plain, tiled])
    assert scores[1] > scores[0]


def test_scores_are_logarithms_of_seconds() -> None:
    slow = attrs.evolve(TARGET.with_cores(1), fma_units=1)
    scores = np.array(_scores(list(ToySpace(extent=64).enumerate())[:50], slow))
    assert ((scores > 0) & (scores < 40)).all()


def test_other_kinds_of_target_are_refused() -> None:
    with pytest.raises(UnsupportedTarget, match="'cuda'"):
        Roofline(ModelContext(target=Target("cuda", "some card")))
