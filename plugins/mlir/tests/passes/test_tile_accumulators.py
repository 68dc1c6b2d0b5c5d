"""Where sums in tile registers are, in programs written by hand."""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from autotune_mlir import bindings
from autotune_mlir.compiler import lower
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.tensorize import PRODUCTS, tensorize
from autotune_mlir.schedule.script import Script, module_of
from mlir_tiles import emulated
from numpy.typing import NDArray
from tile_machine import TileMachine

from autotune.backends import InvalidSchedule, aligned_empty

DEPTH = 192
Array = NDArray[Any]
MAPS = (
    "indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, "
    "affine_map<(i, j, k) -> (i, j)>], "
    'iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>'
)
# %a: 28 rows; %b is packed; %s is where sums start, %c where they end.
HEAD = f"""
func.func @kernel(%a: memref<28x{DEPTH}xi8>, %b: memref<{DEPTH}x32xi8>,
    %s: memref<28x32xi32>, %c: memref<28x32xi32>)
    attributes {{llvm.emit_c_interface, autotune.tensorize = "MARK"}} {{
  %zero = arith.constant 0 : index
  %deep = arith.constant 64 : index
  %end = arith.constant {DEPTH} : index
  %pad = arith.constant 0 : i8
  %none = arith.constant 0 : i32
  %zeros = arith.constant dense<0> : vector<14x32xi32>
  %below = arith.constant 14 : index
  %copy = memref.alloc() {{alignment = 64 : i64}} : memref<{DEPTH}x32xi8>
  memref.copy %b, %copy : memref<{DEPTH}x32xi8> to memref<{DEPTH}x32xi8>
  %again = memref.alloc() {{alignment = 64 : i64}} : memref<{DEPTH}x32xi8>
  memref.copy %b, %again : memref<{DEPTH}x32xi8> to memref<{DEPTH}x32xi8>
"""
TAIL = "  return\n}\n"


def read(name: str, rows: int, first: str = "%zero") -> str:
    kind = f"vector<{rows}x32xi32>"
    return (
        f"  {name} = vector.transfer_read %s[{first}, %zero], %none "
        f"{{in_bounds = [true, true]}} : memref<28x32xi32>, {kind}\n"
    )


def write(name: str, rows: int, first: str = "%zero") -> str:
    kind = f"vector<{rows}x32xi32>"
    return (
        f"  vector.transfer_write {name}, %c[{first}, %zero] "
        f"{{in_bounds = [true, true]}} : {kind}, memref<28x32xi32>\n"
    )


def contract(
    name: str,
    sums: str,
    rows: int,
    first: str = "%zero",
    between: str = "",
    call: int | None = None,
) -> str:
    """``name`` is ``sums`` and products of rows of %a and %copy from %k on."""
    left, right, total = f"vector<{rows}x64xi8>", "vector<64x32xi8>", f"vector<{rows}x32xi32>"
    tag, stage = name.removeprefix("%"), f"amx-{call or rows}x32x64-signed"
    return f"""
  %x{tag} = vector.transfer_read %a[{first}, %k], %pad {{in_bounds = [true, true]}}
    : memref<28x{DEPTH}xi8>, {left}
  %y{tag} = vector.transfer_read %copy[%k, %zero], %pad {{in_bounds = [true, true]}}
    : memref<{DEPTH}x32xi8>, {right}
  {between}
  %u{tag} = arith.extsi %x{tag} : {left} to vector<{rows}x64xi32>
  %v{tag} = arith.extsi %y{tag} : {right} to vector<64x32xi32>
  {name} = vector.contract {{{MAPS}, autotune.stage = "{stage}"}}
    %u{tag}, %v{tag}, {sums} : vector<{rows}x64xi32>, vector<64x32xi32> into {total}
    loc("call":{call or rows}:1)
"""


def over_loop(body: str, starts: dict[str, str], ends: dict[str, str], rows: int) -> str:
    """A loop over the depth; ``starts`` are initial values by argument, ``ends`` by result."""
    kinds = ", ".join([f"vector<{rows}x32xi32>"] * len(starts))
    carried = ", ".join(f"{name} = {start}" for name, start in starts.items())
    return (
        f"  {', '.join(ends)} = scf.for %k = %zero to %end step %deep iter_args({carried}) "
        f"-> ({kinds}) {{\n{body}\n  scf.yield {', '.join(ends.values())} : {kinds}\n  }}\n"
    )


def run(
    body: str, rows: int = 28, left: Callable[[Array], Array] = np.positive
) -> tuple[Array, Array, Counter[str]]:
    """What a program computes in emulation, what it should, and what was called.

    It should be %s and the products of what ``left`` makes of %a and of %b.
    """
    calls = dict.fromkeys(re.findall(r'autotune.stage = "([^"]+)"', body))
    head = HEAD.replace("MARK", "; ".join(f"{name} {name}" for name in calls))
    nothing = module_of({name: Script() for name in ("structure", "vectors", PRODUCTS)})
    made_of = lower(head + body + TAIL, nothing, threads=1)
    machine = TileMachine()
    made = emulated(made_of, machine)
    rng = np.random.default_rng(0)
    arrays = [
        aligned_empty((28, DEPTH), np.int8),
        aligned_empty((DEPTH, 32), np.int8),
        aligned_empty((28, 32), np.int32),
        aligned_empty((28, 32), np.int32),
    ]
    for array in arrays:
        array[...] = rng.integers(-128, 128, array.shape)
    a, b, s, c = arrays
    pointers = (ctypes.c_void_p * 4)(*(array.ctypes.data for array in arrays))
    assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(made.address)(pointers) == 0
    assert machine.faults == []
    expected = s + left(a).astype(np.int32) @ b.astype(np.int32)
    return c[:rows], expected[:rows], machine.counts


def test_sums_that_begin_with_numbers_are_loaded_before_the_loop() -> None:
    loop = over_loop(contract("%t", "%acc", 28), {"%acc": "%start"}, {"%r": "%t"}, 28)
    found, expected, counts = run(read("%start", 28) + loop + write("%r", 28))
    np.testing.assert_array_equal(found, expected)
    products = DEPTH // 64
    # Four of sums; for each product two blocks and two halves.
    assert counts["tileloadd64"] == 4 + 4 * products and counts["tilestored64"] == 4


def test_sums_of_two_chains_are_in_registers_side_by_side() -> None:
    body = contract("%t", "%one", 14) + contract("%u", "%two", 14, "%below")
    starts = {"%one": "%start", "%two": "%other"}
    loop = over_loop(body, starts, {"%r": "%t", "%q": "%u"}, 14)
    before = read("%start", 14) + read("%other", 14, "%below")
    after = write("%r", 14) + write("%q", 14, "%below")
    found, expected, counts = run(before + loop + after)
    np.testing.assert_array_equal(found, expected)
    assert counts["tilestored64"] == 4


def test_sums_that_are_used_elsewhere_too_are_read_back() -> None:
    loop = over_loop(contract("%t", "%acc", 28), {"%acc": "%start"}, {"%r": "%t"}, 28)
    double = "  %d = arith.addi %r, %r : vector<28x32xi32>\n"
    found, expected, _ = run(read("%start", 28) + loop + double + write("%d", 28))
    np.testing.assert_array_equal(found, 2 * expected)


def test_a_left_factor_that_is_computed_is_written_for_calls() -> None:
    computed = """
  %ones = arith.constant dense<-1> : vector<28x64xi8>
  %inverse = arith.xori %xt, %ones : vector<28x64xi8>
"""
    body = contract("%t", "%acc", 28, between=computed)
    body = body.replace("arith.extsi %xt", "arith.extsi %inverse")
    loop = over_loop(body, {"%acc": "%start"}, {"%r": "%t"}, 28)
    found, expected, _ = run(read("%start", 28) + loop + write("%r", 28), left=np.invert)
    np.testing.assert_array_equal(found, expected)


def test_calls_that_differ_in_rows_are_configured_one_by_one() -> None:
    first = over_loop(contract("%t", "%acc", 14), {"%acc": "%start"}, {"%r": "%t"}, 14)
    few = contract("%u", "%more", 7, "%below").replace("%copy", "%again")
    second = over_loop(few, {"%more": "%other"}, {"%q": "%u"}, 7)
    before = read("%start", 14) + read("%other", 7, "%below")
    after = write("%r", 14) + write("%q", 7, "%below")
    found, expected, counts = run(before + first + second + after, 21)
    np.testing.assert_array_equal(found, expected)
    assert counts["ldtilecfg"] == counts["tilerelease"] == 2


def test_a_factor_that_is_written_before_it_is_multiplied_is_refused() -> None:
    number = "memref.store %pad, %a[%zero, %k] : memref<28x192xi8>"
    body = contract("%t", "%acc", 28, between=number)
    loop = over_loop(body, {"%acc": "%start"}, {"%r": "%t"}, 28)
    with pytest.raises(InvalidSchedule, match="a factor is written again before it is multiplied"):
        run(read("%start", 28) + loop + write("%r", 28))


def test_calls_are_not_moved_to_where_their_factors_are_no_more() -> None:
    name = "amx-28x32x64-signed"
    marked = HEAD.replace("MARK", f"{name} {name}")
    free = f"  memref.dealloc %copy : memref<{DEPTH}x32xi8>\n"
    once = "  %k = arith.constant 64 : index\n" + contract("%t", "%start", 28)
    for between in ("", free):
        module = parse_payload(
            marked + read("%start", 28) + once + between + write("%t", 28) + TAIL
        )
        ir, (kernel, *_) = bindings.load().ir, module.body.operations
        with module.context, ir.Location.unknown():
            tensorize(ir, kernel, {name: {"28:1"}}, parallel=False)
        assert module.operation.verify()
        text = str(module)
        if between:
            assert text.rindex("tdpbssd") < text.index("memref.dealloc")
        assert ("vector.transfer_write" in text.partition("tilerelease")[2]) == bool(between)


def test_sums_that_do_not_fill_calls_are_refused() -> None:
    loop = over_loop(contract("%t", "%acc", 14, call=28), {"%acc": "%start"}, {"%r": "%t"}, 14)
    with pytest.raises(InvalidSchedule, match="its sums have 14 rows of 32"):
        run(read("%start", 14) + loop + write("%r", 14))
