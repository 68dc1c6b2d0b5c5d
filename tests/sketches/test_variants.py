from __future__ import annotations

import pytest
from attrs import evolve
from backward_reads import convolution, relative_scores
from divided_reductions import fractional_convolution, grouped_convolution, shared_factor
from poolings import average_pooling
from split_reductions import reduction, weighted_sums

from autotune.ir.expressions import Binary, Constant, Load, const, var
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    attention,
    conv2d,
    cumsum,
    dense,
    gemm,
    softmax,
)
from autotune.sketches import (
    STEP_TYPES,
    STEP_VARIANTS,
    Accumulate,
    Order,
    Pack,
    PadExtent,
    Sketch,
    names_used,
    step_names,
)
from autotune.spaces import ScheduleLimits, SketchSpace
from autotune.targets import preset

LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "test")


def sketches(workload: Workload, target: str = "skylake-avx512") -> dict[str, Sketch]:
    space = SketchSpace(workload, preset(target), LIMITS)
    return {sketch.name: sketch for sketch in space.sketches()}


def product_of_relu() -> Workload:
    """A product with what is computed point by point from its second operand."""
    zero = Constant(0.0, "float32")
    axes = (Axis("a", 32), Axis("b", 64))
    relu = Stage(
        Tensor("R", (32, 64), "float32"),
        axes,
        Binary("max", Load("B", (var("a"), var("b"))), zero),
    )
    body = Binary("mul", Load("A", (var("i"), var("k"))), Load("R", (var("k"), var("j"))))
    product = Stage(
        Tensor("C", (8, 64), "float32"),
        (Axis("i", 8), Axis("j", 64), Axis("k", 32, "reduce")),
        body,
        "add",
    )
    inputs = (Tensor("A", (8, 32), "float32"), Tensor("B", (32, 64), "float32"))
    return Workload("product_of_relu", inputs, (relu, product), ("C",), {})


def variants(sketch: Sketch) -> set[str]:
    return {name for name in names_used(sketch) if "." in name}


def test_every_variant_is_one_of_a_step() -> None:
    assert {name.partition(".")[0] for name in STEP_VARIANTS} <= set(STEP_TYPES)


def test_every_variant_of_a_built_in_sketch_is_known_and_nearly_all_occur() -> None:
    """Nearly all: no built-in rule accumulates inside a reduction, for example."""
    found: set[str] = set()
    for workload in (
        gemm(m=37, n=53, k=29),
        gemm(m=64, n=64, k=64),
        conv2d(h=9, w=9, ci=8, co=40, pad=1, bias=1, relu=1),
        softmax(m=8, n=256),
        softmax(m=8, n=197),
        attention(h=1, n=8, d=16),
        dense(m=8, n=64, k=32),
        dense(m=8, n=37, k=32, bias=0, relu=0),
        product_of_relu(),
        fractional_convolution(),
        reduction((600, 40), (0,)),
        weighted_sums(4, 3000),
        cumsum(m=16, n=40),
        relative_scores(16, 8),
        shared_factor(),
        shared_factor(first=1),
        average_pooling(),
    ):
        for target in ("skylake-avx512", "a100"):
            for sketch in sketches(workload, target).values():
                found |= variants(sketch)
    assert found <= set(STEP_VARIANTS)
    assert set(STEP_VARIANTS) - found <= {"accumulate.inside_reduction"}


def test_variants_of_a_matrix_product() -> None:
    made = sketches(gemm(m=37, n=53, k=32))
    assert variants(made["direct"]) == set()
    assert variants(made["plain-rows"]) == {"pack.inside", "pack.plain"}
    assert variants(made["packed-root"]) == {
        *("pack.whole", "pack.blocked", "pad_extent.lanes", "pad_extent.whole"),
    }
    assert variants(made["packed-panel"]) == {"pack.inside", "pack.blocked", "pad_extent.lanes"}


def test_variants_of_a_convolution() -> None:
    made = sketches(conv2d(h=9, w=9, ci=4, co=40, pad=1, relu=1))
    rows = variants(made["plain-rows"])
    assert {"pack.window", "inline.into_copy", "pad_extent.window"} <= rows
    assert "fuse_consumer.padded" in rows


def test_variants_of_a_product_of_what_is_computed() -> None:
    made = sketches(product_of_relu())
    assert "inline.into_whole_copy" in variants(made["packed-root"])
    assert "inline.into_whole_copy" not in variants(made["packed-panel"])
    assert "inline.into_copy" in variants(made["packed-panel"])


def test_variants_of_a_softmax() -> None:
    made = sketches(softmax(m=8, n=256))
    assert "fuse_producer.reduction" in variants(made["row-fusion"])
    assert variants(made["row-fusion-recompute"]) >= {"inline.into_reduction"}


def test_variants_of_an_attention() -> None:
    made = sketches(attention(h=1, n=8, d=16))
    assert "fuse_producer.tiled" in variants(made["attention-tiles"])
    others = {name: sketch for name, sketch in made.items() if name != "attention-tiles"}
    assert not any("fuse_producer.tiled" in variants(sketch) for sketch in others.values())


def test_packs_of_what_is_read_backwards() -> None:
    data = step_names(Pack("C", "A", "i.0", None, None, 1), convolution(9, 3, 4, 8))
    assert {"pack.reversed", "pack.window"} <= data and "pack.crossed" not in data
    scores = relative_scores(8, 4)
    assert "pack.crossed" in step_names(Pack("C", "B", "i.0", None, None, 1), scores)
    assert "pack.crossed" not in step_names(Pack("C", "A", "i.0", None, None, 1), scores)


def test_a_pack_of_what_is_read_at_a_quotient() -> None:
    workload = shared_factor()
    assert "pack.divided" in step_names(Pack("Y", "K", None, 1, const(4), 1), workload)
    assert "pack.divided" not in step_names(Pack("Y", "Q", None, None, None, 1), workload)
    assert "pack.mixed_quotients" not in step_names(Pack("Y", "K", None, 1, const(4), 1), workload)


@pytest.mark.parametrize(
    ("workload", "operand"),
    # At quotients of sums, at quotients of lanes.
    [(fractional_convolution(), "X"), (grouped_convolution(), "X")],
)
def test_a_pack_of_what_is_read_at_more_than_a_quotient(workload: Workload, operand: str) -> None:
    names = step_names(Pack("Y", operand, None, None, None, 1), workload)
    assert {"pack.divided", "pack.mixed_quotients"} <= names


def test_a_transposed_pack() -> None:
    workload = gemm(m=8, n=32, k=16)
    step = Pack("C", "B", None, 0, const(4), 1)
    whole = {"pack.whole", "pack.blocked", "pack.transposed", "pack.whole_transposed"}
    assert step_names(step, workload) == {"pack", *whole}
    inside = {"pack.inside", "pack.blocked", "pack.transposed"}
    assert step_names(evolve(step, at="i.0"), workload) == {"pack", *inside}


def test_a_tile_is_inside_a_reduction_where_a_reduce_loop_encloses_it() -> None:
    workload = gemm(m=8, n=32, k=16)
    order = Order("C", ("i.0", "k.0", "j.0"))
    name = "accumulate.inside_reduction"
    for at, inside in (("i.0", False), ("k.0", True), ("j.0", True)):
        step = Accumulate("C", at, (const(1),))
        assert (name in step_names(step, workload, (order,))) == inside


def test_padding_of_a_plain_read_is_no_window() -> None:
    step = PadExtent("C", "i", const(8))
    assert step_names(step, gemm(m=8, n=32, k=16)) == {"pad_extent"}


def test_names_do_not_depend_on_the_name_of_the_sketch() -> None:
    sketch = sketches(gemm(m=37, n=53, k=32))["packed-root"]
    assert names_used(evolve(sketch, name="other")) == names_used(sketch)
