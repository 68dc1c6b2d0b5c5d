"""Kernel Tuner's strategies; what needs its package is skipped where that is not installed."""

from __future__ import annotations

import random
import sys
import time

import numpy as np
import pytest
from attrs import evolve
from recorded_spaces import small_table

from autotune.errors import AutotuneError
from autotune.evaluation.replay import Budget, OutcomeTable, Replay, kernel_tuner

needs_package = pytest.mark.needs("kernel_tuner")


@pytest.fixture(scope="module")
def table() -> OutcomeTable:
    return small_table()


def replayed(table: OutcomeTable, name: str, budget: Budget, seed: int = 0) -> Replay:
    return kernel_tuner.replay(f"kernel-tuner:{name}", {}, table, seed, budget, time.process_time)


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, table: OutcomeTable
) -> None:
    for name in [it for it in sys.modules if it.partition(".")[0] == "kernel_tuner"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    with pytest.raises(AutotuneError, match=r"pip install kernel-tuner==1.5.0") as caught:
        kernel_tuner.refusal("kernel-tuner:pso", table)
    assert "\n" not in str(caught.value)


@needs_package
@pytest.mark.parametrize("name", kernel_tuner.COMPARED)
def test_every_strategy_evaluates_what_was_recorded(table: OutcomeTable, name: str) -> None:
    assert kernel_tuner.refusal(f"kernel-tuner:{name}", table) == ""
    state = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    run = replayed(table, name, Budget(40))
    assert 0 < run.evaluations <= 40 and run.ended in ("budget", "stopped")
    assert run.ended == "stopped" or run.evaluations == 40
    assert run.elapsed > 0 and run.steps
    found = {float(seconds) for seconds in table.seconds}
    assert {step.seconds for step in run.steps} <= found
    assert state == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index]


@needs_package
@pytest.mark.parametrize("name", ["simulated_annealing", "genetic_algorithm"])
def test_a_seed_decides_whatever_ran_before(table: OutcomeTable, name: str) -> None:
    one = replayed(table, name, Budget(30), 1)
    replayed(table, "mls", Budget(30), 2)
    assert replayed(table, name, Budget(30), 1).steps == one.steps
    assert replayed(table, name, Budget(30), 2).steps != one.steps


@needs_package
def test_the_virtual_time_ends_a_run(table: OutcomeTable) -> None:
    whole = replayed(table, "random_sample", Budget(40))
    half = replayed(table, "random_sample", Budget(40, whole.elapsed / 2))
    assert half.ended == "time" and half.evaluations < 40
    assert half.elapsed <= whole.elapsed / 2


@needs_package
def test_what_cannot_be_replayed_says_why(table: OutcomeTable) -> None:
    measured = evolve(table, recorded=None)
    assert "not schedules" in kernel_tuner.refusal("kernel-tuner:pso", measured)
    with pytest.raises(AutotuneError, match="unknown strategy of Kernel Tuner 'psoo'"):
        kernel_tuner.refusal("kernel-tuner:psoo", table)
