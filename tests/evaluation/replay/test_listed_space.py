"""Neighbours of a listed configuration are those of the feasible set, looked up once."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.evaluation.replay.recorded import NEAREST, ListedSpace
from autotune.sketches import CandidateBatch
from autotune.spaces.parameters import Parameter, recorded_space

PARAMETERS = (
    Parameter("a", (1, 2, 4, 8, 16)),
    Parameter("b", tuple(range(12))),
    Parameter("c", ("x", "y", "z")),
)


def rows(count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    every = [[a, b, c] for a in (1, 2, 4, 8, 16) for b in range(12) for c in range(3)]
    chosen = np.random.default_rng(5).permutation(len(every))[:count]
    return np.array(every, dtype=np.int64)[chosen]


def reached(space: object, row: list[int], draws: int = 400) -> set[tuple[int, ...]]:
    batch = CandidateBatch(((space.sketch, np.repeat([row], draws, axis=0)),))  # type: ignore[attr-defined]
    moved = space.neighbours(batch, np.random.default_rng(1))  # type: ignore[attr-defined]
    return set(map(tuple, moved.matrices[0].tolist()))


@pytest.mark.parametrize("count", [1, 2, 10, 11, 12, 90])
def test_moves_go_where_those_of_the_feasible_set_go(count: int) -> None:
    listed = ListedSpace(recorded_space("p", PARAMETERS, rows(count)))
    plain = recorded_space("p", PARAMETERS, rows(count))
    assert listed.count() == plain.count() == count
    for row in rows(count)[:5].tolist():
        ours, theirs = reached(listed, row), reached(plain, row)
        assert len(ours) == max(1, min(NEAREST, count - 1))
        assert tuple(row) not in ours or count == 1
        # Which of equally distant ones count as the nearest is left open.
        assert sorted(distance(row, it) for it in ours) == pytest.approx(
            sorted(distance(row, it) for it in theirs), abs=1e-3
        )


def distance(row: list[int], other: tuple[int, ...]) -> float:
    logarithms = np.log2(np.maximum([row, list(other)], 0.5))
    return float(np.abs(logarithms[0] - logarithms[1]).sum())


def test_a_row_that_is_not_listed_stays() -> None:
    listed = ListedSpace(recorded_space("p", PARAMETERS, rows(30)))
    strangers = [row for row in rows(180).tolist() if row not in rows(30).tolist()]
    assert reached(listed, strangers[0]) == {tuple(strangers[0])}


def test_one_number_is_drawn_whatever_was_remembered() -> None:
    listed, other = (ListedSpace(recorded_space("p", PARAMETERS, rows(60))) for _ in range(2))
    batch = CandidateBatch(((listed.sketch, rows(60)),))
    for first in (rows(60)[:3], rows(60)[::-1]):
        listed.neighbours(CandidateBatch(((listed.sketch, first),)), np.random.default_rng(9))
    one, two = np.random.default_rng(2), np.random.default_rng(2)
    found = [
        space.neighbours(batch, rng).matrices[0].tolist()
        for space, rng in ((listed, one), (other, two))
    ]
    assert found[0] == found[1] and one.random() == two.random()
