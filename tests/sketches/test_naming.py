from __future__ import annotations

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_workloads import VARIED_WORKLOADS
from renamed_workloads import respelled
from rule_sketches import LIMITS
from thinning import thinned

from autotune.errors import InvalidValueError
from autotune.ir.expressions import const, var
from autotune.ir.workloads import Workload, cumsum, dense, gemm
from autotune.nest import nest_tape
from autotune.sketches import Candidate, CandidateBatch, Ordinal, Sketch, Tile, Unroll, UnrollLimit
from autotune.spaces import SketchSpace
from autotune.targets import preset

WORKLOADS = (*VARIED_WORKLOADS, cumsum(m=2, n=1024))


def space_of(workload: Workload, target: str) -> SketchSpace:
    return SketchSpace(workload, preset(target), LIMITS)


@pytest.mark.parametrize("target", ["skylake-avx512-4core", "a100"])
@pytest.mark.parametrize("position", thinned(range(len(WORKLOADS)), 3))
def test_equal_workloads_have_the_same_space(target: str, position: int) -> None:
    workload = WORKLOADS[position]
    other = respelled(workload, position)
    one, same = space_of(workload, target), space_of(other, target)
    assert [sketch.on(other) for sketch in one.sketches()] == list(same.sketches())
    pairs = zip(one.sketches(), same.sketches(), strict=True)
    assert all(a.digest == b.digest and a.spelling != b.spelling for a, b in pairs)
    drawn = [list(space.sample(20, np.random.default_rng(0))) for space in (one, same)]
    assert [it.digest for it in drawn[0]] == [it.digest for it in drawn[1]]
    assert [it.on(other) for it in drawn[0]] == drawn[1]
    assert [it.on(workload) for it in drawn[1]] == drawn[0]


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_names_come_back(one: int, two: int) -> None:
    workload = dense(m=8, n=9, k=64)
    for sketch in space_of(workload, "skylake-avx512-4core").sketches():
        there = sketch.on(respelled(workload, one))
        assert there.digest == sketch.digest
        assert there.on(respelled(workload, two)).on(workload) == sketch


def test_what_is_made_of_a_sketch_has_its_own_names() -> None:
    workload = dense(m=8, n=9, k=64)
    sketch = space_of(workload, "skylake-avx512-4core").sketches()[0]
    other = sketch.on(respelled(workload, 3))
    tapes = nest_tape(sketch).tape, nest_tape(other).tape
    assert tapes[0].digest != tapes[1].digest
    row = CandidateBatch.of_rows([sketch], [[[1] * len(sketch.params)]]).matrices[0]
    values = [list(tape.evaluate(row)) for tape in tapes]
    np.testing.assert_array_equal(values[0], values[1])


def test_a_change_of_a_step_is_another_sketch() -> None:
    workload = gemm(m=4, n=4, k=4)
    params = (Ordinal("u", (0, 1)), Ordinal("v", (0, 1)))
    sketch = Sketch(
        "one", workload, params, (), (UnrollLimit("C", var("u")), Unroll("C", ("k.0",)))
    )
    others = [
        attrs.evolve(sketch, steps=(UnrollLimit("C", var("v")), Unroll("C", ("k.0",)))),
        attrs.evolve(sketch, steps=(UnrollLimit("C", var("u")), Unroll("C", ("i.0",)))),
        attrs.evolve(sketch, steps=(UnrollLimit("C", var("u")), Unroll("C", ("k.1",)))),
        attrs.evolve(sketch, steps=(UnrollLimit("C", const(16)), Unroll("C", ("k.0",)))),
        attrs.evolve(sketch, steps=sketch.steps[::-1]),
        attrs.evolve(sketch, params=params[:1]),
        attrs.evolve(sketch, steps=(Tile("C", "i", (var("u"), var("v"))),)),
        attrs.evolve(sketch, steps=(Tile("C", "i", (var("v"), var("u"))),)),
        attrs.evolve(sketch, steps=(Tile("C", "j", (var("u"), var("v"))),)),
    ]
    digests = [sketch.digest, *(other.digest for other in others)]
    assert len(set(digests)) == len(digests)
    renamed = attrs.evolve(
        sketch,
        params=(Ordinal("x", (0, 1)), Ordinal("y", (0, 1))),
        steps=(UnrollLimit("C", var("x")), Unroll("C", ("k.0",))),
    )
    assert renamed.digest == sketch.digest and renamed.spelling != sketch.spelling


def test_parameters_stay_apart_where_an_axis_is_called_what_another_was() -> None:
    workload = gemm(m=4, n=4, k=4)
    params = tuple(Ordinal(name, (0, 1)) for name in ("C.i.0", "C.lanes.0", "own"))
    sketch = Sketch("one", workload, params, (), (Tile("C", "i", (var("C.i.0"), var("own"))),))
    axes = {"C": {"i": "lanes", "j": "i", "k": "k"}}
    names = attrs.evolve(workload.names, tensors={"A": "B", "B": "C", "C": "A"}, axes=axes)
    other = sketch.on(workload.renamed(names))
    assert other.param_names == ("A.i.0", "A.lanes.0", "own")
    assert other.steps == (Tile("A", "lanes", (var("A.i.0"), var("own"))),)
    assert other.digest == sketch.digest


def test_a_sketch_of_another_computation_is_refused() -> None:
    sketch = space_of(gemm(m=4, n=4, k=4), "skylake-avx512-4core").sketches()[0]
    with pytest.raises(
        InvalidValueError, match=r"workload 'gemm' .* is not 'gemm' .* other names"
    ):
        sketch.on(gemm(m=4, n=4, k=5))


def test_a_candidate_keeps_its_values() -> None:
    workload = gemm(m=4, n=4, k=4)
    space = space_of(workload, "skylake-avx512-4core")
    (candidate,) = space.sample(1, np.random.default_rng(0))
    other = candidate.on(respelled(workload, 5))
    assert isinstance(other, Candidate) and candidate.on(workload) is candidate
    assert (other.values, other.digest) == (candidate.values, candidate.digest)
    assert set(other.config).isdisjoint(candidate.config)
