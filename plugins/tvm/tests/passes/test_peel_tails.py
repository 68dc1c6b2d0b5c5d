"""Conditions leave the rounds that are whole, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from autotune_tvm.compiler import compile_module
from autotune_tvm.passes.peel_tails import peel_tails
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te

from autotune.targets import detect_cpu


def scheduled(extent: int, factors: list[int | None], body: Any = None) -> Any:
    """A sum of two vectors, the loop split by ``factors``, the last part of which is a vector."""
    a, b = (te.placeholder((extent,), "float32", name) for name in "AB")
    c = te.compute((extent,), body or (lambda i: a[i] + b[i]), "C")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(function)
    (loop,) = schedule.get_loops(schedule.get_sblock("C"))
    *outer, vector = schedule.split(loop, factors)
    schedule.vectorize(vector)
    if len(outer) > 1:
        schedule.unroll(outer[-1])
    return schedule


def is_conditional(module: Any) -> bool:
    return "T.where" in module.script() or "if_then_else" in module.script()


@settings(max_examples=12, deadline=None)
@given(
    extent=st.integers(1, 70),
    factors=st.sampled_from([[None, 8], [None, 16], [None, 3, 4], [None, 1, 8], [None, 2, 1, 4]]),
)
def test_the_program_computes_the_same(extent: int, factors: list[int | None]) -> None:
    module = peel_tails(scheduled(extent, factors).mod)
    assert not is_conditional(module)
    target, rng = detect_cpu().with_cores(1), np.random.default_rng(0)
    a, b = (rng.random(extent, dtype=np.float32) for _ in range(2))
    arrays = [tvm.runtime.tensor(array) for array in (a, b, np.zeros_like(a))]
    compile_module(module, target, 1)["main"](*arrays)
    np.testing.assert_array_equal(arrays[2].numpy(), a + b)


def test_a_program_without_tails_stays_itself() -> None:
    module = scheduled(64, [None, 16]).mod
    assert peel_tails(module)["main"].same_as(module["main"])


def test_a_condition_on_an_outer_parallel_loop_stays() -> None:
    schedule = scheduled(37, [None, 16])
    outer, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.parallel(outer)
    assert is_conditional(peel_tails(schedule.mod))


def test_many_tails_are_not_copied() -> None:
    """Vectors of the outer loop: each iteration of the inner one has a last round of its own."""
    schedule = scheduled(37, [16, None])
    inner, vector = schedule.get_loops(schedule.get_sblock("C"))
    assert int(schedule.get(vector).extent) == 3
    schedule.reorder(vector, inner)
    assert is_conditional(peel_tails(schedule.mod))
