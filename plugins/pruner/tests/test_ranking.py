from __future__ import annotations

import math

import pytest
import torch
from autotune_pruner.training import lambda_rank_loss
from hypothesis import given
from hypothesis import strategies as st

# Three items, ranked b, a, c; the right order is a, b, c.
SCORES = [1.0, 2.0, 0.0]
LABELS = [1.0, 0.5, 0.0]


def _loss(scores: list[float], labels: list[float], queries: list[int]) -> torch.Tensor:
    return lambda_rank_loss(
        torch.tensor(scores, dtype=torch.float64),
        torch.tensor(labels, dtype=torch.float64),
        torch.tensor(queries),
    )


def _by_hand() -> float:
    discount = {"a": 1 / math.log2(3), "b": 1.0, "c": 1 / math.log2(4)}
    gain = {"a": 1.0, "b": math.sqrt(2) - 1, "c": 0.0}
    most = gain["a"] / 1.0 + gain["b"] / math.log2(3)
    score = dict(zip("abc", SCORES, strict=True))
    return -sum(
        abs(discount[i] - discount[j])
        * abs(gain[i] - gain[j])
        / most
        * math.log2(1 / (1 + math.exp(score[j] - score[i])))
        for i, j in ("ab", "ac", "bc")
    )


def test_value() -> None:
    assert _loss(SCORES, LABELS, [0, 0, 0]).item() == pytest.approx(_by_hand(), rel=1e-12)


def test_descending_the_gradient_raises_what_is_better() -> None:
    scores = torch.tensor(SCORES, requires_grad=True)
    lambda_rank_loss(scores, torch.tensor(LABELS), torch.zeros(3, dtype=torch.long)).backward()
    a, _, c = scores.grad.tolist()
    assert a < 0 < c
    assert scores.grad.sum().abs() < 1e-6, "only differences of scores mean something"


@given(
    st.lists(
        st.tuples(st.floats(-5, 5), st.floats(0, 1), st.integers(0, 3)), min_size=1, max_size=20
    )
)
def test_queries_add_up(items: list[tuple[float, float, int]]) -> None:
    scores, labels, queries = (list(column) for column in zip(*items, strict=True))
    parts = [
        _loss(
            [s for s, _, q in items if q == query],
            [y for _, y, q in items if q == query],
            [0] * queries.count(query),
        ).item()
        for query in set(queries)
    ]
    whole = _loss(scores, labels, queries).item()
    assert whole == pytest.approx(sum(parts), rel=1e-9, abs=1e-12)
    assert whole >= 0


def test_equal_labels_and_single_items_are_no_pairs() -> None:
    assert _loss([1.0, 2.0, 3.0, 4.0], [0.5, 0.5, 1.0, 0.0], [0, 0, 1, 2]).item() == 0.0


def test_a_wrong_order_by_far_still_teaches() -> None:
    scores = torch.tensor([-100.0, 100.0], requires_grad=True)
    lambda_rank_loss(scores, torch.tensor([1.0, 0.0]), torch.zeros(2, dtype=torch.long)).backward()
    assert scores.grad[0] < -0.1
