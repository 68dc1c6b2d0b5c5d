"""Maxima and minima compare, and remember beside that where a value was no number."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from autotune_mlir import bindings, compiler
from autotune_mlir.code_generation import generate
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.carried_extremes import EXTREMES, track_numbers
from autotune_mlir.traversal import operations_in

from autotune.backends import NativeCall, aligned_copy, aligned_empty, time_native_call

ROWS, LANES = 12, 16


def program(kind: str, links: int, loops: int = 1, dtype: str = "f32") -> str:
    """The extreme of rows, with so many in an iteration of so many loops, from the first on."""
    vector, rows = f"vector<{LANES}x{dtype}>", f"memref<{ROWS}x{LANES}x{dtype}>"
    trips = ROWS // links if loops == 1 else 2
    inner = (
        ""
        if loops == 1
        else f"%total = scf.for %j = %z to %inner step %one iter_args(%m = %n) -> ({vector}) {{"
    )
    lines = [
        f"""
    %at{link} = affine.apply affine_map<(d0, d1) -> ({links} * (d0 + 2 * d1) + {link})>({places})
    %x{link} = vector.load %in[%at{link}, %z] : {rows}, {vector}
    %m{link + 1} = arith.{kind} {operands} : {vector}"""
        for link in range(links)
        for places in ["%i, %z" if loops == 1 else "%i, %j"]
        for before in ["%m" if link == 0 else f"%m{link}"]
        for operands in [f"{before}, %x{link}" if link % 2 else f"%x{link}, {before}"]
    ]
    end = "" if loops == 1 else f"scf.yield %m{links} : {vector}\n  }}"
    return f"""
func.func @kernel(%in: {rows}, %out: memref<{LANES}x{dtype}>) {{
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %trips = arith.constant {trips} : index
  %inner = arith.constant {ROWS // (2 * links)} : index
  %start = vector.load %in[%z, %z] : {rows}, {vector}
  %r = scf.for %i = %z to %trips step %one iter_args(%{"m" if loops == 1 else "n"} = %start)
      -> ({vector}) {{
    {inner}{"".join(lines)}
    {end}
    scf.yield {"%total" if loops == 2 else f"%m{links}"} : {vector}
  }}
  vector.store %r, %out[%z] : memref<{LANES}x{dtype}>, {vector}
  return
}}
"""


TWO = """
func.func @kernel(%in: memref<8x16xf32>, %a: vector<16xf32>) -> (vector<16xf32>, vector<16xf32>) {
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %trips = arith.constant 8 : index
  %r:2 = scf.for %i = %z to %trips step %one iter_args(%low = %a, %high = %a)
      -> (vector<16xf32>, vector<16xf32>) {
    %x = vector.load %in[%i, %z] : memref<8x16xf32>, vector<16xf32>
    %l = arith.minimumf %low, %x : vector<16xf32>
    %h = arith.maximumf %high, %x : vector<16xf32>
    scf.yield %l, %h : vector<16xf32>, vector<16xf32>
  }
  return %r#0, %r#1 : vector<16xf32>, vector<16xf32>
}
"""


def names_after(text: str) -> list[str]:
    """Operations that the rewriting leaves."""
    module, ir = parse_payload(text), bindings.load().ir
    with module.context, ir.Location.unknown():
        track_numbers(ir, [it for it in operations_in(module.operation) if it.name in EXTREMES])
        assert module.operation.verify()
        return [it.name for it in operations_in(module.operation)]


@pytest.mark.parametrize("loops", [1, 2])
@pytest.mark.parametrize("links", [1, 2, 3])
@pytest.mark.parametrize("kind", ["maximumf", "minimumf"])
def test_one_comparison_looks_after_two_values(kind: str, links: int, loops: int) -> None:
    names = names_after(program(kind, links, loops))
    assert f"arith.{kind}" not in names
    # Of each extreme, of each two values, and of the first one in the end.
    assert names.count("arith.cmpf") == links + (links + 1) // 2 + 1


def test_a_loop_may_carry_several() -> None:
    module, ir = parse_payload(TWO), bindings.load().ir
    with module.context, ir.Location.unknown():
        found = [it for it in operations_in(module.operation) if it.name in EXTREMES]
        track_numbers(ir, found)
        assert module.operation.verify()
    assert "imumf" not in str(module)
    assert "iter_args" in str(module) and str(module).count("cmpf uno") == 4


def test_narrow_floats_are_left_alone() -> None:
    assert "arith.maximumf" in names_after(program("maximumf", 2, dtype="f16"))


@pytest.mark.parametrize("links", [1, 2, 3])
def test_several_values_are_looked_at_in_each_iteration_of_large_tiles(links: int) -> None:
    names = names_after(in_large_tiles(program("maximumf", links)))
    # One by one, each would need as many operations as the maximum is.
    assert names.count("arith.maximumf") == (links == 1)
    assert names.count("arith.cmpf") == (0 if links == 1 else links + (links + 1) // 2)


def in_large_tiles(text: str) -> str:
    """A program that computes its extreme in 128 lanes."""
    narrow = f"vector<{LANES}xf32>"
    wide = f"vector<{8 * LANES}xf32>"
    shuffled = [str(lane % LANES) for lane in range(8 * LANES)]
    text = re.sub(
        r"(%\w+) = vector.load (.*), " + re.escape(narrow),
        lambda found: (
            f"{found[1]}n = vector.load {found[2]}, {narrow}\n    {found[1]} = vector.shuffle "
            f"{found[1]}n, {found[1]}n [{', '.join(shuffled)}] : {narrow}, {narrow}"
        ),
        text,
    )
    text = re.sub(r"(imumf .*|->\s+\(|yield .*)" + re.escape(narrow), rf"\g<1>{wide}", text)
    first = f"vector.extract_strided_slice %r {{offsets = [0], sizes = [{LANES}], strides = [1]}}"
    store = f"%narrow = {first} : {wide} to {narrow}\n  vector.store %narrow"
    return text.replace("vector.store %r", store)


@pytest.mark.parametrize("loops", [1, 2])
@pytest.mark.parametrize(("kind", "links"), [("maximumf", 1), ("minimumf", 2), ("maximumf", 3)])
@pytest.mark.parametrize("large", [False, True])
def test_a_value_that_is_no_number_makes_the_result_one(
    kind: str, links: int, loops: int, large: bool
) -> None:
    text = program(kind, links, loops)
    text = in_large_tiles(text) if large else text
    generated = generate(compiler.lower(text, None, threads=1))
    rng, out = np.random.default_rng(0), aligned_empty((LANES,), np.float32)
    find = np.max if kind == "maximumf" else np.min
    for row, special in itertools.product(range(ROWS), (np.nan, np.inf, -np.inf)):
        given = aligned_copy(rng.standard_normal((ROWS, LANES)).astype(np.float32))
        given[row, rng.integers(LANES)] = special
        given[rng.integers(ROWS), rng.integers(LANES)] = special
        pointers = np.array([it.ctypes.data for it in (given, out)], np.uint64)
        call = NativeCall(generated.address, (pointers.ctypes.data,), (given, out))
        time_native_call(call, 1)
        np.testing.assert_array_equal(out, find(given, axis=0))
