from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from autotune_pruner.networks import PaCMNetwork, RankingNetwork, TenSetNetwork
from autotune_pruner.programs import Programs
from autotune_pruner.training import distinct_rows, scores_of
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

CPU = torch.device("cpu")


def _programs(count: int, seed: int = 0) -> Programs:
    """Programs of one to four statements that have many statements and accesses in common."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, count)
    statements = rng.random((20, 174), dtype=np.float32)
    accesses = rng.random((30, 23), dtype=np.float32)
    return Programs(
        statements[rng.integers(20, size=counts.sum())],
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        accesses[rng.integers(30, size=(count, 8))],
    )


def _network(kind: type[RankingNetwork]) -> RankingNetwork:
    torch.manual_seed(1)
    return kind().eval().requires_grad_(False)


@pytest.mark.parametrize("kind", [PaCMNetwork, TenSetNetwork])
@pytest.mark.parametrize("count", [1, 300])
def test_scores_are_those_of_the_network(kind: type[RankingNetwork], count: int) -> None:
    network, programs = _network(kind), _programs(count)
    owners = np.repeat(np.arange(count), np.diff(programs.offsets))
    accesses = programs.dataflow.reshape(-1, 23)
    parts: list[NDArray[Any]] = [
        *(programs.statements, np.arange(len(owners)), owners),
        *(accesses, np.arange(len(accesses)).reshape(-1, 8)),
    ]
    wanted = network(*(torch.from_numpy(part) for part in parts)).numpy()
    np.testing.assert_allclose(scores_of(network, programs, CPU), wanted, atol=1e-5)


@pytest.mark.parametrize("kind", [PaCMNetwork, TenSetNetwork])
def test_no_program_changes_the_score_of_another(kind: type[RankingNetwork]) -> None:
    network, programs = _network(kind), _programs(600)
    scores = scores_of(network, programs, CPU)
    for indices in (np.arange(600)[::-1], np.arange(300, 310), np.array([599])):
        np.testing.assert_array_equal(
            scores_of(network, programs.take(indices), CPU), scores[indices]
        )


def test_nothing_has_no_scores() -> None:
    assert scores_of(_network(PaCMNetwork), _programs(0), CPU).shape == (0,)


@given(st.lists(st.tuples(*[st.sampled_from([0.0, -0.0, 1.0, 2.5])] * 2), max_size=12))
def test_distinct_rows_give_the_rows_back(values: list[tuple[float, float]]) -> None:
    rows = np.array(values, dtype=np.float32).reshape(-1, 2)
    different, which = distinct_rows(rows)
    assert different[which].tobytes() == rows.tobytes()
    assert len({row.tobytes() for row in different}) == len(different)
    assert len(set(which.tolist())) == len(different)
