"""research/adaptation.py: how it leads a model through a search in small, and its bars."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from benchmark_scripts import benchmark_scripts
from toy_parts import toy_trees

from autotune.models import ModelContext
from autotune.models.cost import TrainingGroup
from autotune.targets import preset
from autotune.testing.toy_space import ToySpace, toy_outcome


@pytest.fixture(scope="module")
def adaptation() -> Iterator[ModuleType]:
    """The script as a module."""
    with benchmark_scripts("adaptation") as (module,):
        yield module


def test_a_model_is_judged_before_and_after_each_round(adaptation: ModuleType) -> None:
    candidates = list(ToySpace(64).sample(80, np.random.default_rng(0)))
    told = tuple((candidate, toy_outcome(candidate)) for candidate in candidates)
    group = TrainingGroup("toy", "digest", told)
    found = adaptation.adapted(
        toy_trees(ModelContext(target=preset("skylake-avx512"))), group, np.random.default_rng(1)
    )
    assert list(found) == ["0", "16", "32"] and found["0"] == 0.5
    assert found["32"] > 0.6


def test_bars_need_every_task_and_compare_by_task(adaptation: ModuleType) -> None:
    pieces = {
        adaptation.Piece(name, task, seed, "data"): {"0": 0.6 + seed / 10, "32": value}
        for name, value in (("moa-pacm+", 0.8), ("gbdt", 0.7))
        for task in ("one", "two")
        for seed in (0, 1)
    }
    curves = adaptation.curves_of(pieces, ["moa-pacm+", "gbdt"])
    assert curves["gbdt"]["0"] == pytest.approx({"one": 0.65, "two": 0.65})
    at_once, early = adaptation.bars_of(curves, 2)
    assert at_once.value == pytest.approx(0.65) and at_once.holds
    assert early.value == pytest.approx(0.1) and early.holds
    assert all(bar.value is None and not bar.holds for bar in adaptation.bars_of(curves, 3))
    assert "0.800" in adaptation.curves_table(curves).to_text()
