from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.measure.trial import Batch, Trial
from autotune.store.records import Outcome


def outcome(number: int) -> Outcome:
    return Outcome("ok", float(number + 1))


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(1, 4))
def test_chunks_have_each_trial_once_and_in_order(order: list[int], size: int) -> None:
    trials = [Trial(number, None) for number in range(6)]
    batch = Batch([trials[number] for number in order])
    chunks: list[Trial] = []
    while not batch.is_over:
        chunk = batch.next_chunk(size)
        assert 0 < len(chunk) <= size
        chunks += chunk
        batch.chunk = []
    assert chunks == batch.trials == list(dict.fromkeys(trials[number] for number in order))
    assert batch.next_chunk(size) == []


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.permutations(range(6)))
def test_outcomes_are_told_in_order_whichever_is_known_first(
    order: list[int], known: list[int]
) -> None:
    trials = [Trial(number, None) for number in range(6)]
    batch = Batch([trials[number] for number in order])
    seen: list[tuple[int, Outcome]] = []
    for number in known:
        trials[number].outcome = outcome(number)
        batch.tell(lambda *item: seen.append(item))
        told = [position for position, _ in seen]
        assert told == list(range(len(told)))
        assert len(told) == len(order) or trials[order[len(told)]].outcome is None
    assert seen == [(position, outcome(number)) for position, number in enumerate(order)]
    assert batch.delivered == [item[1] for item in seen]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.sets(st.integers(0, 5)))
def test_after_an_interrupt_everything_known_is_told(order: list[int], known: set[int]) -> None:
    trials = [Trial(number, None) for number in range(6)]
    batch = Batch([trials[number] for number in order])
    for number in known:
        trials[number].outcome = outcome(number)
    seen: list[tuple[int, Outcome]] = []
    batch.tell(lambda *item: seen.append(item))
    batch.tell_rest(lambda *item: seen.append(item))
    positions = [position for position, number in enumerate(order) if number in known]
    assert dict(seen) == {position: outcome(order[position]) for position in positions}
    # Only the one that was being told when the interrupt came is told again.
    assert len(seen) <= len(positions) + 1
    batch.abandon()
    assert {trial.number for trial in trials if trial.abandoned} == set(order) - known


def test_an_outcome_is_told_again_when_telling_it_was_interrupted() -> None:
    batch, told = Batch([Trial(number, None) for number in range(3)]), list[int]()
    for trial in batch.trials:
        trial.outcome = outcome(0)

    def interrupt(position: int, _outcome: Outcome) -> None:
        if position == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch.tell(interrupt)
    batch.tell_rest(lambda position, outcome: told.append(position))
    assert told == [1, 2]
