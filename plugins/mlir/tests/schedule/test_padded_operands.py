"""Padding of operands that are computed, read in windows, transposed or copied as a whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.emit import payload
from autotune_mlir.parsing import parse_payload
from autotune_mlir.schedule import schedule
from autotune_mlir.schedule.planning import plan_of
from autotune_mlir.transform_scripts import apply_schedule
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_schedules import scheduled

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload, conv2d, dense, gemm
from autotune.sketches import Candidate, Sketch, UnrollLimit, names_used
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import check_candidate

DRAWS = 200


def is_padded(candidate: Candidate) -> bool:
    """Whether some axis is iterated beyond its extent, with the values of this candidate."""
    plan = plan_of(candidate, candidate.sketch.workload)
    return any(own.padded for own in plan.stages.values())


def padded_candidates(
    workload: Workload, target: Target, each: int, variant: str = "pad_extent"
) -> Iterator[Candidate]:
    """Random candidates that pad: up to ``each`` of every sketch that uses the variant."""
    space = SketchSpace(workload, target, MLIRBackend().limits(target))
    left = {sketch.name: each for sketch in space.sketches() if variant in names_used(sketch)}
    for candidate in space.sample(DRAWS, np.random.default_rng(0)):
        if left.get(candidate.sketch.name, 0) > 0 and is_padded(candidate):
            left[candidate.sketch.name] -= 1
            yield candidate


def product_of(body: ScalarExpr, left: tuple[int, int], m: int, n: int, k: int) -> Workload:
    """A product whose left factor is computed from ``A`` point by point."""
    i, j, inner = var("i"), var("j"), var("k")
    factor = Stage(Tensor("P", (m, k), "float32"), (Axis("i", m), Axis("k", k)), body)
    product = Stage(
        Tensor("C", (m, n), "float32"),
        (Axis("i", m), Axis("j", n), Axis("k", k, "reduce")),
        Binary("mul", Load("P", (i, inner)), Load("B", (inner, j))),
        "add",
    )
    inputs = (Tensor("A", left, "float32"), Tensor("B", (k, n), "float32"))
    return Workload("product_of", inputs, (factor, product), ("C",))


def of_scaled_weights(m: int, n: int, k: int) -> Workload:
    """A product whose right factor is scaled."""
    i, j, inner = var("i"), var("j"), var("k")
    scaled = Stage(
        Tensor("P", (k, n), "float32"),
        (Axis("k", k), Axis("j", n)),
        Binary("mul", Load("B", (inner, j)), Constant(0.5, "float32")),
    )
    product = Stage(
        Tensor("C", (m, n), "float32"),
        (Axis("i", m), Axis("j", n), Axis("k", k, "reduce")),
        Binary("mul", Load("A", (i, inner)), Load("P", (inner, j))),
        "add",
    )
    inputs = (Tensor("A", (m, k), "float32"), Tensor("B", (k, n), "float32"))
    return Workload("of_scaled_weights", inputs, (scaled, product), ("C",))


def activation_first(size: int, channels: int, outputs: int) -> Workload:
    """A convolution of an image that is activated, and then surrounded by zeros."""
    a, b, c, wide = var("a"), var("b"), var("c"), size + 2
    axes = (Axis("a", wide), Axis("b", wide), Axis("c", channels))
    zero = Constant(0.0, "float32")
    inside: ScalarExpr = Binary("le", Constant(1, "int32"), IndexValue(a))
    for limit in (
        Binary("lt", IndexValue(a), Constant(size + 1, "int32")),
        Binary("le", Constant(1, "int32"), IndexValue(b)),
        Binary("lt", IndexValue(b), Constant(size + 1, "int32")),
    ):
        inside = Binary("and", inside, limit)
    activated = Stage(
        Tensor("Q", (size, size, channels), "float32"),
        (Axis("a", size), Axis("b", size), Axis("c", channels)),
        Binary("max", Load("X", (a, b, c)), zero),
    )
    surrounded = Stage(
        Tensor("P", (wide, wide, channels), "float32"),
        axes,
        Select(inside, Load("Q", (a - 1, b - 1, c)), zero),
    )
    image = Load("P", (var("h") + var("kh"), var("w") + var("kw"), var("ci")))
    weights = Load("W", (var("kh"), var("kw"), var("ci"), var("co")))
    result = Stage(
        Tensor("Y", (size, size, outputs), "float32"),
        (
            *(Axis(name, size) for name in "hw"),
            Axis("co", outputs),
            *(Axis(name, 3, "reduce") for name in ("kh", "kw")),
            Axis("ci", channels, "reduce"),
        ),
        Binary("mul", image, weights),
        "add",
    )
    inputs = (
        Tensor("X", (size, size, channels), "float32"),
        Tensor("W", (3, 3, channels, outputs), "float32"),
    )
    return Workload("activation_first", inputs, (activated, surrounded, result), ("Y",))


ROW, COLUMN = var("i"), var("k")
EXPONENTIAL = product_of(Unary("exp", Load("A", (ROW, COLUMN))), (27, 16), 27, 33, 16)
TRANSPOSED = product_of(Load("A", (COLUMN, ROW)), (16, 27), 27, 33, 16)


@pytest.mark.parametrize(
    ("workload", "variant"),
    [
        (conv2d(h=12, w=14, ci=4, co=24, stride=3), "pad_extent.window"),
        (activation_first(7, 8, 24), "pad_extent.window"),
        (EXPONENTIAL, "pad_extent.computed"),
        (TRANSPOSED, "pad_extent.computed"),
        (gemm(m=16, n=51, k=32), "pad_extent.whole"),
        (of_scaled_weights(16, 35, 16), "inline.into_whole_copy"),
        (dense(m=16, n=35, k=24), "pad_extent.transposed"),
    ],
)
def test_padded_operands_are_what_they_were(
    workload: Workload, variant: str, backend: MLIRBackend, target: Target
) -> None:
    found = list(padded_candidates(workload, target, 1, variant))
    assert found
    for number, candidate in enumerate(found):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


def check_random(data: st.DataObject) -> None:
    """Whatever the extents, padded programs compute what the reference computes."""
    extents = st.sampled_from([1, 2, 3, 5, 7, 11, 13, 17, 24, 31])
    kind = data.draw(st.sampled_from(["gemm", "dense", "conv2d"]))
    if kind == "conv2d":
        size, ci, co = data.draw(st.integers(4, 11)), data.draw(extents), data.draw(extents)
        stride, pad = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 1))
        workload = conv2d(h=size, w=size + 1, ci=ci, co=co, stride=stride, pad=pad)
    else:
        m, n, k = (data.draw(extents) for _ in range(3))
        workload = (gemm if kind == "gemm" else dense)(m=m, n=n, k=k)
    backend, target = MLIRBackend(), detect_cpu()
    found = list(padded_candidates(workload, target, 1))
    if found:
        check_candidate(backend, data.draw(st.sampled_from(found)), target)


@settings(max_examples=6)
@given(st.data())
def test_padding_of_any_shape(data: st.DataObject) -> None:
    check_random(data)


@pytest.mark.slow
@settings(max_examples=80)
@given(st.data())
def test_padding_of_many_shapes(data: st.DataObject) -> None:
    check_random(data)


def test_a_result_that_starts_otherwise_is_refused(target: Target) -> None:
    """It cannot be made larger by what it starts with; the interpreter would not survive it."""
    workload = gemm(m=27, n=64, k=16)
    candidate = next(padded_candidates(workload, target, 1))
    text = payload(workload)
    apply_schedule(parse_payload(text), schedule(candidate, workload))
    starting = text.replace("arith.constant 0x00000000", "arith.constant 0x80000000")
    assert starting != text
    with pytest.raises(InvalidSchedule, match=r"linalg\.fill"):
        apply_schedule(parse_payload(starting), schedule(candidate, workload))


@pytest.mark.parametrize("combiner", ["max", "min"])
def test_any_and_all_of_rows(combiner: str, backend: MLIRBackend, target: Target) -> None:
    """Whether one element of a row holds, or all of them do."""
    body = Load("M", (var("i"), var("k")))
    axes = (Axis("i", 13), Axis("k", 37, "reduce"))
    stage = Stage(Tensor("Y", (13,), "bool"), axes, body, combiner)
    workload = Workload("rows", (Tensor("M", (13, 37), "bool"),), (stage,), ("Y",))
    rows = np.random.default_rng(0).random((13, 37)) < (0.97 if combiner == "min" else 0.03)
    expected = rows.all(1) if combiner == "min" else rows.any(1)
    assert 0 < expected.sum() < 13
    space = SketchSpace(workload, target, backend.limits(target))
    for sketch in space.sketches():
        drawn = space.sample(20, np.random.default_rng(0))
        candidate = next((it for it in drawn if it.sketch.name == sketch.name), None)
        if candidate is not None:
            check_candidate(backend, candidate, target, {"M": rows})


def test_loops_are_unrolled_up_to_a_limit(backend: MLIRBackend, target: Target) -> None:
    workload = gemm(m=16, n=32, k=8)
    space = SketchSpace(workload, target, backend.limits(target))
    drawn = space.sample(400, np.random.default_rng(0))
    plain = next(
        it
        for it in drawn
        if it.sketch.name == "plain-outer" and it.config["C.k.0"] == 4 and it.config["C.k.1"] == 2
    )

    def limited(limit: int) -> Candidate:
        step = UnrollLimit("C", const(limit))
        sketch: Sketch = evolve(plain.sketch, steps=(*plain.sketch.steps, step))
        return Candidate(sketch, plain.values)

    assert "unroll_limit" in names_used(limited(4).sketch)
    counts = [str(scheduled(limited(limit))).count("scf.for") for limit in (0, 4096)]
    assert counts[0] == str(scheduled(plain)).count("scf.for") == counts[1] + 1
    check_candidate(backend, limited(4096), target)
