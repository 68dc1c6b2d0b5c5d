from __future__ import annotations

import json

import numpy as np
from numpy.typing import NDArray

from autotune.search.strategies.auto import Cross, Observation, Surrogate, encoding_for
from autotune.search.strategies.sampling import whole_space
from autotune.testing.toy_space import ToySpace, toy_latencies

ROWS = whole_space(ToySpace())
assert ROWS is not None
ENCODING = encoding_for(ROWS)
POINTS = ENCODING.encode(ROWS)
SECONDS = toy_latencies(ROWS)
FAILS = np.concatenate([matrix[:, 1] >= 4 for matrix in ROWS.matrices])


def _outcomes(n: int, failures: bool) -> list[Observation]:
    chosen = np.random.default_rng(0).permutation(len(POINTS))[:n]
    found: list[Observation] = []
    assert ROWS is not None
    for position, candidate in zip(chosen.tolist(), ROWS.take(chosen), strict=True):
        part = int(ROWS.owners[position])
        if not FAILS[position]:
            found.append((part, candidate.values, float(SECONDS[position])))
        elif failures:
            found.append((part, candidate.values, None))
    return found


def _surrogate(most: int = 512) -> Surrogate:
    return Surrogate(ENCODING, 1.2, 15, most)


def _scores(surrogate: Surrogate, outcomes: list[Observation]) -> NDArray[np.float32]:
    observed = surrogate.learn(outcomes)
    cross = Cross(POINTS, observed)
    cross.extend(observed)
    return surrogate.scores(cross)


def test_fast_candidates_have_the_best_scores() -> None:
    scores = _scores(_surrogate(), _outcomes(120, failures=False))
    works = ~FAILS
    best = np.argsort(-scores[works])[:20]
    assert SECONDS[works][best].mean() < np.quantile(SECONDS[works], 0.2)


def test_what_is_like_failures_scores_less() -> None:
    plain = _scores(_surrogate(), _outcomes(120, failures=False))
    aware = _scores(_surrogate(), _outcomes(120, failures=True))
    assert (aware - plain)[FAILS].mean() < (aware - plain)[~FAILS].mean() - 1


def test_outcomes_one_by_one_or_from_a_state_give_the_same_scores() -> None:
    outcomes, one = _outcomes(60, failures=True), _surrogate()
    for n in range(10, 61):
        one.learn(outcomes[:n])
    other = _surrogate()
    other.load_state(json.loads(json.dumps(one.state())))
    np.testing.assert_array_equal(_scores(one, outcomes), _scores(other, outcomes))


def test_only_so_many_observations_are_taken_in() -> None:
    outcomes, surrogate = _outcomes(200, failures=True), _surrogate(most=40)
    for n in range(10, len(outcomes) + 1):
        assert len(surrogate.learn(outcomes[:n])) <= 40 * 1.2 + 1
    fastest = min(it[2] for it in outcomes if it[2] is not None)
    first = [outcomes[number][2] for number in surrogate.state()["members"]]
    assert fastest in first and len(first) == 40
