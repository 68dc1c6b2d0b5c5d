"""Point-wise stages in loop nests of their own."""

from __future__ import annotations

import pytest
from rule_sketches import LIMITS, TARGET, sketches
from transposes import transpose, transposed_pair

from autotune.ir.workloads import Workload, elementwise
from autotune.sketches import Factor, FuseProducer, Inline, Order, Pack, Parallel, Sketch
from autotune.spaces import SketchSpace


def named(workload: Workload, name: str) -> list[Sketch]:
    return [it for it in sketches(workload) if it.name == name]


def test_a_transpose_is_tried_in_tiles_of_two_axes() -> None:
    (sketch,) = named(transpose(64, 48), "transposed-tiles")
    (order,) = (it.loops for it in sketch.core_steps if isinstance(it, Order))
    assert order == ("i.0", "j.0", "j.1", "i.1", "j.2")


@pytest.mark.parametrize(("rows", "columns"), [(64, 37), (37, 48), (3, 5)])
def test_axes_without_useful_divisors_are_not_tiled(rows: int, columns: int) -> None:
    assert not named(transpose(rows, columns), "transposed-tiles")
    assert sketches(transpose(rows, columns))


def test_what_reads_in_its_own_order_has_one_sketch() -> None:
    assert len(sketches(elementwise(m=64, n=48))) == 1


@pytest.mark.parametrize(("rows", "shared"), [(64, ("i.0",)), (63, ("i.0", "j.0"))])
def test_cores_share_the_outer_axes_that_are_enough(rows: int, shared: tuple[str, ...]) -> None:
    assert TARGET.cores == 4
    (sketch,) = sketches(elementwise(m=rows, n=48))
    assert [it.loops for it in sketch.steps if isinstance(it, Parallel)] == [shared]


@pytest.mark.parametrize("cores", [1, 256])
def test_no_space_of_a_transpose_is_empty(cores: int) -> None:
    space = SketchSpace(transpose(8, 16), TARGET.with_cores(cores), LIMITS)
    assert space.count() > 0


def test_what_a_tile_reads_is_copied_in_rows_first() -> None:
    (sketch,) = named(transpose(64, 48), "transposed-copies")
    assert Pack("Y", "X", "j.1", None, None, 16) in sketch.steps
    (sketch,) = named(transposed_pair(64, 48), "transposed-copies")
    assert FuseProducer("P", "Y", "j.1", 16) in sketch.steps
    assert not any(isinstance(step, Inline) for step in sketch.steps)


def test_tiles_are_as_tall_as_much_of_a_page() -> None:
    for name in ("transposed-tiles", "transposed-copies"):
        (sketch,) = named(transpose(48, 512), name)
        assert values_of(sketch, "Y.i.1")[-1] == 256


def values_of(sketch: Sketch, name: str) -> tuple[int, ...]:
    (found,) = (it for it in sketch.params if it.name == name)
    assert isinstance(found, Factor)
    return found.values or ()


@pytest.mark.parametrize(("rows", "columns"), [(64, 8), (64, 24)])
def test_tiles_too_low_for_a_vector_are_not_copied(rows: int, columns: int) -> None:
    assert not named(transpose(rows, columns), "transposed-copies")
