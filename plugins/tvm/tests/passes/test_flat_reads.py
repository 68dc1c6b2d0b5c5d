"""Fetches that read at the digits of a number read at the number."""

from __future__ import annotations

from typing import Any

import pytest
from autotune_tvm.passes.flat_reads import flat_reads
from tvm import te
from tvm.ir import IRModule, TensorLoad
from tvm.s_tir import Schedule
from tvm_ffi import structural_walk

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
