"""Halves are converted right in every program of TVM, one element at a time and in vectors."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tvm
from autotune_tvm import compiler
from autotune_tvm.executable import native_call
from autotune_tvm.passes.bfloat16 import bfloat16_constants
from numpy.typing import NDArray
from tvm import IRModule, te, tirx

from autotune.backends import aligned_copy, aligned_empty, time_native_call
from autotune.ir.element_types import bfloat16_bits
from autotune.targets import Target, detect_cpu

PLAIN = Target(kind="cpu", name="plain", processor="x86-64")
EVERY = np.arange(1 << 16, dtype=np.uint16)


def compiled(given: str, result: str, size: int, lanes: int, target: Target) -> Any:
    """A program that converts a vector of ``size`` elements, ``lanes`` at once."""
    a = te.placeholder((size,), given, "A")
    b = te.compute((size,), lambda i: tirx.Cast(result, a[i]), "B")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b]).with_attr("global_symbol", "main"))
    (loop,) = schedule.get_loops(schedule.get_sblock("B"))
    if lanes > 1:
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return compiler.compile_module(schedule.mod, target, 1)


def converted(
    given: str, result: str, array: NDArray[Any], store: str, lanes: int, target: Target
) -> NDArray[Any]:
    program = compiled(given, result, array.size, lanes, target)
    out = aligned_empty(array.shape, store)
    call = native_call(program["main"], [aligned_copy(array), out], [given, result])
    time_native_call(call, 1)
    return out


@pytest.fixture(params=["here", "plain"])
def target(request: pytest.FixtureRequest) -> Target:
    return detect_cpu() if request.param == "here" else PLAIN


@pytest.mark.parametrize("lanes", [1, 16])
def test_float32_is_rounded_to_nearest_even(target: Target, lanes: int) -> None:
    below = EVERY.astype(np.uint32) << 16
    offsets = (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
    bits = np.concatenate([below | np.uint32(offset) for offset in offsets])
    numbers = bits.view(np.float32)
    got = converted("float32", "bfloat16", numbers, "uint16", lanes, target)
    np.testing.assert_array_equal(got, bfloat16_bits(numbers))


@pytest.mark.parametrize("lanes", [1, 16])
def test_every_bfloat16_is_widened_exactly(target: Target, lanes: int) -> None:
    got = converted("bfloat16", "float32", EVERY, "float32", lanes, target)
    np.testing.assert_array_equal(got.view(np.uint32), EVERY.astype(np.uint32) << 16)


@pytest.mark.parametrize("lanes", [1, 16])
def test_every_float16_is_widened_exactly_and_back(target: Target, lanes: int) -> None:
    halves = EVERY.view(np.float16)
    got = converted("float16", "float32", halves, "float32", lanes, target)
    with np.errstate(invalid="ignore"):
        expected = halves.astype(np.float32)
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(got[kept], expected[kept])
    assert np.isnan(got[~kept]).all()
    back = converted("float32", "float16", expected, "float16", lanes, target)
    np.testing.assert_array_equal(back.view(np.uint16)[kept], EVERY[kept])
    assert np.isnan(back[~kept]).all()


@pytest.mark.parametrize("lanes", [1, 16])
def test_float16_is_rounded_to_nearest_even(target: Target, lanes: int) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32).copy()
    numbers[: 1 << 14] = rng.uniform(-70000, 70000, 1 << 14)
    numbers[1 << 14 : 1 << 15] = rng.uniform(-1e-4, 1e-4, 1 << 14)
    got = converted("float32", "float16", numbers, "float16", lanes, target)
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_array_equal(got, numbers.astype(np.float16))


def test_conversions_are_vector_instructions() -> None:
    wide = Target(kind="cpu", name="wide", processor="skylake-avx512")
    for given, result, wanted in (
        ("bfloat16", "float32", r"vpslld\s+\$16, %zmm"),
        ("float32", "bfloat16", r"vpsrld\s+\$16, %zmm"),
        ("float16", "float32", r"vcvtph2ps\s+.*%zmm"),
        ("float32", "float16", r"vcvtps2ph\s+.*%zmm"),
    ):
        text = str(compiled(given, result, 4096, 16, wide).inspect_source("s"))
        assert re.search(wanted, text), (given, result)
        assert not re.search(r"call\w*\s+\S*(autotune|truncsf|extendhf|gnu_)", text)


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
