from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from autotune.errors import InvalidValueError, UnsupportedWorkload
from autotune.ir.expressions import (
    Binary,
    Constant,
    Gather,
    IndexValue,
    Load,
    ScalarExpr,
    Unary,
    var,
)
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.nest import derive_nest
from autotune.sketches import (
    STEP_TYPES,
    Accumulate,
    AtMost,
    Factor,
    FuseConsumer,
    FuseProducer,
    Inline,
    Pack,
    PadExtent,
    Parallel,
    Sketch,
    SplitReduction,
    Step,
    Tile,
    Vectorize,
)
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.rules import InlineRule, generate_sketches
from autotune.targets import preset

TARGET = preset("skylake-avx512-4core")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "backend test")
ROWS, COLUMNS, DEPTH = 32, 48, 20


def sketches(workload: Workload, limits: ScheduleLimits = LIMITS) -> tuple[Sketch, ...]:
    return generate_sketches(workload, TARGET, limits, BUILT_IN_RULES).sketches


def steps_of(workload: Workload, kind: type[Any]) -> set[Step]:
    """Steps of one kind, which every sketch of the workload must agree on."""
    found = [
        {step for step in sketch.steps if isinstance(step, kind)} for sketch in sketches(workload)
    ]
    assert all(steps == found[0] for steps in found)
    return found[0]


def load(tensor: str, *axes: str) -> Load:
    return Load(tensor, tuple(var(axis) for axis in axes))


def matrix(name: str, rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    return Tensor(name, (rows, columns), "float32")


def pointwise(name: str, body: ScalarExpr, rows: int = ROWS, columns: int = COLUMNS) -> Stage:
    return Stage(matrix(name, rows, columns), (Axis("i", rows), Axis("j", columns)), body)


def product(name: str = "C") -> Stage:
    axes = (Axis("i", ROWS), Axis("j", COLUMNS), Axis("k", DEPTH, "reduce"))
    body = Binary("mul", load("A", "i", "k"), load("B", "k", "j"))
    return Stage(matrix(name), axes, body, "add")


def row_reduction(name: str, source: str, combiner: str = "add") -> Stage:
    axes = (Axis("i", ROWS), Axis("k", COLUMNS, "reduce"))
    return Stage(Tensor(name, (ROWS,), "float32"), axes, load(source, "i", "k"), combiner)


A, B, X = matrix("A", ROWS, DEPTH), matrix("B", DEPTH, COLUMNS), matrix("X")


def relu(tensor: str) -> ScalarExpr:
    return Binary("max", load(tensor, "i", "j"), Constant(0.0, "float32"))


def exponential(tensor: str) -> ScalarExpr:
    return Unary("exp", load(tensor, "i", "j"))


def chain(*stages: Stage, outputs: tuple[str, ...] = (), inputs: tuple[Tensor, ...]) -> Workload:
    return Workload("made", inputs, stages, outputs or (stages[-1].name,))


# What is inlined.


def test_cheap_pointwise_stages_are_inlined() -> None:
    assert steps_of(elementwise(m=ROWS, n=COLUMNS), Inline) == {Inline("T"), Inline("R")}


def test_an_output_is_not_inlined() -> None:
    both = chain(
        pointwise("T", relu("X")), pointwise("Y", relu("T")), inputs=(X,), outputs=("T", "Y")
    )
    assert steps_of(both, Inline) == set()
    assert {step.stage for step in sketches(both)[0].steps if isinstance(step, Parallel)} == {
        "T",
        "Y",
    }


@pytest.mark.parametrize(("body", "inlined"), [(relu("X"), True), (exponential("X"), False)])
def test_what_is_dear_is_not_computed_twice(body: ScalarExpr, inlined: bool) -> None:
    twice = chain(
        pointwise("T", body),
        pointwise("U", relu("T")),
        pointwise("V", relu("T")),
        inputs=(X,),
        outputs=("U", "V"),
    )
    assert (Inline("T") in steps_of(twice, Inline)) == inlined


def test_what_is_dear_is_inlined_into_its_only_consumer() -> None:
    once = chain(pointwise("T", exponential("X")), pointwise("U", relu("T")), inputs=(X,))
    assert steps_of(once, Inline) == {Inline("T")}


# What is fused after a reduction.


def test_the_last_stage_is_fused_into_the_tile_and_those_between_are_inlined() -> None:
    workload = dense(m=37, n=48, k=20)
    assert steps_of(workload, Inline) == {Inline("Z")}
    for sketch in sketches(workload):
        (fused,) = (step for step in sketch.steps if isinstance(step, FuseConsumer))
        assert (fused.stage, fused.producer) == ("R", "Y")
        assert not any(isinstance(step, Accumulate) for step in sketch.steps)


def fused_consumers(workload: Workload) -> set[tuple[str, str]]:
    pairs = [
        {(s.stage, s.producer) for s in sketch.steps if isinstance(s, FuseConsumer)}
        for sketch in sketches(workload)
    ]
    assert all(pair == pairs[0] for pair in pairs)
    return pairs[0]


def test_an_epilogue() -> None:
    workload = chain(product(), pointwise("R", exponential("C")), inputs=(A, B))
    assert fused_consumers(workload) == {("R", "C")}


def test_no_epilogue_when_the_reduction_is_returned() -> None:
    workload = chain(product(), pointwise("R", relu("C")), inputs=(A, B), outputs=("C", "R"))
    assert fused_consumers(workload) == set()


def test_no_epilogue_when_the_reduction_is_read_twice() -> None:
    workload = chain(
        product(),
        pointwise("R", relu("C")),
        pointwise("S", relu("C")),
        inputs=(A, B),
        outputs=("R", "S"),
    )
    assert fused_consumers(workload) == set()


def test_no_epilogue_across_a_transposition() -> None:
    turned = Stage(
        matrix("R", COLUMNS, ROWS),
        (Axis("j", COLUMNS), Axis("i", ROWS)),
        Binary("max", load("C", "i", "j"), Constant(0.0, "float32")),
    )
    assert fused_consumers(chain(product(), turned, inputs=(A, B))) == set()


def test_no_epilogue_through_an_expensive_stage() -> None:
    workload = chain(
        product(), pointwise("E", exponential("C")), pointwise("R", relu("E")), inputs=(A, B)
    )
    assert fused_consumers(workload) == set()
    assert steps_of(workload, Inline) == {Inline("E")}


def test_no_epilogue_over_two_reductions() -> None:
    body = Binary("add", load("C", "i", "j"), load("D", "i", "j"))
    workload = chain(product("C"), product("D"), pointwise("R", body), inputs=(A, B))
    assert fused_consumers(workload) == set()


# What is computed row by row.


def fused_producers(sketch: Sketch) -> set[str]:
    return {step.stage for step in sketch.steps if isinstance(step, FuseProducer)}


def all_fused_producers(workload: Workload) -> set[str]:
    return {name for sketch in sketches(workload) for name in fused_producers(sketch)}


def partial_results(sketch: Sketch) -> dict[str, int]:
    return {s.stage: s.lanes for s in sketch.steps if isinstance(s, SplitReduction)}


ROW_FUSIONS = [
    f"{place}-fusion{recompute}{partials}"
    for place in ("row", "block")
    for recompute in ("", "-recompute")
    for partials in ("", "-narrow", "-wide")
]


def test_softmax_is_one_loop_over_rows() -> None:
    made = {sketch.name: sketch for sketch in sketches(softmax(m=64, n=256))}
    assert list(made) == ROW_FUSIONS
    for name, sketch in made.items():
        kept = set() if "recompute" in name else {"E"}
        assert fused_producers(sketch) == {"M", "M_partial", "S", "S_partial"} | kept
        assert (Inline("E") in sketch.steps) == (not kept)
        lanes = 4 if "narrow" in name else 64 if "wide" in name else 16
        assert partial_results(sketch) == {"M": lanes, "S": lanes}
        loops = {step.at for step in sketch.steps if isinstance(step, FuseProducer)}
        assert loops == {"i.0" if "block" in name else "i.1"}
    assert SketchSpace(softmax(m=512, n=512), TARGET, LIMITS).count() > 2000


def test_what_is_kept_in_a_row_is_computed_in_vectors_of_a_searched_width() -> None:
    sketch = sketches(softmax(m=64, n=256))[0]
    domains = {param.name: param.values for param in sketch.params}
    assert domains["E.j.1"] == domains["Y.j.1"] == (4, 8, 16, 32)
    for stage in ("E", "Y"):
        assert Vectorize(stage, "j.1") in sketch.steps


@pytest.mark.parametrize(
    ("columns", "partials"),
    [
        (7, {0}),  # shorter than a vector
        (31, {0}),
        (6, {0}),  # four do not divide it
        (16, {8, 4}),
        (100, {4}),
        (1000, {8, 4}),
        (512, {16, 4, 64}),
    ],
)
def test_a_row_is_reduced_in_partial_results_that_divide_it(
    columns: int, partials: set[int]
) -> None:
    made = sketches(softmax(m=3, n=columns))
    assert {partial_results(sketch).get("S", 0) for sketch in made} == partials
    assert {partial_results(sketch).get("M", 0) for sketch in made} == partials


@pytest.mark.parametrize(("rows", "blocks"), [(1, None), (5, None), (6, (2,)), (24, (2, 4, 8))])
def test_blocks_have_several_rows(rows: int, blocks: tuple[int, ...] | None) -> None:
    made = [s for s in sketches(softmax(m=rows, n=64)) if s.name.startswith("block-fusion")]
    assert bool(made) == (blocks is not None)
    for sketch in made:
        (tile,) = (s for s in sketch.steps if isinstance(s, Tile) and s.axis == "i")
        domains = {param.name: param.values for param in sketch.params}
        found = (tile.factors[1].value,) if len(blocks or ()) == 1 else domains["Y.i.1"]
        assert found == blocks


def test_a_normalisation_is_one_loop_over_rows() -> None:
    centred = Binary("sub", load("X", "i", "j"), load("M", "i"))
    workload = chain(row_reduction("M", "X"), pointwise("Y", centred), inputs=(X,))
    assert all_fused_producers(workload) == {"M", "M_partial"}
    # There is nothing to keep or to compute again.
    assert not any("recompute" in sketch.name for sketch in sketches(workload))


def test_reductions_over_rows_share_no_row_loop() -> None:
    axes = (Axis("j", COLUMNS), Axis("k", ROWS, "reduce"))
    columns = Stage(Tensor("M", (COLUMNS,), "float32"), axes, load("X", "k", "j"), "add")
    centred = Binary("sub", load("X", "i", "j"), load("M", "j"))
    workload = chain(columns, pointwise("Y", centred), inputs=(X,))
    assert all_fused_producers(workload) == set()


def test_reductions_with_reuse_are_tiled_instead() -> None:
    scaled = Binary("mul", load("C", "i", "j"), load("S", "i"))
    workload = chain(product(), row_reduction("S", "C"), pointwise("Y", scaled), inputs=(A, B))
    assert all_fused_producers(workload) == set()
    for sketch in sketches(workload):
        assert {"C", "S"} <= {s.stage for s in sketch.steps if isinstance(s, Accumulate)}


def test_a_returned_reduction_is_not_fused() -> None:
    centred = Binary("sub", load("X", "i", "j"), load("M", "i"))
    workload = chain(
        row_reduction("M", "X"), pointwise("Y", centred), inputs=(X,), outputs=("M", "Y")
    )
    assert all_fused_producers(workload) == set()


# Tiling, packing, padding.

NOT_BLOCKED = ["direct", "plain-outer", "plain-rows"]
EVERY_PACKING = [
    *NOT_BLOCKED,
    "packed-root",
    "packed-panel",
    "packed-root-rows",
    "packed-panel-outer",
]


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        (gemm(m=37, n=53, k=29), EVERY_PACKING),
        (gemm(m=64, n=64, k=64), EVERY_PACKING),
        (gemm(m=37, n=53, k=8), NOT_BLOCKED),  # too little depth to be worth packing
        (gemm(m=1, n=64, k=64), ["direct"]),  # no rows: nothing is used twice
        (batch_matmul(b=2, m=33, n=40, k=50), EVERY_PACKING),
        (dense(m=37, n=48, k=20), EVERY_PACKING[3:]),  # W[n, k] is not contiguous along n
        (conv2d(h=9, w=9, ci=4, co=40, pad=1, bias=1, relu=1), EVERY_PACKING),
        (conv2d(h=9, w=9, ci=4, co=40), EVERY_PACKING),
        (depthwise_conv2d(h=9, w=9, c=19), NOT_BLOCKED),
        (softmax(m=5, n=7), ["row-fusion", "row-fusion-recompute"]),
        (softmax(m=64, n=256), ROW_FUSIONS),
        (elementwise(m=5, n=7), ["plain"]),
    ],
    ids=lambda value: value.name if isinstance(value, Workload) else "",
)
def test_the_default_sketches(workload: Workload, names: list[str]) -> None:
    made = sketches(workload)
    assert [sketch.name for sketch in made] == names
    assert len(made) <= 12


def test_only_what_is_packed_is_padded() -> None:
    for sketch in sketches(gemm(m=37, n=53, k=29)):
        packed = {step.operand for step in sketch.steps if isinstance(step, Pack)}
        padded = {step.axis for step in sketch.steps if isinstance(step, PadExtent)}
        # A[i, k] moves along i and B[k, j] along j.
        assert padded == {axis for axis, operand in (("i", "A"), ("j", "B")) if operand in packed}


def test_the_input_of_a_convolution_is_padded_in_its_copy() -> None:
    workload = conv2d(h=9, w=9, ci=4, co=40, pad=1)
    for sketch in sketches(workload):
        packed = {step.operand for step in sketch.steps if isinstance(step, Pack)}
        inlined = Inline("P") in sketch.steps
        assert inlined == ("P" in packed)
        own = {s.stage for s in sketch.steps if isinstance(s, Parallel)}
        assert ("P" in own) != inlined


def test_vectors_are_whole_registers_where_the_axis_is_padded() -> None:
    for sketch in sketches(gemm(m=37, n=53, k=29)):
        (lanes,) = (p for p in sketch.params if p.name == "C.j.3")
        assert isinstance(lanes, Factor)
        padded = any(isinstance(s, PadExtent) and s.axis == "j" for s in sketch.steps)
        assert lanes.values == ((16,) if padded else (1,))
        assert Vectorize("C", "j.3") in sketch.steps


def test_the_limits_of_the_backend_are_hard_and_named() -> None:
    limits = ScheduleLimits(frozenset(STEP_TYPES), 1024, 8, "backend test")
    for sketch in sketches(gemm(m=64, n=64, k=64), limits):
        hard = {c.source: c.limit for c in sketch.constraints if isinstance(c, AtMost) and c.hard}
        assert hard == {
            "backend test: unrolled body": 8,
            "backend test: accumulate tile on the stack": 1024,
        }
    lax = SketchSpace(gemm(m=64, n=64, k=64), TARGET, LIMITS).count()
    assert SketchSpace(gemm(m=64, n=64, k=64), TARGET, limits).count() < lax


# What cannot be scheduled.


@pytest.mark.parametrize(
    ("missing", "left"),
    [
        ("pack", ["direct"]),
        ("pad_extent", EVERY_PACKING),
        ("inline", EVERY_PACKING),
        ("fuse_producer", EVERY_PACKING),
    ],
)
def test_sketches_with_unsupported_steps_are_left_out(missing: str, left: list[str]) -> None:
    limits = ScheduleLimits(frozenset(STEP_TYPES) - {missing}, 65536, 512, "backend test")
    made = sketches(gemm(m=37, n=53, k=29), limits)
    assert [sketch.name for sketch in made] == left


def test_no_sketch_can_be_replayed() -> None:
    limits = ScheduleLimits(frozenset({"tile", "order"}), 65536, 512, "backend test")
    message = (
        "workload 'gemm': none of its 7 sketches can be replayed by backend test: "
        "direct needs accumulate; plain-outer needs accumulate, pack; "
    )
    with pytest.raises(UnsupportedWorkload, match=message):
        SketchSpace(gemm(m=37, n=53, k=29), TARGET, limits)


def test_no_rule_applies_to_a_reduction_to_a_number() -> None:
    axes = (Axis("k", COLUMNS, "reduce"),)
    total = Stage(
        Tensor("Y", (), "float32"), axes, Load("X", (var("k") - var("k"), var("k"))), "add"
    )
    workload = Workload("total", (X,), (total,), ("Y",))
    with pytest.raises(
        UnsupportedWorkload, match="no sketch rule applies to stage 'Y'; rules: inline, row-fusion"
    ):
        sketches(workload)


def test_no_rule_applies_to_a_sum_of_everything() -> None:
    axes = (Axis("i", 4, "reduce"),)
    total = Stage(Tensor("Y", (), "float32"), axes, Constant(1.0, "float32"), "add")
    with pytest.raises(UnsupportedWorkload, match="no sketch rule applies to stage 'Y'"):
        sketches(Workload("total", (), (total,), ("Y",)))


def test_no_rule_at_all() -> None:
    with pytest.raises(UnsupportedWorkload, match="stage 'C'; rules: inline$"):
        generate_sketches(gemm(m=2, n=2, k=2), TARGET, LIMITS, (InlineRule(),))


def test_a_tiled_operand_is_read_at_one_place() -> None:
    axes = (Axis("i", ROWS), Axis("j", COLUMNS), Axis("k", DEPTH, "reduce"))
    body = Binary(
        "mul", load("A", "i", "k"), Binary("add", load("A", "i", "k"), load("A", "j", "k"))
    )
    stage = Stage(matrix("C"), axes, body, "add")
    square = Tensor("A", (COLUMNS, DEPTH), "float32")
    with pytest.raises(UnsupportedWorkload, match="'C' reads 'A' at 2 different places"):
        sketches(Workload("twice", (square,), (stage,), ("C",)))


@pytest.mark.parametrize("channels", [12, 7, 16, 40])
def test_panels_are_copied_in_vectors_that_divide_them(channels: int) -> None:
    """Channels that another operand keeps from being padded need not fill whole registers."""
    found = []
    for sketch in sketches(depthwise_conv2d(n=2, h=8, w=5, c=channels, kh=4, kw=4)):
        domains = [p.values for p in sketch.params if p.name == "Y.c.extent"]
        extents = (domains[0] if domains else None) or (channels,)
        blocked = [s for s in sketch.steps if isinstance(s, Pack) and s.block_dim is not None]
        found += blocked
        assert all(extent % step.lanes == 0 for step in blocked for extent in extents)
    assert found


def test_two_tiled_stages_are_packed_alike() -> None:
    second = Stage(
        Tensor("D", (ROWS, COLUMNS), "float32"),
        (Axis("i", ROWS), Axis("j", COLUMNS), Axis("k", COLUMNS, "reduce")),
        Binary("mul", load("C", "i", "k"), load("E", "k", "j")),
        "add",
    )
    inputs = (A, B, Tensor("E", (COLUMNS, COLUMNS), "float32"))
    made = sketches(chain(product(), second, inputs=inputs))
    assert 1 < len(made) <= 12
    for sketch in made:
        first, *others = [label for label in sketch.name.split("+") if label in EVERY_PACKING]
        assert others in ([first], ["direct"])


def _network_stage(name: str, shape: tuple[int, ...], body: ScalarExpr) -> Stage:
    axes = tuple(map(Axis, "ij", shape))
    return Stage(Tensor(name, shape, "float32"), axes, body)


def test_what_is_read_where_data_says_is_computed_before() -> None:
    i, j = var("i"), var("j")
    table = _network_stage("U", (9, 16), Unary("neg", Load("T", (i, j))))
    rows = _network_stage("Y", (5, 16), Gather("U", (Load("I", (i,)), IndexValue(j))))
    inputs = (Tensor("T", (9, 16), "float32"), Tensor("I", (5,), "int64"))
    workload = Workload("table", inputs, (table, rows), ("Y",))
    (sketch,) = sketches(workload)
    assert not any(isinstance(step, (Inline, FuseProducer)) for step in sketch.steps)
    inlined = evolve(sketch, steps=(Inline("U"), *sketch.steps))
    with pytest.raises(InvalidValueError, match="'Y' reads it at indices that are computed"):
        derive_nest(inlined)


def test_what_is_read_at_quotients_is_inlined_but_not_computed_row_by_row() -> None:
    i, j = var("i"), var("j")
    product = _network_stage("U", (8, 64), Unary("neg", Load("X", (i, j))))
    heads = _network_stage("Y", (8, 64), Load("U", (j // 8, i * 8 + j % 8)))
    inputs = (Tensor("X", (8, 64), "float32"),)
    (sketch,) = sketches(Workload("heads", inputs, (product, heads), ("Y",)))
    assert Inline("U") in sketch.steps
    total = Stage(
        Tensor("S", (8,), "float32"),
        (Axis("i", 8), Axis("j", 64, "reduce")),
        Load("X", (i, j)),
        "add",
    )
    for index, fused in ((i, True), (i // 2, False)):
        ratio = _network_stage("Y", (8, 64), Binary("div", Load("X", (i, j)), Load("S", (index,))))
        made = sketches(Workload("rows", inputs, (total, ratio), ("Y",)))
        steps = [step for sketch in made for step in sketch.steps]
        assert any(isinstance(step, FuseProducer) for step in steps) == fused


def test_a_single_number_has_a_schedule_without_steps() -> None:
    stage = Stage(Tensor("Y", (), "float32"), (), Unary("exp", Load("X", ())))
    (sketch,) = sketches(Workload("number", (Tensor("X", (), "float32"),), (stage,), ("Y",)))
    assert sketch.steps == () and sketch.params == ()


def test_reductions_that_read_where_data_says_are_refused() -> None:
    axes = (Axis("i", 5), Axis("k", 4, "reduce"))
    body = Gather("T", (Load("I", (var("i"), var("k"))),))
    stage = Stage(Tensor("Y", (5,), "float32"), axes, body, "add")
    inputs = (Tensor("T", (9,), "float32"), Tensor("I", (5, 4), "int64"))
    with pytest.raises(UnsupportedWorkload, match="reads 'T' at indices that are computed"):
        sketches(Workload("bag", inputs, (stage,), ("Y",)))
