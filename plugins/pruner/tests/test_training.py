from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from autotune_pruner.networks import PaCMNetwork, RankingNetwork, TenSetNetwork
from autotune_pruner.programs import Programs, TrainingData, normaliser_of
from autotune_pruner.ranking_model import Samples
from autotune_pruner.training import (
    History,
    TrainingSettings,
    distinct_rows,
    fit,
    lambda_rank_loss,
    recent_batches,
    scores_of,
    shuffled_batches,
    split_rows,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from toy_outcomes import TARGET, told

from autotune.models.cost import Observation


def _data(outcomes: list[Observation]) -> TrainingData:
    samples = Samples(TARGET, "ours")
    samples.add(outcomes)
    return samples.data()


def _fitted(data: TrainingData, **settings: object) -> tuple[RankingNetwork, History]:
    torch.manual_seed(0)
    network = PaCMNetwork()
    chosen = TrainingSettings(**{"epochs": 5, **settings})  # type: ignore[arg-type]
    return network, fit(network, data, normaliser_of(data.programs), chosen)


def _weights(network: RankingNetwork) -> list[float]:
    return torch.cat([value.flatten() for value in network.state_dict().values()]).tolist()


def test_the_loss_falls() -> None:
    _, history = _fitted(_data(told(60)), epochs=15)
    assert len(history.losses) == 15 and history.kept_epoch == 14
    assert history.losses[-1] < 0.7 * history.losses[0]


def test_one_seed_gives_one_result_and_another_seed_another() -> None:
    data = _data(told(60))
    settings = {"batch": 32}
    one, again = (_weights(_fitted(data, seed=1, **settings)[0]) for _ in range(2))
    assert one == again
    assert _weights(_fitted(data, seed=2, **settings)[0]) != one


def test_of_many_tasks_some_are_held_out_whole_and_of_few_some_rows_of_each() -> None:
    data = _data(told(60))
    for tasks, whole in ((12, True), (3, False)):
        numbered = attrs.evolve(data, tasks=np.arange(60, dtype=np.int64) % tasks)
        kept, held = split_rows(numbered, 0.25, np.random.default_rng(0))
        assert held is not None and len(kept.tasks) + len(held.tasks) == 60
        shared = set(kept.tasks.tolist()) & set(held.tasks.tolist())
        assert len(held.tasks) == 15 and (shared == set()) == whole
        assert len(set(held.tasks.tolist())) == 3


def test_the_best_weights_on_held_out_rows_are_kept() -> None:
    # Labels that nothing explains: what is learned of them makes the held-out rows worse.
    data = _data(told(80))
    noise = np.random.default_rng(0).random(80).astype(np.float32)
    data = TrainingData(data.programs, noise, data.tasks)
    network, history = _fitted(data, epochs=12, validation=0.3, learning_rate=3e-3)
    losses = history.validation_losses
    assert history.kept_epoch == int(np.argmin(losses)) < len(losses) - 1
    shorter, _ = _fitted(data, epochs=history.kept_epoch + 1, validation=0.3, learning_rate=3e-3)
    assert _weights(network) == _weights(shorter)


def test_training_stops_when_held_out_rows_get_no_better() -> None:
    data = _data(told(80))
    noise = np.random.default_rng(0).random(80).astype(np.float32)
    _, history = _fitted(
        TrainingData(data.programs, noise, data.tasks),
        epochs=30,
        validation=0.3,
        learning_rate=3e-3,
    )
    assert len(history.losses) == history.kept_epoch + 1 + 10


def test_patience_is_a_third_of_short_trainings() -> None:
    assert [TrainingSettings(epochs=n).patience for n in (1, 50, 69, 70, 200)] == [
        1,
        16,
        23,
        30,
        30,
    ]


def test_torch_is_left_as_it_was() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    state = torch.random.get_rng_state()
    data = _data(told(10))
    torch.random.set_rng_state(state)
    fit(PaCMNetwork(), data, normaliser_of(data.programs), TrainingSettings(epochs=1, threads=3))
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


def _of_tasks(tasks: list[int]) -> TrainingData:
    count = len(tasks)
    programs = Programs(
        np.zeros((count, 174), dtype=np.float32),
        np.arange(count + 1, dtype=np.int64),
        np.zeros((count, 8, 23), dtype=np.float32),
    )
    labels = np.linspace(0, 1, count).astype(np.float32)
    return TrainingData(programs, labels, np.array(tasks, dtype=np.int64))


@pytest.mark.parametrize("mixed", [False, True])
def test_an_epoch_has_every_program_once(mixed: bool) -> None:
    data = _of_tasks([0] * 300 + [1] * 5 + [2] * 150)
    settings = TrainingSettings(batch=200, mixed=mixed)
    batches = shuffled_batches(data, settings, np.random.default_rng(0))
    everything = np.concatenate([batch.indices for batch in batches])
    assert sorted(everything) == list(range(455))
    assert max(len(batch.indices) for batch in batches) <= 200
    for batch in batches:
        if mixed:
            assert not batch.queries.any()
            continue
        for query in np.unique(batch.queries):
            assert len(set(data.tasks[batch.indices[batch.queries == query]])) == 1


def test_mixed_batches_compare_tasks_and_others_do_not() -> None:
    data = _of_tasks([0, 1] * 40)
    mixed, separate = (
        shuffled_batches(data, TrainingSettings(mixed=mixed), np.random.default_rng(0))[0]
        for mixed in (True, False)
    )
    assert len(set(mixed.queries)) == 1 and len(set(separate.queries)) == 2


def test_fine_tuning_has_the_new_rows_in_every_batch() -> None:
    data = _of_tasks([0] * 50 + [1] * 50)
    make = recent_batches(10)
    rng = np.random.default_rng(0)
    first, second = (make(data, TrainingSettings(batch=32), rng)[0] for _ in range(2))
    for batch in (first, second):
        assert set(range(90, 100)) <= set(batch.indices) and len(set(batch.indices)) == 32
        assert batch.queries.tolist() == data.tasks[batch.indices].tolist()
    assert set(first.indices) != set(second.indices)
    everything = make(data, TrainingSettings(batch=500), rng)[0]
    assert everything.indices.tolist() == list(range(100))


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


@given(st.lists(st.tuples(*[st.sampled_from([0.0, -0.0, 1.0, 2.5])] * 2), max_size=12))
def test_distinct_rows_give_the_rows_back(values: list[tuple[float, float]]) -> None:
    rows = np.array(values, dtype=np.float32).reshape(-1, 2)
    different, which = distinct_rows(rows)
    assert different[which].tobytes() == rows.tobytes()
    assert len({row.tobytes() for row in different}) == len(different)
    assert len(set(which.tolist())) == len(different)


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
