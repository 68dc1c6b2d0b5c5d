"""Vectors are reduced to one number in halves."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings, code_generation, compiler, parsing
from autotune_mlir.passes.vector_reductions import REDUCTION, reduce_in_halves

from autotune.backends import NativeCall, aligned_copy, time_native_call

IN_NUMPY = {"add": np.sum, "mul": np.prod, "maximumf": np.max, "minimumf": np.min}
START = {"add": 2.5, "mul": 0.5, "maximumf": -np.inf, "minimumf": 1e9}
OF_INTEGERS = {"add": np.sum, "mul": np.prod, "maxsi": np.max, "minsi": np.min}


def program(kind: str, lanes: int, is_row: bool, dtype: str = "f32") -> str:
    """One reduction, of a vector or of a matrix of one row, that begins with ``%out[0]``."""
    shape, result = (
        (f"vector<1x{lanes}x{dtype}>", f"vector<1x{dtype}>")
        if is_row
        else (f"vector<{lanes}x{dtype}>", dtype)
    )
    flat = f"vector<{lanes}x{dtype}>"
    load, store = (
        ("vector.load", f"vector.store %r, %out[%z] : memref<1x{dtype}>, {result}")
        if is_row
        else ("memref.load", f"memref.store %r, %out[%z] : memref<1x{dtype}>")
    )
    loaded = f"memref<1x{dtype}>" + (f", {result}" if is_row else "")
    return f"""
func.func @kernel(%in: memref<{lanes}x{dtype}>, %out: memref<1x{dtype}>) {{
  %z = arith.constant 0 : index
  %flat = vector.load %in[%z] : memref<{lanes}x{dtype}>, {flat}
  %x = vector.shape_cast %flat : {flat} to {shape}
  %start = {load} %out[%z] : {loaded}
  %r = vector.multi_reduction <{kind}>, %x, %start [{int(is_row)}] : {shape} to {result}
  {store}
  return
}}
"""


def halved(text: str) -> tuple[str, int]:
    """A program after the rewriting, and how many operations combine numbers."""
    module: Any = parsing.parse_payload(text)
    ir = bindings.load().ir
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        if operation.name == REDUCTION:
            found.append(operation.operation)
        return ir.WalkResult.ADVANCE

    with module.context, ir.Location.unknown():
        module.operation.walk(visit)
        made = len(reduce_in_halves(ir, found))
        assert module.operation.verify()
        return str(module), made


@pytest.mark.parametrize("is_row", [False, True], ids=["vector", "row"])
@pytest.mark.parametrize(
    ("lanes", "steps", "left"), [(2, 2, 0), (64, 7, 0), (24, 3, 3), (7, 0, 7)], ids=str
)
def test_as_few_steps_follow_one_another_as_can_be(
    is_row: bool, lanes: int, steps: int, left: int
) -> None:
    text, made = halved(program("add", lanes, is_row))
    assert made == steps
    shape = f"1x{left}" if is_row else f"{left}"
    assert re.findall(r"multi_reduction <add>.*: vector<(.*)xf32> to", text) == [shape] * bool(
        left
    )


def test_what_is_not_known_is_left_alone() -> None:
    text, made = halved(program("maxnumf", 16, is_row=True))
    assert not made and "<maxnumf>" in text


@pytest.mark.parametrize("kind", ["maximumf", "minimumf"])
def test_one_comparison_looks_for_what_is_no_number(kind: str) -> None:
    text, _ = halved(program(kind, 16, is_row=True))
    assert REDUCTION not in text and "maximumf" not in text and "minimumf" not in text
    assert len(re.findall(r"cmpf uno, .* : vector", text)) == 1


@pytest.mark.parametrize("is_row", [False, True], ids=["vector", "row"])
@pytest.mark.parametrize("lanes", [1, 2, 24, 64])
@pytest.mark.parametrize("kind", OF_INTEGERS)
def test_integers_are_reduced_in_halves(kind: str, lanes: int, is_row: bool) -> None:
    text = program(kind, lanes, is_row, "i32")
    assert lanes == 1 or f"vector<{lanes // 2}xi32>" in halved(text)[0]
    values = np.random.default_rng(lanes).integers(-1000, 1000, lanes, np.int32)
    start = np.array([7], np.int32)
    # As int32 wraps around in the program, too.
    wanted = OF_INTEGERS[kind](np.append(values, start).astype(np.int64)).astype(np.int32)
    assert reduced(text, values, start) == wanted


def reduced(text: str, values: Any, start: Any) -> Any:
    """What a program makes of values."""
    generated = code_generation.generate(compiler.lower(text, None, threads=1))
    given, out = aligned_copy(values), aligned_copy(start)
    pointers = np.array([it.ctypes.data for it in (given, out)], np.uint64)
    time_native_call(NativeCall(generated.address, (pointers.ctypes.data,), (given, out)), 1)
    return out[0]


@pytest.mark.parametrize("is_row", [False, True], ids=["vector", "row"])
@pytest.mark.parametrize("lanes", [2, 6, 16, 24, 64, 7])
@pytest.mark.parametrize("kind", IN_NUMPY)
def test_results_are_those_of_numpy(kind: str, lanes: int, is_row: bool) -> None:
    text = program(kind, lanes, is_row)
    rng = np.random.default_rng(lanes)
    start = np.array([START[kind]], np.float32)
    values = rng.uniform(0.5, 1.5, lanes).astype(np.float32)
    wanted = IN_NUMPY[kind]([START[kind], IN_NUMPY[kind](values.astype(np.float64))])
    np.testing.assert_allclose(reduced(text, values, start), wanted, rtol=1e-5)
    nothing = np.array([np.nan], np.float32)
    assert np.isnan(reduced(text, values, nothing))
    values[rng.integers(lanes)] = np.nan
    assert np.isnan(reduced(text, values, start))
