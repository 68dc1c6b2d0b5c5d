"""Taps of windows that are on nothing but padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from convolutions import convolution
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET, load, sketches, steps_of

from autotune.ir.expressions import (
    Binary,
    Cast,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    Unary,
    const,
    var,
)
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import (
    Axis,
    Stage,
    Tensor,
    Workload,
    conv1d,
    conv2d,
    conv3d,
    depthwise_conv2d,
    random_inputs,
    reference_outputs,
)
from autotune.nest import derive_nest
from autotune.sketches import BoundLoop, Candidate, Tensorize
from autotune.spaces import BUILT_IN_RULES, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.multi_level_tiling import PaddedWindow, padded_windows
from autotune.spaces.sketch_space import loosen
from autotune.targets import preset
from autotune.testing.nest_interpreter import run_candidate

ROW, PLACE = var("p"), IndexValue(var("p"))
INSIDE = Binary(
    "and",
    Binary("ge", PLACE, IndexValue(const(2))),
    Binary("lt", PLACE, IndexValue(const(12))),
)
X, ZERO = Load("X", (ROW - 2,)), Constant(0.0, "float32")
PADDED, AT = Select(INSIDE, X, ZERO), var("i") + var("k")
WINDOW = PaddedWindow("k", "i", 1, 1, 2, 11)


def windows(
    padded: ScalarExpr = PADDED,
    term: ScalarExpr | None = None,
    combiner: str = "add",
    at: IntExpr = AT,
) -> list[PaddedWindow]:
    """Of a window of 5 over 10 numbers, with two or more of padding on both sides."""
    taken = Load("P", (at,))
    body = Binary("mul", taken, load("W", "k")) if term is None else term
    taps, results = Axis("k", 5, "reduce"), Axis("i", 10)
    stages = (
        Stage(Tensor("P", (14,), "float32"), (Axis("p", 14),), padded),
        Stage(Tensor("Y", (10,), "float32"), (results, taps), body, combiner),
    )
    inputs = (Tensor("X", (10,), "float32"), Tensor("W", (5,), "float32"))
    workload = Workload("made", inputs, stages, ("Y",))
    return padded_windows(workload, workload.stage("Y"))


OUTSIDE = Binary(
    "or",
    Binary("gt", IndexValue(const(2)), PLACE),
    Unary("not", Binary("le", PLACE, IndexValue(const(11)))),
)
LOWEST = Constant(-math.inf, "float32")
READ = Load("P", (AT,))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (windows(), [WINDOW]),
        (windows(Select(Unary("not", INSIDE), ZERO, X)), [WINDOW]),
        (windows(Select(OUTSIDE, ZERO, X)), [WINDOW]),
        (windows(Select(INSIDE, Unary("neg", X), ZERO)), [WINDOW]),
        (windows(term=Unary("neg", READ)), [WINDOW]),
        (windows(term=Binary("mul", load("W", "k"), Cast("float32", READ))), [WINDOW]),
        (
            windows(Select(Binary("ge", PLACE, IndexValue(const(2))), X, ZERO)),
            [evolve(WINDOW, most=13)],
        ),
        (
            windows(Select(Binary("lt", PLACE, IndexValue(const(12))), X, ZERO)),
            [evolve(WINDOW, least=None)],
        ),
        # Another condition hides more: what is outside is still hidden.
        (windows(Select(Binary("and", INSIDE, Binary("lt", X, ZERO)), X, ZERO)), [WINDOW]),
        # Where it is nothing but what is outside in both, it is so in either.
        (windows(Select(Binary("lt", X, ZERO), Select(INSIDE, X, ZERO), ZERO)), [WINDOW]),
        (windows(at=13 - var("i") - var("k")), [evolve(WINDOW, least=2, most=11)]),
        (windows(at=var("i") - var("k") + 4), [PaddedWindow("k", "i", 1, -1, -7, 2)]),
        # A maximum leaves out what is minus infinity, and nothing else.
        (windows(Select(INSIDE, X, LOWEST), READ, "max"), [WINDOW]),
        (windows(PADDED, READ, "add"), [WINDOW]),
        (windows(PADDED, READ, "max"), []),
        (windows(Select(INSIDE, X, LOWEST), READ, "add"), []),
        (windows(Select(INSIDE, X, Constant(1.0, "float32"))), []),
        (windows(term=Binary("add", READ, load("W", "k"))), []),
        (windows(term=Unary("exp", READ)), []),
        (windows(Select(Binary("lt", X, ZERO), X, ZERO)), []),
        (windows(Select(Binary("or", INSIDE, Binary("lt", X, ZERO)), X, ZERO)), []),
        # Of each row as many are outside.
        (windows(at=var("k") + 4), []),
        (windows(at=(var("i") + var("k")) // 2), []),
    ],
)
def test_windows_that_are_found(found: list[PaddedWindow], wanted: list[PaddedWindow]) -> None:
    assert found == wanted


@pytest.mark.parametrize(
    ("workload", "bounded"),
    [
        (conv1d(w=9, ci=4, co=16, pad=1), {"kw.0": "wo"}),
        (conv2d(h=9, w=9, ci=4, co=16, pad=1), {"kh.0": "ho", "kw.0": "wo"}),
        (conv2d(h=9, w=9, ci=4, co=16), {}),
        (conv2d(h=9, w=9, ci=4, co=16, kh=1, pad=1), {"kh.0": "ho", "kw.0": "wo"}),
        (conv3d(d=4, h=5, w=6, ci=4, co=16, pad=1), {"kd.0": "do", "kh.0": "ho", "kw.0": "wo"}),
        (
            convolution(h=9, w=9, ci=8, co=32, pad=1, groups=2, last=1, dtype="float32"),
            {"kh.0": "ho", "kw.0": "wo"},
        ),
        # Nothing else is inside of loops over taps.
        (convolution(h=9, w=16, ci=8, co=32, pad=1, dtype="float32"), {}),
        (depthwise_conv2d(h=9, w=9, c=32, pad=1), {}),
        (conv2d(h=9, w=9, ci=2, co=16, pad=1), {}),
    ],
)
def test_loops_that_are_bounded(workload: Workload, bounded: dict[str, str]) -> None:
    found = steps_of(workload, BoundLoop)
    assert {it.loop: it.axis for it in found if isinstance(it, BoundLoop)} == bounded


def test_strides_and_dilations_are_those_of_the_window() -> None:
    workload = conv2d(h=9, w=8, ci=4, co=16, pad=3, stride=2, dilation=3)
    assert steps_of(workload, BoundLoop) == {
        BoundLoop("Y", "kh.0", "ho", const(11), 3, 2, const(3)),
        BoundLoop("Y", "kw.0", "wo", const(10), 3, 2, const(3)),
    }


def test_backends_without_the_step_compute_products_with_padding() -> None:
    workload = conv2d(h=9, w=9, ci=4, co=16, pad=1)
    without = evolve(LIMITS, steps=LIMITS.steps - {"bound_loop"})
    assert len(sketches(workload, without)) == len(sketches(workload))
    assert not any(
        isinstance(it, BoundLoop) for s in sketches(workload, without) for it in s.steps
    )


SMALL = st.integers(1, 3)


@st.composite
def convolutions(draw: st.DrawFn) -> Workload:
    """Of which some taps may be on nothing but padding, also of all results."""
    dimensions = draw(st.sampled_from(["w", "hw", "dhw"]))
    shape = {key: draw(st.integers(1, 7)) for key in dimensions}
    shape |= {f"k{key}": draw(st.integers(1, 4)) for key in dimensions}
    window = {"stride": draw(SMALL), "dilation": draw(SMALL), "pad": draw(st.integers(1, 4))}
    for key in dimensions:
        reach = (shape[f"k{key}"] - 1) * window["dilation"] + 1
        shape[key] = max(shape[key], reach - 2 * window["pad"])
    make: Any = {"w": conv1d, "hw": conv2d, "dhw": conv3d}[dimensions]
    made: Workload = make(ci=3, co=draw(st.sampled_from([4, 16])), **shape, **window)
    return made


@settings(max_examples=settings.default.max_examples // 4, deadline=None)
@given(convolutions(), st.integers(0, 2**32))
def test_what_is_left_out_changes_nothing(workload: Workload, seed: int) -> None:
    """Also of results all of whose taps are on padding."""
    made = sketches(workload)
    sketch, feasible, _ = loosen(made[seed % len(made)])
    (row,) = feasible.uniform(1, seed).tolist()
    inputs = random_inputs(workload, np.random.default_rng(seed))
    got = run_candidate(Candidate(sketch, tuple(row)), inputs)["Y"]
    np.testing.assert_allclose(got, reference_outputs(workload, inputs)["Y"], rtol=1e-4, atol=1e-5)


def test_terms_are_counted_that_are_computed() -> None:
    """In the counts that models see: taps that any row of a register tile reads numbers at."""
    space = SketchSpace(conv2d(h=7, w=5, ci=4, co=16, pad=1), TARGET, LIMITS)
    for sketch in space.sketches():
        (statement,) = (it for it in derive_nest(sketch).statements if it.name == "Y")
        for row in space.feasible_set(sketch).uniform(10, 0).tolist():
            config = dict(zip(sketch.param_names, row, strict=True))
            whole = math.prod(int(evaluate(it.extent, config)) for it in statement.loops)
            shares = []
            for axis, size in (("ho", 7), ("wo", 5)):
                tile, padded = config[f"Y.{axis}.2"], config.get(f"Y.{axis}.extent", size)
                tiles = [range(first, first + tile) for first in range(0, padded, tile)]
                run = [any(1 <= i + k <= size for i in it) for it in tiles for k in range(3)]
                shares.append(sum(run) / len(run))
            counted = int(evaluate(statement.trips(len(statement.loops)), config))
            assert counted == math.ceil(round(whole * math.prod(shares), 6))


@pytest.mark.parametrize(
    ("dtype", "bounded"),
    [("u8s8s32", {"kh.0", "kw.0"}), ("bfloat16", {"kh.0", "kw.0"}), ("int8", set())],
)
def test_calls_that_correct_their_sums_are_not_bounded(dtype: str, bounded: set[str]) -> None:
    workload = conv2d(h=5, w=6, ci=8, co=16, pad=1, dtype=dtype)
    target, limits = preset("sapphirerapids"), evolve(LIMITS, backend="tvm")
    made = generate_sketches(workload, target, limits, BUILT_IN_RULES).sketches
    dots = [it for it in made if any(_is_dot(step) for step in it.steps)]
    assert dots
    for sketch in dots:
        assert {it.loop for it in sketch.steps if isinstance(it, BoundLoop)} == bounded


def _is_dot(step: object) -> bool:
    return isinstance(step, Tensorize) and not step.intrinsic.startswith("amx")
