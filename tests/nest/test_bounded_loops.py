"""Loops of which only some iterations are run, depending on another axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, cumsum
from autotune.nest import derive_nest, describe
from autotune.sketches import (
    BoundLoop,
    Candidate,
    Order,
    Parallel,
    Sketch,
    Tile,
    TileCeil,
    Unroll,
    Vectorize,
)
from autotune.testing.nest_interpreter import run_candidate

BOUND = BoundLoop("Y", "j.0", "i", const(0), 1)


def sums(rows: int, columns: int) -> Workload:
    """The sum of the columns' numbers in each row."""
    return written("", "Y[i; j]: int32 += j", name="sums", i=rows, j=columns)


def tiled(rows: tuple[int, int], columns: tuple[int, int], *more: Any) -> Sketch:
    steps = (
        Tile("Y", "i", tuple(map(const, rows))),
        Tile("Y", "j", tuple(map(const, columns))),
        Order("Y", ("i.0", "j.0", "i.1", "j.1")),
        *more,
    )
    return Sketch("made", sums(rows[0] * rows[1], columns[0] * columns[1]), (), (), steps)


FACTORS = st.tuples(st.integers(1, 9), st.integers(1, 6))


@given(FACTORS, FACTORS, st.integers(0, 40), st.sampled_from([1, 2]))
def test_iterations_are_run_and_counted_up_to_the_bound(
    rows: tuple[int, int], columns: tuple[int, int], offset: int, scale: int
) -> None:
    sketch = tiled(rows, columns, BoundLoop("Y", "j.0", "i", const(offset), scale))
    (outer, inner), (rounds, width) = rows, columns
    ends = [
        min(rounds, ((tile + 1) * inner - 1 + offset) // (width * scale) + 1)
        for tile in range(outer)
    ]
    found = run_candidate(Candidate(sketch, ()), {})["Y"]
    wanted = [sum(range(ends[row // inner] * width)) for row in range(outer * inner)]
    np.testing.assert_array_equal(found, wanted)
    (statement,) = (it for it in derive_nest(sketch).statements if it.name == "Y")
    assert abs(int(evaluate(statement.trips(2), {})) - sum(ends)) <= (outer + 1) / 2
    assert int(evaluate(statement.trips(4), {})) <= outer * inner * rounds * width


@given(
    *(FACTORS, FACTORS),
    *(st.integers(1, 3), st.sampled_from([-3, -2, -1, 1, 2, 3])),
    st.tuples(st.integers(-20, 60), st.none() | st.integers(-20, 60)),
)
def test_iterations_are_run_and_counted_within_a_window(
    rows: tuple[int, int],
    columns: tuple[int, int],
    scale: int,
    stride: int,
    ends: tuple[int, int | None],
) -> None:
    """Iterations with some position beyond neither end, and their exact number."""
    most, least = ends
    bound = BoundLoop(
        *("Y", "j.0", "i", const(most), scale),
        *(stride, None if least is None else const(least)),
    )
    if bound.is_causal:
        return  # counted by a formula
    sketch = tiled(rows, columns, bound)
    (outer, inner), (rounds, width) = rows, columns

    def runs(tile: int, iteration: int) -> bool:
        places = [
            scale * j + stride * i
            for j in range(iteration * width, (iteration + 1) * width)
            for i in range(tile * inner, (tile + 1) * inner)
        ]
        return min(places) <= most and (least is None or max(places) >= least)

    run = [[it for it in range(rounds) if runs(tile, it)] for tile in range(outer)]
    wanted = [
        sum(sum(range(it * width, (it + 1) * width)) for it in run[row // inner])
        for row in range(outer * inner)
    ]
    np.testing.assert_array_equal(run_candidate(Candidate(sketch, ()), {})["Y"], wanted)
    (statement,) = (it for it in derive_nest(sketch).statements if it.name == "Y")
    counted = int(evaluate(statement.trips(4), {}))
    # Where none is run there is still something to take the logarithm of.
    assert counted == max(inner * width * sum(map(len, run)), inner)


def test_windows_are_printed() -> None:
    window = BoundLoop("Y", "j.0", "i", const(14), 2, 1, const(3))
    assert "for Y.j.0 in 4 while 3 <= 2 * j + i <= 14:" in describe(tiled((2, 2), (4, 2), window))
    ends = BoundLoop("Y", "j.0", "i", const(14), 1, -2)
    assert "for Y.j.0 in 4 while j - 2 * i <= 14:" in describe(tiled((2, 2), (4, 2), ends))


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([BoundLoop("Y", "j.2", "i", const(0), 1)], "j.2"),
        ([BoundLoop("Y", "j.0", "k", const(0), 1)], "no axis 'k'"),
        ([BoundLoop("Y", "j.0", "j", const(0), 1)], "no serial loop"),
        ([BoundLoop("Y", "j.0", "i", const(0), 0)], "scale of 0"),
        ([BoundLoop("Y", "j.0", "i", const(0), 1, 0)], "stride of 0"),
        ([Vectorize("Y", "j.1"), BoundLoop("Y", "j.1", "i", const(0), 1)], "no serial loop"),
        ([BOUND, Unroll("Y", ("j.0",))], "bounded, and stays serial"),
        ([BOUND, Parallel("Y", ("i.0", "j.0"))], "bounded, and stays serial"),
    ],
)
def test_other_loops_are_refused(steps: list[Any], reason: str) -> None:
    with pytest.raises(InvalidValueError, match=reason):
        derive_nest(tiled((2, 2), (4, 2), *steps))


def test_neither_covered_axes_nor_scans_are_bounded() -> None:
    covered = Sketch("made", sums(4, 7), (), (), (TileCeil("Y", "j", (const(2), const(4))), BOUND))
    with pytest.raises(InvalidValueError, match="whole tiles"):
        derive_nest(covered)
    scan = Sketch("made", cumsum(m=4, n=8), (), (), (BOUND,))
    with pytest.raises(InvalidValueError, match="computed whole"):
        derive_nest(scan)
