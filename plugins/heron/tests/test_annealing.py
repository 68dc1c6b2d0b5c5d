from __future__ import annotations

import numpy as np
import pytest
from autotune_heron.annealing import is_accepted, moved
from hypothesis import given
from hypothesis import strategies as st

VALUES = (np.array([1, 2, 4]), np.array([7]), np.array([3, 5]))


@given(st.integers(0, 2**32))
def test_a_step_changes_one_parameter_to_another_of_its_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.choice(values, 20) for values in VALUES])
    after = moved(rows, VALUES, rng)
    assert ((after != rows).sum(axis=1) == 1).all()
    assert all(np.isin(after[:, at], values).all() for at, values in enumerate(VALUES))


def test_where_nothing_varies_nothing_moves() -> None:
    rows = np.array([[7, 7]])
    assert (moved(rows, (np.array([7]),) * 2, np.random.default_rng(0)) == rows).all()


@pytest.mark.parametrize(("lost", "temperature"), [(0.1, 0.1), (0.5, 1.0), (2.0, 1.0)])
def test_worse_steps_are_taken_with_the_chance_of_metropolis(
    lost: float, temperature: float
) -> None:
    n = 20_000
    before = np.ones(n)
    taken = is_accepted(before, before - lost, temperature, np.random.default_rng(0))
    assert taken.mean() == pytest.approx(np.exp(-lost / temperature), abs=0.015)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_better_steps_are_always_taken_and_infeasible_ones_never(temperature: float) -> None:
    before, rng = np.zeros(100), np.random.default_rng(0)
    assert is_accepted(before, before + 0.1, temperature, rng).all()
    assert is_accepted(before, before, temperature, rng).all()
    assert not is_accepted(before, before - np.inf, temperature, rng).any()
    assert not is_accepted(before - np.inf, before - np.inf, temperature, rng).any()


def test_without_temperature_no_worse_step_is_taken() -> None:
    before = np.zeros(100)
    assert not is_accepted(before, before - 1e-9, 0.0, np.random.default_rng(0)).any()
