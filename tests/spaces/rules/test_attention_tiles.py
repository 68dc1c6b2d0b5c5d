"""Attention whose scores are computed tile by tile, with everything else, in one parallel loop."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from attention_workloads import (
    divided,
    grouped,
    transposed,
    with_bias,
    with_computed_keys,
    with_epilogue,
)
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from rule_sketches import LIMITS, TARGET, sketches

from autotune.ir.workloads import Workload, attention
from autotune.ir.workloads.inputs import random_inputs
from autotune.nest import derive_nest
from autotune.sketches import Candidate, FuseConsumer, FuseProducer, Inline, Pack, Parallel, Sketch
from autotune.spaces import BUILT_IN_RULES, ScheduleLimits, SketchSpace
from autotune.spaces.rules import generate_sketches
from autotune.spaces.rules.attention_tiles import ATTENTION_LABEL
from autotune.spaces.sketch_space import loosen
from autotune.targets import preset
from autotune.testing.programs import check_nest


def tiled(workload: Workload, limits: ScheduleLimits = LIMITS) -> Sketch | None:
    """The sketch with tiles of scores, if there is one; there are always others."""
    found = {sketch.name.split("+")[0]: sketch for sketch in sketches(workload, limits)}
    assert set(found) - {ATTENTION_LABEL}
    return found.get(ATTENTION_LABEL)


def test_everything_but_the_packed_keys_is_inside_one_parallel_loop() -> None:
    sketch = tiled(attention(h=2, n=64, d=32))
    assert sketch is not None
    places = {s.stage: (s.consumer, s.at) for s in sketch.steps if isinstance(s, FuseProducer)}
    assert {name for name, place in places.items() if place == ("Y", "i.0")} == {"A", "R"}
    # A row of the softmax is done before the next one begins.
    row = {name for name, place in places.items() if place == ("R", "i.0")}
    assert row == {"E", "M", "M_partial", "S", "S_partial"}
    assert Inline("X") in sketch.steps
    assert [s for s in sketch.steps if isinstance(s, Parallel)] == [Parallel("Y", ("b.0", "i.0"))]
    nest = derive_nest(sketch)
    outside = [it.name for it in nest.statements if it.loops[0].name != "Y.b.0*Y.i.0"]
    assert outside == ["K.pack"]
    assert {buffer.name for buffer in nest.buffers if buffer.depth == 0} == {"K.pack"}


def test_keys_that_heads_share_are_packed_once_for_all_of_them() -> None:
    sketch = tiled(grouped(attention(h=2, n=64, d=32), 4))
    assert sketch is not None
    loops = Parallel("Y", ("b.0", "e.0", "i.0"))
    assert [s for s in sketch.steps if isinstance(s, Parallel)] == [loops]
    (packed,) = (it for it in derive_nest(sketch).statements if it.name == "K.pack")
    assert not any(".e" in loop.name for loop in packed.loops)


def test_heads_may_share_keys_at_a_quotient() -> None:
    workload = divided(attention(h=4, n=64, d=32), 2)
    sketch = tiled(workload)
    assert sketch is not None
    (packed,) = (it for it in derive_nest(sketch).statements if it.name == "K.pack")
    assert packed.loops[0].extent.value == 2  # heads of keys


@pytest.mark.parametrize(
    ("workload", "packed"),
    [
        (attention(h=1, n=8, d=16, m=32), {"K"}),
        (transposed(attention(h=1, n=8, d=16, m=32), "K"), {"K"}),
        (transposed(attention(h=1, n=8, d=16, m=32), "V"), {"K", "V"}),
    ],
)
def test_values_are_packed_where_they_are_not_contiguous(
    workload: Workload, packed: set[str]
) -> None:
    sketch = tiled(workload)
    assert sketch is not None
    steps = [step for step in sketch.steps if isinstance(step, Pack)]
    assert {step.operand for step in steps} == packed
    assert all(step.at is None for step in steps)


def test_an_epilogue_is_computed_where_a_tile_is_written() -> None:
    sketch = tiled(with_epilogue(attention(h=1, n=8, d=16)))
    assert sketch is not None
    (step,) = (step for step in sketch.steps if isinstance(step, FuseConsumer))
    assert (step.stage, step.producer, step.at) == ("T", "Y", "i.1")


@pytest.mark.parametrize(
    "workload",
    [
        attention(h=1, n=197, d=64, m=64),  # no tile of rows divides
        attention(h=1, n=8, d=64, m=197),  # no vector of scores
        attention(h=1, n=8, d=3, m=64),  # no vector of results
        evolve(attention(h=1, n=8, d=16), outputs=("A", "Y"), parameters={}),
        evolve(attention(h=1, n=8, d=16), outputs=("R", "Y"), parameters={}),
    ],
)
def test_other_attentions_are_tiled_stage_by_stage(workload: Workload) -> None:
    assert tiled(workload) is None


@pytest.mark.parametrize("lacking", ["fuse_producer", "inline"])
def test_backends_that_lack_a_step_have_the_other_sketches(lacking: str) -> None:
    limits = evolve(LIMITS, steps=LIMITS.steps - {lacking})
    assert tiled(attention(h=1, n=8, d=16), limits) is None


def test_scores_of_a_tile_fit_the_second_cache() -> None:
    workload = attention(h=2, n=64, d=32, m=4096)
    space = SketchSpace(workload, TARGET, LIMITS)
    (sketch,) = (it for it in space.sketches() if it.name == ATTENTION_LABEL)
    (cache,) = (cache for cache in TARGET.caches if cache.level == 2)
    configs = islice(space.feasible_set(sketch).enumerate(), 0, None, 997)
    found = {
        config["Y.i.1"] * config["Y.i.2"]
        for config in (dict(zip(sketch.param_names, row, strict=True)) for row in configs)
    }
    assert max(found) * 2 * 4096 * 4 <= cache.size_bytes < 2 * max(found) * 2 * 4096 * 4


def test_sums_of_halves_are_rounded_where_a_tile_is_written() -> None:
    workload = attention(h=1, n=4, d=16, m=32, dtype="bfloat16")
    sketch = tiled(workload)
    assert sketch is not None
    assert {s.stage for s in sketch.steps if isinstance(s, FuseConsumer)} == {"O"}


def test_keys_are_computed_where_they_are_packed() -> None:
    sketch = tiled(with_computed_keys(attention(h=1, n=8, d=16)))
    assert sketch is not None
    assert Inline("K") in sketch.steps


def with_one_head_of_keys(workload: Workload) -> Workload:
    return divided(workload, workload.tensors["Q"].shape[0])


VARIANTS = (
    lambda workload: workload,
    with_one_head_of_keys,
    with_epilogue,
    with_bias,
    with_computed_keys,
)


@settings(max_examples=settings.default.max_examples // 3)
@given(
    st.tuples(st.integers(1, 2), st.integers(2, 20), st.integers(1, 3), st.integers(1, 4)),
    st.sampled_from(["Q", "K", "V"]),
    st.sampled_from(VARIANTS),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_tiles_compute_the_reference(
    sizes: tuple[int, int, int, int], turned: str, variant: object, causal: bool, seed: int
) -> None:
    """Of any number of heads and rows, and of half vectors of keys and of results."""
    heads, rows, widths, keys = sizes
    rows, columns = (8 * keys, 8 * keys) if causal else (rows, 4 * keys)
    workload = attention(h=heads, n=rows, d=4 * widths, m=columns, causal=int(causal))
    workload = variant(transposed(workload, turned))  # type: ignore[operator]
    made = generate_sketches(workload, preset("haswell-2core"), LIMITS, BUILT_IN_RULES).sketches
    found = [sketch for sketch in made if sketch.name.split("+")[0] == ATTENTION_LABEL]
    assert bool(found) == (rows not in (17, 19))
    inputs = random_inputs(workload, np.random.default_rng(seed))
    for tiles in found:
        sketch, feasible, _ = loosen(tiles)
        (row,) = feasible.uniform(1, seed).tolist()
        check_nest(Candidate(sketch, tuple(row)), inputs, tolerance=1e-5)
