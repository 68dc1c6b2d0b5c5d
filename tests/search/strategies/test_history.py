from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import InvalidValueError
from autotune.search.strategies import History
from autotune.search.strategies.sampling import spread
from autotune.sketches import CandidateBatch, Sketch
from autotune.store.records import Outcome
from autotune.testing.toy_space import ToySpace, toy_outcome

SPACE = ToySpace()
SKETCHES = SPACE.sketches()


def _rows(n: int, seed: int = 0) -> CandidateBatch:
    return SPACE.sample(n, np.random.default_rng(seed)).over(SKETCHES)


def test_a_sketch_without_parameters_has_one_row() -> None:
    sketch = Sketch("fixed", SPACE.workload, (), (), ())
    rows = CandidateBatch(((sketch, np.zeros((3, 0), dtype=np.int64)),))
    history = History((sketch,))
    assert len(rows) == 3 and len(history.unseen(rows)) == 1
    history.add(rows.take([0]))
    assert len(history.unseen(rows)) == 0
    history.tell([(rows.take([0])[0], Outcome("ok", 1.0))])
    assert len(history.best(3)) == 1


def test_history_remembers_and_orders() -> None:
    history = History(SKETCHES)
    candidates = _rows(20).take(range(20))
    history.add(candidates)
    assert len(history) == len(set(candidates)) == sum(history.counts)
    assert history.is_asked(_rows(20)).all() and len(history.unseen(_rows(20))) == 0
    told = list(dict.fromkeys(candidates))[:6]
    latencies = [3.0, None, 1.0, 2.0, 1.0, None]
    history.tell(
        [
            (candidate, Outcome("crash") if latency is None else Outcome("ok", latency))
            for candidate, latency in zip(told, latencies, strict=True)
        ]
    )
    best = history.best(3)
    assert set(best.take(range(3))) == {told[2], told[3], told[4]}
    assert len(history.best(99)) == 4
    history.tell([(told[0], Outcome("ok", 0.5))])
    assert history.best(1).take([0]) == [told[0]]


def test_what_was_not_asked_counts_as_asked_once_told() -> None:
    history = History(SKETCHES)
    candidate = next(SPACE.enumerate())
    assert not history.knows(candidate)
    history.tell([(candidate, toy_outcome(candidate))])
    assert history.knows(candidate) and len(history) == 1


def test_history_survives_json_and_refuses_another_space() -> None:
    history = History(SKETCHES)
    candidates = _rows(30).take(range(30))
    history.add(candidates)
    history.tell([(candidate, toy_outcome(candidate)) for candidate in candidates[::2]])
    state = json.loads(json.dumps(history.state()))
    restored = History(SKETCHES)
    restored.load_state(state)
    assert restored.state() == history.state()
    np.testing.assert_array_equal(restored.is_asked(_rows(50, 3)), history.is_asked(_rows(50, 3)))
    other = History(ToySpace(extent=4).sketches())
    with pytest.raises(InvalidValueError, match="of a space"):
        other.load_state(state)
    with pytest.raises(InvalidValueError, match="not one of this space"):
        other.tell([(candidates[0], toy_outcome(candidates[0]))])


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12)), min_size=1, max_size=6),
    st.integers(0, 40),
)
def test_spreading_is_fair_and_takes_fronts(queues: list[tuple[int, int]], n: int) -> None:
    counts = [count for count, _ in queues]
    positions = [np.arange(length) + 100 * index for index, (_, length) in enumerate(queues)]
    chosen = spread(counts, positions, n)
    assert len(chosen) == min(n, sum(map(len, positions)))
    taken = [sum(item // 100 == index for item in chosen) for index in range(len(queues))]
    for index, queue in enumerate(positions):
        assert [item for item in chosen if item // 100 == index] == queue[: taken[index]].tolist()
        # Whoever got something never ends more than one ahead of someone who had more to give.
        for other in range(len(queues)):
            if taken[index] and taken[other] < len(positions[other]):
                assert counts[index] + taken[index] <= counts[other] + taken[other] + 1
