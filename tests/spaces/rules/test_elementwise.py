"""Point-wise stages in loop nests of their own."""

from __future__ import annotations

import pytest
from rule_sketches import LIMITS, TARGET, sketches
from transposes import transpose

from autotune.ir.workloads import elementwise
from autotune.sketches import Order, Sketch
from autotune.spaces import SketchSpace


def tiled(rows: int, columns: int) -> list[Sketch]:
    return [it for it in sketches(transpose(rows, columns)) if it.name == "transposed-tiles"]


def test_a_transpose_is_tried_in_tiles_of_two_axes() -> None:
    (sketch,) = tiled(64, 48)
    (order,) = (it.loops for it in sketch.core_steps if isinstance(it, Order))
    assert order == ("i.0", "j.0", "i.1", "j.1", "j.2")


@pytest.mark.parametrize(("rows", "columns"), [(64, 37), (37, 48), (3, 5)])
def test_axes_without_useful_divisors_are_not_tiled(rows: int, columns: int) -> None:
    assert not tiled(rows, columns)
    assert sketches(transpose(rows, columns))


def test_what_reads_in_its_own_order_has_one_sketch() -> None:
    assert len(sketches(elementwise(m=64, n=48))) == 1


@pytest.mark.parametrize("cores", [1, 256])
def test_no_space_of_a_transpose_is_empty(cores: int) -> None:
    space = SketchSpace(transpose(8, 16), TARGET.with_cores(cores), LIMITS)
    assert space.count() > 0
