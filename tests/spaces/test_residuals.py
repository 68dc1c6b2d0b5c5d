from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sketches import made_sketches, sketch_of
from oracles.feasible import domain, holds, violation

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.sketches import AtLeast, AtMost, OneOf, Ordinal, ProductEquals, Sketch
from autotune.spaces.feasible import build_feasible_set, is_feasible, residuals


@given(made_sketches(), st.data())
def test_residuals_say_how_far_a_row_is_off(sketch: Sketch, data: st.DataObject) -> None:
    values = st.tuples(*(st.integers(0, 24) for _ in sketch.params))
    rows = data.draw(st.lists(values, max_size=20))
    matrix = np.array(rows, dtype=np.int64).reshape(-1, len(sketch.params))
    configs = [dict(zip(sketch.param_names, row, strict=True)) for row in rows]
    found = residuals(sketch, matrix)
    assert found.shape == (len(rows), len(sketch.constraints))
    assert found.tolist() == [
        [violation(c, config) for c in sketch.constraints] for config in configs
    ]
    assert (found == 0).tolist() == [
        [holds(c, config) for c in sketch.constraints] for config in configs
    ]


@given(made_sketches(), st.integers(0, 2**32))
def test_the_feasible_set_is_where_residuals_vanish(sketch: Sketch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    domains = [domain(sketch, param) for param in sketch.params]
    matrix = np.column_stack([rng.choice(values, 200) for values in domains]).astype(np.int64)
    np.testing.assert_array_equal(
        build_feasible_set(sketch).contains(matrix), is_feasible(sketch, matrix)
    )


def test_residuals_of_every_kind() -> None:
    sketch = sketch_of(
        [Ordinal("a", (1, 2, 4)), Ordinal("b", (1, 2, 4))],
        [
            ProductEquals(("a", "b"), const(4)),
            AtMost(var("a") + var("b"), 4, "test"),
            AtLeast(var("a") + var("b"), 4, "test"),
            OneOf(var("a") - var("b"), (-3, 0, 2), "test"),
            OneOf(var("a"), (), "test"),
        ],
    )
    rows = np.array([[2, 2], [4, 1], [1, 1], [1, 100]])
    assert residuals(sketch, rows).tolist() == [
        [0, 0, 0, 0, 1],
        [0, 1, 0, 1, 1],
        [3, 0, 2, 0, 1],
        [96, 97, 0, 96, 1],
    ]
    assert not is_feasible(sketch, rows).any()


def test_what_does_not_fit_is_refused() -> None:
    sketch = sketch_of([Ordinal("a", (1,))], [AtMost(var("a") * var("a"), 4, "test")])
    with pytest.raises(InvalidValueError, match="1 parameters got a matrix"):
        residuals(sketch, np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(InvalidValueError):
        residuals(sketch, np.full((1, 1), 2**62, dtype=np.int64))
