from __future__ import annotations

import attrs
import numpy as np
import pytest
import torch
from autotune_pruner.networks import PaCMNetwork, RankingNetwork
from autotune_pruner.programs import Programs, TrainingData, normaliser_of
from autotune_pruner.ranking_model import Samples
from autotune_pruner.training import (
    NOTHING_TO_LEARN,
    History,
    TrainingSettings,
    fit,
    recent_batches,
    shuffled_batches,
    split_rows,
)
from toy_outcomes import TARGET, crashes, told

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


@pytest.mark.parametrize("outcomes", [[], crashes(20), told(1)], ids=["none", "failed", "one"])
def test_what_teaches_nothing_changes_nothing(outcomes: list[Observation]) -> None:
    torch.manual_seed(0)
    untouched = _weights(PaCMNetwork())
    network, history = _fitted(_data(outcomes), validation=0.5)
    assert history == History(message=NOTHING_TO_LEARN)
    assert _weights(network) == untouched


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
