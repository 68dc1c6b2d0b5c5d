"""Conditions that all lanes share are asked once; fetches at the digits of a number read at it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm.compiler import compile_module
from autotune_tvm.passes.vectors import flat_reads, uniform_conditions
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx
from tvm.ir import IRModule, TensorLoad
from tvm.s_tir import Schedule
from tvm_ffi import structural_walk

from autotune.targets import detect_cpu

LANES, EXTENT = 8, 48
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "ge": operator.ge,
    "gt": operator.gt,
}


def scheduled(condition: Callable[[Any], Any], offset: int = 0) -> Any:
    """Elements of one vector or another, by a condition on their position plus an offset."""
    a, b = (te.placeholder((EXTENT,), "float32", name) for name in "AB")
    c = te.compute((EXTENT,), lambda i: tirx.if_then_else(condition(i + offset), a[i], b[i]), "C")
    function = te.create_prim_func([a, b, c]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(function)
    (loop,) = schedule.get_loops(schedule.get_sblock("C"))
    schedule.vectorize(schedule.split(loop, [None, LANES])[1])
    return schedule.mod


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(sorted(COMPARISONS)),
    bound=st.integers(-1, EXTENT + 8),
    offset=st.integers(0, 8),
    swapped=st.booleans(),
)
def test_the_program_computes_the_same(name: str, bound: int, offset: int, swapped: bool) -> None:
    compare, number = COMPARISONS[name], tirx.const(bound, "int32")
    module = scheduled(lambda i: compare(number, i) if swapped else compare(i, number), offset)
    changed = uniform_conditions(module)
    a, b = np.arange(EXTENT, dtype=np.float32), -np.ones(EXTENT, np.float32)
    arrays = [tvm.runtime.tensor(array) for array in (a, b, np.zeros_like(a))]
    compile_module(changed, detect_cpu().with_cores(1), 1)["main"](*arrays)
    position = np.arange(EXTENT) + offset
    holds = compare(bound, position) if swapped else compare(position, bound)
    np.testing.assert_array_equal(arrays[2].numpy(), np.where(holds, a, b))


@pytest.mark.parametrize(
    ("bound", "offset", "once"), [(16, 0, True), (17, 0, False), (16, 3, False), (19, 3, True)]
)
def test_a_bound_inside_a_vector_is_asked_for_each_element(
    bound: int, offset: int, once: bool
) -> None:
    module = scheduled(lambda i: i < bound, offset)
    assert uniform_conditions(module)["main"].same_as(module["main"]) != once


def test_what_depends_on_data_stays() -> None:
    module = scheduled(lambda i: te.const(1, "int32") * (i % 3) < 2)
    assert uniform_conditions(module)["main"].same_as(module["main"])


def test_both_bounds_of_a_part() -> None:
    module = scheduled(lambda i: tirx.And(i >= 8, i < 40))
    changed = uniform_conditions(module)
    assert not changed["main"].same_as(module["main"])


SHAPE = (8, 4, 3, 3)


def digits(k: Any, first: Any) -> list[Any]:
    return [first, k // 9 % 4, k % 9 // 3, k % 3]


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        pytest.param(lambda i, k: digits(k, i), "[v_i, 0, 0, v_k]", id="all-of-a-row"),
        pytest.param(lambda i, k: digits(k, 1 + i), "[v_i + 1, 0, 0, v_k]", id="of-another-row"),
        pytest.param(
            lambda i, k: [i, k // 9, (k + 3) % 9 // 3, k % 3],
            "[v_i, v_k // 9, (v_k // 3 + 1) % 3, v_k % 3]",
            id="not-its-digits",
        ),
        pytest.param(
            lambda i, k: [k // 9 + i, i % 4, k % 9 // 3, k % 3],
            "[v_k // 9 + v_i, v_i % 4, 0, v_k % 9]",
            id="lower-digits-alone",
        ),
    ],
)
def test_places_in_a_row(indices: Any, expected: str) -> None:
    table = te.placeholder(SHAPE, "float16", "W")
    copy = te.compute((4, 36), lambda i, k: table[tuple(indices(i, k))], "F")
    result = te.compute((4, 36), lambda i, k: copy[i, k] + copy[i, k], "Y")
    schedule = Schedule(IRModule({"main": te.create_prim_func([table, result])}))
    block = schedule.get_sblock("F")
    before = flat_reads(schedule.mod)
    assert before["main"].body.same_as(schedule.mod["main"].body)
    schedule.set_scope(block, 0, "shared")
    found: list[Any] = []
    structural_walk(flat_reads(schedule.mod)["main"].body, (TensorLoad, found.append))
    (read,) = (it for it in found if str(it.source.name) == "W")
    assert str(list(read.indices)) == expected
