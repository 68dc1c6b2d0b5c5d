from __future__ import annotations

import numpy as np
import pytest

from autotune.search.strategies.annealing import FeasibleMoves, reference_rows
from autotune.search.strategies.sampling import whole_space
from autotune.spaces.parameters import Parameter, parameter_space
from autotune.testing.toy_space import ToySpace

SPACE = parameter_space(
    "moves",
    [
        Parameter("x", (1, 2, 4, 8)),
        Parameter("y", (1, 2, 4, 8)),
        Parameter("way", ("a", "b", "c")),
        Parameter("many", tuple(range(100))),
    ],
    ["x * y <= 16"],
)


def test_every_feasible_change_of_one_parameter_is_a_move() -> None:
    rows = whole_space(SPACE)
    assert rows is not None
    matrix = rows.matrices[0]
    moves = FeasibleMoves(SPACE, rows)
    for position in range(0, len(matrix), 397):
        row = matrix[position]
        changes = (matrix != row).sum(axis=1) == 1
        near = changes & (np.abs(matrix[:, 3] - row[3]) <= 16)
        around = moves.around(0, row, np.random.default_rng(0)).matrices[0]
        found = set(map(tuple, around.tolist()))
        assert set(map(tuple, matrix[near].tolist())) <= found
        assert SPACE.contains(moves.around(0, row, np.random.default_rng(0))).all()


@pytest.mark.parametrize("sketch", [0, 1])
def test_moves_stay_in_the_sketch_and_are_feasible(sketch: int) -> None:
    space = ToySpace()
    moves = FeasibleMoves(space, reference_rows(space))
    row = next(it for it in space.enumerate() if it.sketch == space.sketches()[sketch])
    around = moves.around(sketch, np.array(row.values), np.random.default_rng(1))
    assert around.sketches == (row.sketch,) and len(around) > 5
    assert space.contains(around).all()


def test_reference_rows_are_the_same_in_every_run() -> None:
    one, other = reference_rows(ToySpace()), reference_rows(ToySpace())
    for left, right in zip(one.matrices, other.matrices, strict=True):
        np.testing.assert_array_equal(left, right)
    assert len(reference_rows(ToySpace(limit=0))) == 0
