"""Vectors of floats are reduced to one number in halves."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings, code_generation, compiler, parsing
from autotune_mlir.passes.vector_reductions import REDUCTION, reduce_in_halves

from autotune.backends import NativeCall, aligned_copy, aligned_empty, time_native_call

IN_NUMPY = {"add": np.sum, "mul": np.prod, "maximumf": np.max, "minimumf": np.min}
START = {"add": 2.5, "mul": 0.5, "maximumf": -np.inf, "minimumf": 1e9}


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


@pytest.mark.parametrize(("kind", "dtype"), [("add", "i32"), ("maxsi", "i32"), ("maxnumf", "f32")])
def test_what_llvm_may_reorder_and_what_is_not_known_is_left_alone(kind: str, dtype: str) -> None:
    text, made = halved(program(kind, 16, is_row=True, dtype=dtype))
    assert not made and f"<{kind}>" in text


@pytest.mark.parametrize("is_row", [False, True], ids=["vector", "row"])
@pytest.mark.parametrize("lanes", [2, 6, 16, 24, 64, 7])
@pytest.mark.parametrize("kind", IN_NUMPY)
def test_results_are_those_of_numpy(kind: str, lanes: int, is_row: bool) -> None:
    generated = code_generation.generate(
        compiler.lower(program(kind, lanes, is_row), None, threads=1)
    )
    rng = np.random.default_rng(lanes)
    for special in (None, np.nan):
        values = rng.uniform(0.5, 1.5, lanes).astype(np.float32)
        if special is not None:
            values[rng.integers(lanes)] = special
        given, out = aligned_copy(values), aligned_empty((1,), np.float32)
        out[0] = START[kind]
        pointers = np.array([it.ctypes.data for it in (given, out)], np.uint64)
        time_native_call(NativeCall(generated.address, (pointers.ctypes.data,), (given, out)), 1)
        wanted = IN_NUMPY[kind]([START[kind], IN_NUMPY[kind](values.astype(np.float64))])
        np.testing.assert_allclose(out[0], wanted, rtol=1e-5)
