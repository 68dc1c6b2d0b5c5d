from __future__ import annotations

import numpy as np
import pytest
import tvm
from autotune_tvm import compiler
from autotune_tvm.native import native_call
from autotune_tvm.passes import bfloat16_constants
from tvm import IRModule, te, tirx

from autotune.backends import aligned_empty, time_native_call
from autotune.targets import detect_cpu


def filled(value: float, lanes: int, dtype: str = "bfloat16") -> IRModule:
    """A program that writes a constant 32 times, ``lanes`` at once."""
    made = te.compute((32,), lambda i: tirx.const(value, dtype), "Y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([made]).with_attr("global_symbol", "main"))
    (loop,) = schedule.get_loops(schedule.get_sblock("Y"))
    if lanes > 1:
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return schedule.mod


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(
    ("value", "bits"),
    [(0.0, 0), (-2.5, 0xC020), (1 / 3, 0x3EAB), (float("-inf"), 0xFF80), (-3.4028e38, 0xFF80)],
)
def test_constants_are_stored(value: float, bits: int, lanes: int) -> None:
    program = compiler.compile_module(filled(value, lanes), detect_cpu(), 1)
    out = aligned_empty((32,), "uint16")
    time_native_call(native_call(program["main"], [out], ["bfloat16"]), 1)
    np.testing.assert_array_equal(out, bits)


@pytest.mark.parametrize("kind", ["loaded", "computed", "kept", "quotient"])
def test_what_is_repeated_along_rows_is_stored(kind: str) -> None:
    """An element of a column, or what is computed of it, in all lanes of its row."""
    x = te.placeholder((5,), "bfloat16", "X")
    half = tirx.const(0.5, "bfloat16")
    if kind == "quotient":
        made = te.compute((80,), lambda i: x[i // 16], "Y")
    elif kind == "kept":
        kept = te.compute((5,), lambda i: x[i] * half, "H")
        made = te.compute((5, 16), lambda i, j: kept[i], "Y")
    else:
        made = te.compute((5, 16), lambda i, j: x[i] * half if kind == "computed" else x[i], "Y")
    schedule = tvm.s_tir.Schedule(
        te.create_prim_func([x, made]).with_attr("global_symbol", "main")
    )
    last = schedule.get_loops(schedule.get_sblock("Y"))[-1]
    schedule.vectorize(schedule.split(last, [None, 16])[1])
    program = compiler.compile_module(schedule.mod, detect_cpu(), 1)
    given = aligned_empty((5,), "uint16")
    out = aligned_empty(tuple(map(int, made.shape)), "uint16")
    given[:] = [0x3F80, 0xC020, 0x8000, 0x7F80, 0x0080]
    time_native_call(native_call(program["main"], [given, out], ["bfloat16"] * 2), 1)
    halves = [0x3F00, 0xBFA0, 0x8000, 0x7F80, 0x0040]
    wanted = halves if kind in ("computed", "kept") else given
    np.testing.assert_array_equal(out.reshape(5, 16), np.asarray(wanted)[:, None].repeat(16, 1))


def test_others_stay() -> None:
    module = filled(1.5, 16, "float32")
    tvm.ir.assert_structural_equal(bfloat16_constants(module), module)
