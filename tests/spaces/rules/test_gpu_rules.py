"""GPU sketches: their structure, and that their constraints hold what the target allows."""

from __future__ import annotations

import json
import math

import attrs
import numpy as np
import pytest
from made_workloads import two_products
from written import written

from autotune.errors import InvalidValueError
from autotune.ir.expressions import var
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import (
    Workload,
    batch_matmul,
    conv2d,
    dense,
    depthwise_conv2d,
    elementwise,
    gemm,
    softmax,
)
from autotune.nest import derive_nest, nest_tape
from autotune.sketches import (
    STEP_TYPES,
    Accumulate,
    AtMost,
    Bind,
    Candidate,
    ChunkReduction,
    CooperativeFetch,
    Factor,
    FuseConsumer,
    FuseProducer,
    Inline,
    OneOf,
    Order,
    Ordinal,
    PadExtent,
    SharedLayout,
    Sketch,
    UnrollLimit,
)
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.gpu_levels import block_threads, thread_counts, vector_widths
from autotune.spaces.rules.gpu_split_reduction import chunk_counts
from autotune.targets import Target, preset, preset_names

TARGET = preset("a100")
SPLIT = ("split-reduction", "split-reduction-wide")
LIMITS = ScheduleLimits(frozenset(STEP_TYPES), 65536, 512, "backend test")


def sketches(workload: Workload, target: Target = TARGET) -> dict[str, Sketch]:
    return {
        s.name: s for s in generate_sketches(workload, target, LIMITS, BUILT_IN_RULES).sketches
    }


def steps_of(sketch: Sketch, kind: type) -> list:
    return [step for step in sketch.steps if isinstance(step, kind)]


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        (gemm(m=512, n=512, k=512), ["shared", "shared-transposed", "split-reduction"]),
        (gemm(m=1024, n=1024, k=1024), ["shared", "shared-transposed"]),
        (gemm(m=1, n=1000, k=2048), ["shared", "cross-thread", *SPLIT]),
        (gemm(m=1, n=1, k=4096), ["cross-thread"]),
        (gemm(m=37, n=53, k=29), ["shared", "shared-transposed", "direct"]),
        (batch_matmul(b=12, m=128, n=128, k=64), ["shared", "shared-transposed", "direct"]),
        (dense(m=64, n=1000, k=2048), ["shared", "shared-transposed", *SPLIT]),
        (conv2d(h=56, w=56, ci=64, co=64, pad=1), ["shared", "split-reduction"]),
        (
            conv2d(h=56, w=56, ci=64, co=128, pad=1, stride=2, bias=1, relu=1),
            ["shared", "split-reduction"],
        ),
        (depthwise_conv2d(h=112, w=112, c=32, pad=1), ["shared", "direct"]),
        (softmax(m=512, n=512), ["row-fusion-kept", "row-fusion-recomputed"]),
        (softmax(m=8, n=50000), ["row-fusion-recomputed"]),
        (elementwise(m=1024, n=1024), ["plain"]),
        (elementwise(m=1, n=1), ["plain"]),
    ],
    ids=lambda value: f"{value.name}" if isinstance(value, Workload) else "",
)
def test_every_built_in_workload_has_sketches(workload: Workload, names: list[str]) -> None:
    assert list(sketches(workload)) == names


def test_a_matrix_product_is_tiled_over_blocks_threads_and_registers() -> None:
    sketch = sketches(gemm(m=512, n=256, k=128))["shared"]
    (order,) = steps_of(sketch, Order)
    assert order.loops == (
        *("i.0", "j.0", "i.1", "j.1", "i.2", "j.2"),
        *("k.0", "k.1", "i.3", "j.3", "k.2", "i.4", "j.4"),
    )
    assert [(step.loops, step.role) for step in steps_of(sketch, Bind)] == [
        (("i.0", "j.0"), "block"),
        (("i.1", "j.1"), "vthread"),
        (("i.2", "j.2"), "thread"),
    ]
    threads = var("C.i.2") * var("C.j.2")
    assert steps_of(sketch, CooperativeFetch) == [
        CooperativeFetch("C", "A", "k.0", threads, var("C.A.lanes")),
        CooperativeFetch("C", "B", "k.0", threads, var("C.B.lanes")),
    ]
    # All threads of a warp that read B read the same row of it.
    assert steps_of(sketch, SharedLayout) == [SharedLayout("C", "A", (0, 1), var("C.A.pad"))]
    (write,) = steps_of(sketch, Accumulate)
    assert write.at == "j.2"
    assert steps_of(sketch, UnrollLimit) == [UnrollLimit("C", var("C.unroll"))]
    nest = derive_nest(sketch)
    scopes = {buffer.name: buffer.scope for buffer in nest.buffers}
    assert scopes == {"A.fetch": "shared", "B.fetch": "shared", "C.tile": "local"}
    assert {statement.unroll_limit for statement in nest.statements} == {var("C.unroll")}


def test_rows_are_turned_to_lie_along_results() -> None:
    def layouts(workload: Workload) -> dict[str, tuple[int, ...]]:
        sketch = sketches(workload)["shared-transposed"]
        assert all(
            step.pad == var(f"{step.stage}.{step.operand}.pad")
            for step in steps_of(sketch, SharedLayout)
        )
        return {step.operand: step.dims for step in steps_of(sketch, SharedLayout)}

    assert layouts(gemm(m=64, n=64, k=64)) == {"A": (1, 0)}
    params = sketches(gemm(m=64, n=64, k=64, dtype="int8"))["shared-transposed"].params
    widths = {param.name: param.values for param in params if param.name.endswith(".lanes")}
    # Lanes that are stored one by one have indices of their own, of which a vector has four.
    assert (widths["C.A.lanes"], widths["C.B.lanes"]) == ((1, 2, 4), (1, 2, 4, 8, 16))
    assert layouts(dense(m=64, n=64, k=64)) == {"X": (1, 0), "W": (1, 0)}
    assert layouts(batch_matmul(b=4, m=64, n=64, k=64)) == {"A": (0, 2, 1), "B": (0, 1, 2)}
    # One row, and windows: there is nothing to turn.
    assert "shared-transposed" not in sketches(gemm(m=1, n=1000, k=2048))
    assert "shared-transposed" not in sketches(conv2d(h=56, w=56, ci=64, co=64, pad=1))


@pytest.mark.parametrize(
    ("dtype", "pads"),
    [("float32", (0, 4)), ("float64", (0, 2)), ("int8", (0, 16)), ("float16", (0, 8))],
)
def test_rows_are_padded_by_one_vector(dtype: str, pads: tuple[int, ...]) -> None:
    sketch = sketches(gemm(m=64, n=64, k=64, dtype=dtype))["shared"]
    (found,) = (param for param in sketch.params if param.name == "C.A.pad")
    assert isinstance(found, Ordinal) and found.values == pads


def test_a_backend_without_layouts_gets_operands_as_they_are() -> None:
    limits = attrs.evolve(LIMITS, steps=LIMITS.steps - {"shared_layout"})
    found = generate_sketches(gemm(m=64, n=64, k=128), TARGET, limits, BUILT_IN_RULES).sketches
    assert [sketch.name for sketch in found] == ["shared"]  # of 128 terms, so none is split
    assert not any(name.endswith(".pad") for name in found[0].param_names)


def test_blocks_share_reductions_with_few_results() -> None:
    sketch = sketches(dense(m=128, n=768, k=3072), preset("h100"))["split-reduction-wide"]
    assert steps_of(sketch, ChunkReduction) == [ChunkReduction("Y", "k", 16)]
    grids = {step.stage: step.loops for step in steps_of(sketch, Bind) if step.role == "block"}
    assert grids == {"Y_partial": ("k_chunk.0", "i.0", "j.0"), "Y": ("i.0", "j.0")}
    (fused,) = steps_of(sketch, FuseConsumer)
    assert (fused.stage, fused.producer, fused.at) == ("R", "Y", "j.1")
    nest = derive_nest(sketch)
    scopes = {buffer.name: buffer.scope for buffer in nest.buffers}
    assert scopes == {
        "X.fetch": "shared",
        "W.fetch": "shared",
        "Y_partial.tile": "local",
        "Y_partial": "global",
        "Y.tile": "local",
    }
    (partial,) = (buffer for buffer in nest.buffers if buffer.name == "Y_partial")
    assert [extent.value for extent in partial.shape] == [16, 128, 768]


@pytest.mark.parametrize(
    ("workload", "counts"),
    [
        (gemm(m=1024, n=1024, k=8192), ()),  # tiles enough
        (gemm(m=64, n=64, k=508), ()),  # too few terms for four parts
        (gemm(m=64, n=64, k=512), (4,)),
        (gemm(m=64, n=64, k=514), ()),  # no divisors
        (gemm(m=64, n=64, k=8192), (16, 64)),
        (gemm(m=256, n=768, k=8192), (8,)),
        (dense(m=128, n=768, k=3072), (4, 16)),
        (conv2d(h=14, w=14, ci=256, co=256, pad=1), (4, 16)),
    ],
)
def test_numbers_of_parts(workload: Workload, counts: tuple[int, ...]) -> None:
    stage = next(stage for stage in workload.stages if stage.combiner is not None)
    assert chunk_counts(stage, preset("h100")) == counts


def test_what_is_not_split_across_blocks() -> None:
    def split(workload: Workload, steps: frozenset[str] = LIMITS.steps) -> bool:
        limits = attrs.evolve(LIMITS, steps=steps)
        found = generate_sketches(workload, TARGET, limits, BUILT_IN_RULES).sketches
        return any("split" in sketch.name for sketch in found)

    assert split(gemm(m=8, n=64, k=1024))
    # Results too few for a warp along a row; a backend that cannot; two reductions.
    assert not split(gemm(m=64, n=16, k=1024))
    assert not split(gemm(m=8, n=64, k=1024), LIMITS.steps - {"chunk_reduction"})
    assert not split(two_products(8, 1024))


def test_the_padding_of_a_convolution_is_computed_while_it_is_fetched() -> None:
    found = sketches(conv2d(h=16, w=16, ci=4, co=32, kh=3, kw=3, pad=1))
    for name, sketch in found.items():
        assert steps_of(sketch, Inline) == [Inline("P")]
        nest = derive_nest(sketch)
        readers = [s.name for s in nest.statements if any(a.buffer == "X" for a in s.accesses)]
        assert readers == (["P.fetch"] if name == "shared" else ["Y"])
        assert not any(buffer.name == "P" for buffer in nest.buffers)


def test_an_epilogue_takes_the_accumulators_of_a_thread() -> None:
    sketch = sketches(dense(m=64, n=128, k=256))["shared"]
    (fused,) = steps_of(sketch, FuseConsumer)
    assert (fused.stage, fused.producer, fused.at) == ("R", "Y", "j.2")
    assert steps_of(sketch, Accumulate) == []


def test_a_row_is_reduced_across_the_threads_of_its_block() -> None:
    sketch = sketches(softmax(m=64, n=1000))["row-fusion-kept"]
    fused = [(step.stage, step.at) for step in steps_of(sketch, FuseProducer)]
    assert fused == [("S", "i.0"), ("E", "i.0"), ("M", "i.0")]
    nest = derive_nest(sketch)
    assert {buffer.name: buffer.scope for buffer in nest.buffers} == dict.fromkeys("MES", "shared")
    threads = {loop.extent for s in nest.statements for loop in s.loops if loop.kind == "thread"}
    assert threads == {var("Y.threads")}


def test_several_short_rows_share_a_block() -> None:
    sketch = sketches(softmax(m=96, n=128))["row-fusion-kept"]
    bound = [(step.stage, step.loops, step.role) for step in steps_of(sketch, Bind)]
    assert [it for it in bound if it[2] != "thread"] == [
        ("Y", ("i.0",), "block"),
        ("Y", ("i.1",), "thread_y"),
        *((stage, ("i.0",), "thread_y") for stage in "SEM"),
    ]
    config = {"Y.i.0": 24, "Y.i.1": 4, "Y.threads": 32, "Y.lanes": 1, "E.lanes": 1, "Y.unroll": 0}
    nest = derive_nest(sketch)
    shapes = {
        buffer.name: [evaluate(extent, config) for extent in buffer.shape]
        for buffer in nest.buffers
    }
    assert shapes == {"M": [4], "E": [4, 128], "S": [4]}
    assert {buffer.scope for buffer in nest.buffers} == {"shared"}
    for statement in nest.statements:
        found = [loop.extent for loop in statement.loops if loop.kind == "thread"]
        # Partial results of all threads of a row begin with one value.
        wanted = [4] if statement.role == "init" else [4, 32]
        assert [evaluate(extent, config) for extent in found] == wanted
    (limit,) = (it for it in sketch.constraints if isinstance(it, AtMost))
    assert (evaluate(limit.expression, config), limit.limit, limit.hard) == (128, 1024, True)


@pytest.mark.parametrize(
    ("workload", "rows"),
    [
        (softmax(m=96, n=128), (1, 2, 4, 8)),
        (softmax(m=6, n=512), (1, 2)),
        (softmax(m=96, n=513), None),  # threads enough for a multiprocessor
        (softmax(m=97, n=128), None),
    ],
)
def test_numbers_of_rows_divide_theirs(workload: Workload, rows: tuple[int, ...] | None) -> None:
    for sketch in sketches(workload).values():
        found = {param.name: param.values for param in sketch.params if isinstance(param, Factor)}
        assert found.get("Y.i.1") == rows


def test_rows_of_a_block_fit_its_shared_memory() -> None:
    small = attrs.evolve(TARGET, shared_memory_bytes=512 + 5 * 4 * (128 + 2))
    kept = sketches(softmax(m=96, n=128), small)
    found = {
        name: param.values
        for name, sketch in kept.items()
        for param in sketch.params
        if param.name == "Y.i.1"
    }
    assert found == {"row-fusion-kept": (1, 2, 4), "row-fusion-recomputed": (1, 2, 4, 8)}


def test_what_a_block_cannot_keep_is_computed_again() -> None:
    (sketch,) = sketches(softmax(m=8, n=50000)).values()
    assert Inline("E") in sketch.steps
    assert {buffer.name for buffer in derive_nest(sketch).buffers} == {"M", "S"}


def test_a_reduction_without_axes_is_one_block() -> None:
    (sketch,) = sketches(written("X[5000]", "S[; k:5000] += X[k]")).values()
    assert [step.role for step in steps_of(sketch, Bind)] == ["thread"]


def test_what_is_expensive_to_compute_is_not_computed_by_every_reader() -> None:
    texts = "E[i:64, k:32] = exp(X[i, k])", "C[i:64, j:64; k:32] += E[i, k] * W[k, j]"
    found = sketches(written("X[64, 32], W[32, 64]", *texts))
    assert steps_of(found["shared"], Inline) == [Inline("E")]
    assert steps_of(found["direct"], Inline) == []


def test_axes_are_padded_into_what_is_fetched() -> None:
    found = sketches(dense(m=37, n=1000, k=64))
    padded = {step.axis: step.extent for step in steps_of(found["shared"], PadExtent)}
    assert padded == {"i": var("Y.i.extent"), "j": var("Y.j.extent")}
    values = {param.name: param.values for param in found["shared"].params}
    assert values["Y.i.extent"] == (37, 38, 40)
    assert values["Y.j.extent"] == (1000, 1008, 1024)
    assert steps_of(found["direct"], PadExtent) == []


SPACES = (
    gemm(m=64, n=48, k=32),
    gemm(m=7, n=13, k=17),
    gemm(m=2, n=64, k=256),
    conv2d(h=8, w=6, ci=4, co=16, pad=1, bias=1),
    conv2d(h=9, w=9, ci=2, co=6, dilation=2, stride=3),
    depthwise_conv2d(h=8, w=6, c=16, pad=1, stride=2),
    batch_matmul(b=4, m=8, n=8, k=8),
    softmax(m=6, n=100),
    softmax(m=16, n=512),
    elementwise(m=16, n=64),
    elementwise(m=3, n=101),
)


@pytest.mark.parametrize("workload", SPACES, ids=lambda workload: workload.name)
def test_sketches_come_back_from_json(workload: Workload) -> None:
    for sketch in sketches(workload).values():
        restored = Sketch.from_json(json.loads(json.dumps(sketch.to_json())), workload)
        assert restored == sketch
        assert restored.digest == sketch.digest


@pytest.mark.parametrize("workload", SPACES, ids=lambda workload: workload.name)
def test_what_is_drawn_fits_the_target(workload: Workload) -> None:
    space = SketchSpace(workload, TARGET, LIMITS)
    for candidate in space.sample(8 * len(space.sketches()), np.random.default_rng(0)):
        check_limits(candidate)


def check_limits(candidate: Candidate) -> None:
    nest = nest_tape(candidate.sketch).nest
    config = candidate.config
    kernels: dict[str, list[tuple[int, ...]]] = {}
    for statement in nest.statements:
        sizes = tuple(
            int(evaluate(loop.extent, config))
            for loop in statement.loops
            if loop.kind == "thread" and loop.name not in statement.cooperating
        )
        if statement.role != "init":
            kernels.setdefault(statement.loops[0].name, []).extend([sizes] if sizes else [])
        assert 0 < math.prod(sizes) <= TARGET.max_threads_per_block
        vthreads = [loop.extent for loop in statement.loops if loop.kind == "vthread"]
        assert all(evaluate(extent, config) <= 8 for extent in vthreads)
        vectors = [loop.extent for loop in statement.loops if loop.kind == "vectorized"]
        for extent in vectors:
            for access in statement.accesses:
                size = nest.element_bytes(access.buffer)
                assert evaluate(extent, config) * size <= TARGET.vector_bytes
    # Every loop over a dimension of a kernel's threads has the same extent.
    assert all(len(set(sizes)) <= 1 for sizes in kernels.values())
    shared = [b for b in nest.buffers if b.scope == "shared"]
    total = sum(int(evaluate(buffer.bytes, config)) for buffer in shared)
    assert total <= TARGET.shared_memory_bytes
    stated = [
        constraint
        for constraint in candidate.sketch.constraints
        if isinstance(constraint, AtMost) and "shared memory" in constraint.source
    ]
    assert all(evaluate(constraint.expression, config) == total for constraint in stated)


def test_taste_never_empties_a_space() -> None:
    for m in (1, 2, 3, 5, 8, 17, 32, 96):
        for n in (1, 4, 7, 31, 64):
            if m * n > 1:
                assert SketchSpace(gemm(m=m, n=n, k=6), TARGET, LIMITS).count() > 0


@pytest.mark.parametrize("name", [name for name in preset_names() if preset(name).kind == "cuda"])
def test_no_sketch_is_empty_on_any_gpu(name: str) -> None:
    workloads = (
        gemm(m=1, n=1000, k=4096),
        gemm(m=3, n=33, k=512, dtype="float64"),
        gemm(m=17, n=64, k=5, dtype="int8"),
        dense(m=128, n=768, k=3072),
        conv2d(h=7, w=7, ci=512, co=509, pad=1),
        batch_matmul(b=12, m=1, n=64, k=2048),
    )
    for workload in workloads:
        space = SketchSpace(workload, preset(name), LIMITS)
        assert len(space.sketches()) <= 12
        assert all(space.feasible_set(sketch).count > 0 for sketch in space.sketches())


def test_whole_warps_are_asked_for_where_there_are_any() -> None:
    def asked(workload: Workload) -> bool:
        constraints = next(iter(sketches(workload).values())).constraints
        return any(isinstance(c, OneOf) and c.source == "whole warps" for c in constraints)

    assert asked(gemm(m=4, n=8, k=8))
    assert asked(gemm(m=4, n=7, k=8))  # padded
    assert not asked(gemm(m=1, n=7, k=8))


def test_numbers_of_threads() -> None:
    assert block_threads(1, TARGET) == (32,)
    assert block_threads(65, TARGET) == (32, 64, 128)
    assert block_threads(10**6, TARGET)[-1] == 1024
    assert thread_counts([(4,), (3,)], TARGET) == (1, 2, 3, 4, 6, 12)
    assert thread_counts([(3, 4)], TARGET) == (1, 2, 3, 4)
    assert max(thread_counts([(1 << 10,), (1 << 10,)], TARGET)) == 1024


def test_vectors_fit_one_access() -> None:
    assert vector_widths(12, "float32", TARGET) == (1, 2, 4)
    assert vector_widths(12, "float64", TARGET) == (1, 2)
    assert vector_widths(64, "int8", TARGET) == (1, 2, 4, 8, 16)
    assert vector_widths(7, "float32", TARGET) == (1,)


def test_a_target_that_does_not_say_its_limits_is_refused() -> None:
    vague = attrs.evolve(TARGET, name="mine", shared_memory_bytes=0, warp_size=0)
    with pytest.raises(InvalidValueError, match="mine.*shared_memory_bytes, warp_size"):
        sketches(gemm(m=64, n=64, k=64), vague)


def test_shared_memory_has_room_for_alignment_and_partial_results() -> None:
    """A row of 49120 bytes, with what compilers add to it, passes 48 KiB."""
    assert set(sketches(softmax(m=3, n=12280))) == {"row-fusion-recomputed"}
    assert "row-fusion-kept" in sketches(softmax(m=3, n=12000))
    constraints = sketches(gemm(m=512, n=512, k=512))["shared"].constraints
    shared = next(c for c in constraints if "shared memory" in getattr(c, "source", ""))
    assert isinstance(shared, AtMost)
    assert shared.limit == TARGET.shared_memory_bytes - 2 * 63
