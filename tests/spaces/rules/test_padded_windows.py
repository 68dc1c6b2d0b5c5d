"""Taps of windows that are on nothing but padding."""

from __future__ import annotations

import math
from typing import Any

import pytest
from attrs import evolve
from convolutions import convolution
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET, check_facts, check_reference, lacking, sketches, steps_of
from written import written

from autotune.ir.expressions import const
from autotune.ir.expressions.integer import evaluate
from autotune.ir.workloads import Workload, conv1d, conv2d, conv3d, depthwise_conv2d
from autotune.nest import derive_nest
from autotune.sketches import BoundLoop, Candidate, Tensorize
from autotune.spaces import BUILT_IN_RULES, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.multi_level_tiling import PaddedWindow, padded_windows
from autotune.spaces.sketch_space import loosen
from autotune.targets import preset

INSIDE, LOWEST = "p >= 2 and p < 12", -math.inf
PADDED = f"X[p - 2] if {INSIDE} else 0.0"
WINDOW = PaddedWindow("k", "i", 1, 1, 2, 11)


def windows(
    padded: str = PADDED, term: str = "P[{0}] * W[k]", combiner: str = "+", at: str = "i + k"
) -> list[PaddedWindow]:
    """Of a window of 5 over 10 numbers, with two or more of padding on both sides."""
    stages = f"P[p:14] = {padded}", f"Y[i:10; k:5] {combiner}= {term.format(at)}"
    workload = written("X[10], W[5]", *stages, lowest=LOWEST)
    return padded_windows(workload, workload.stage("Y"))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (windows(), [WINDOW]),
        (windows(f"0.0 if not ({INSIDE}) else X[p - 2]"), [WINDOW]),
        (windows("0.0 if 2 > p or not p <= 11 else X[p - 2]"), [WINDOW]),
        (windows(f"-X[p - 2] if {INSIDE} else 0.0"), [WINDOW]),
        (windows(term="-P[{0}]"), [WINDOW]),
        (windows(term="W[k] * float32(P[{0}])"), [WINDOW]),
        (windows("X[p - 2] if p >= 2 else 0.0"), [evolve(WINDOW, most=13)]),
        (windows("X[p - 2] if p < 12 else 0.0"), [evolve(WINDOW, least=None)]),
        # Another condition hides more: what is outside is still hidden.
        (windows(f"X[p - 2] if ({INSIDE}) and X[p - 2] < 0.0 else 0.0"), [WINDOW]),
        # Where it is nothing but what is outside in both, it is so in either.
        (windows(f"({PADDED}) if X[p - 2] < 0.0 else 0.0"), [WINDOW]),
        (windows(at="13 - i - k"), [evolve(WINDOW, least=2, most=11)]),
        (windows(at="i - k + 4"), [PaddedWindow("k", "i", 1, -1, -7, 2)]),
        # A maximum leaves out what is minus infinity, and nothing else.
        (windows(f"X[p - 2] if {INSIDE} else lowest", "P[{0}]", "max"), [WINDOW]),
        (windows(PADDED, "P[{0}]", "+"), [WINDOW]),
        (windows(PADDED, "P[{0}]", "max"), []),
        (windows(f"X[p - 2] if {INSIDE} else lowest", "P[{0}]", "+"), []),
        (windows(f"X[p - 2] if {INSIDE} else 1.0"), []),
        (windows(term="P[{0}] + W[k]"), []),
        (windows(term="exp(P[{0}])"), []),
        (windows("X[p - 2] if X[p - 2] < 0.0 else 0.0"), []),
        (windows(f"X[p - 2] if ({INSIDE}) or X[p - 2] < 0.0 else 0.0"), []),
        # Of each row as many are outside.
        (windows(at="k + 4"), []),
        (windows(at="(i + k) // 2"), []),
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
    assert len(sketches(workload, lacking("bound_loop"))) == len(sketches(workload))
    check_facts(workload, "without bound_loop, !bound_loop")


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
    check_reference(workload, [Candidate(sketch, tuple(row))], seed, 1e-4)


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
