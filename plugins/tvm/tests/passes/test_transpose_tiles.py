"""Copies along another dimension, in tiles of registers."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from attrs import evolve
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import lower_module, tvm_target
from autotune_tvm.passes.transpose_tiles import _exchanges, transpose_tiles
from autotune_tvm.scheduled import scheduled_module
from transposes import transpose, transposed_pair
from tvm import IRModule, tirx

from autotune.ir.element_types import element_type
from autotune.ir.expressions import Binary, Constant, Load, const, var
from autotune.ir.workloads import Workload, dense
from autotune.sketches import Candidate, Order, Pack, Sketch, Step, Stream, Tile, Vectorize
from autotune.targets import detect_cpu, preset
from autotune.testing.programs import check_candidate, request_for

BACKEND = TVMBackend()
TARGET = evolve(detect_cpu(), caches=())
LANES = TARGET.lanes("float32")


def by_hand(workload: Workload, *steps: Step) -> Candidate:
    return Candidate(Sketch("by-hand", workload, (), (), steps), ())


def tiled(workload: Workload, rows: int, lanes: int, *more: Step) -> Candidate:
    """Vectors along ``j``, so many rows of ``i`` below each other."""
    i, j = (axis.extent for axis in workload.stage("Y").axes)
    return by_hand(
        workload,
        Tile("Y", "i", (const(i // rows), const(rows))),
        Tile("Y", "j", (const(j // lanes), const(lanes))),
        Order("Y", ("i.0", "j.0", "i.1", "j.1")),
        Vectorize("Y", "j.1"),
        *more,
    )


def tiles_of(candidate: Candidate) -> list[str]:
    """Names of the functions that transpose, in the order of their calls."""
    request = request_for(candidate, TARGET, 1, None)
    text = str(lower_module(scheduled_module(request), TARGET, 1))
    return re.findall(r'call_extern\("void", "(autotune_\w*transpose\w+)"', text)


@pytest.mark.parametrize(
    ("bits", "size"),
    [(bits, row * 8 // bits) for bits in (8, 16, 32, 64) for row in (16, 32, 64)],
)
def test_exchanges_make_columns_of_rows(bits: int, size: int) -> None:
    tile = np.arange(size * size).reshape(size, size)
    rows = [row.copy() for row in tile]
    for bit, low, high in _exchanges(bits, size):
        for row in (row for row in range(size) if not row & bit):
            both = np.concatenate([rows[row], rows[row | bit]])
            rows[row], rows[row | bit] = both[low], both[high]
    assert np.array_equal(rows, tile.T)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int8"])
@pytest.mark.parametrize("rows", [4, 16, 21, 40])
def test_rows_that_tiles_do_not_divide_are_copied_too(dtype: str, rows: int) -> None:
    lanes = TARGET.lanes(dtype)
    candidate = tiled(transpose(2 * lanes, 2 * rows, dtype), rows, lanes)
    check_candidate(BACKEND, candidate, TARGET)
    size = min(16, lanes, 1 << (rows.bit_length() - 1))
    width = element_type(dtype).bytes
    expected = f"autotune_transpose_{8 * width}_{size}"
    assert set(tiles_of(candidate)) == ({expected} if size * width >= 16 else set())


@pytest.mark.parametrize("triangle", [False, True])
def test_loops_inside_are_as_long_in_all_iterations_of_a_tile(triangle: bool) -> None:
    """Else a tile would copy what some of its iterations do not."""
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    x, y = (tirx.decl_buffer((64 * 64,), "float32", name) for name in "XY")
    column = tirx.BufferLoad(x, [tirx.Ramp(j * 16 * 64 + i, tirx.const(64, "int32"), 16)])
    row = tirx.Ramp(i * 64 + j * 16, tirx.const(1, "int32"), 16)
    store = tirx.BufferStore(y, column, [row])
    extent = tirx.floordiv(i, 16) + 1 if triangle else tirx.const(4, "int32")
    zero, serial = tirx.const(0, "int32"), tirx.ForKind.SERIAL
    loops = tirx.For(
        i, zero, tirx.const(64, "int32"), serial, tirx.For(j, zero, extent, serial, store)
    )
    target = tvm.target.Target(tvm_target(preset("skylake-avx512-4core"), 1))
    function = tirx.PrimFunc([x, y], loops).with_attr("target", target)
    found = str(transpose_tiles(IRModule({"main": function})))
    assert ("autotune_transpose_32_16" in found) != triangle


def test_each_matrix_has_tiles_of_its_own() -> None:
    workload = transposed_pair(4 * LANES, 3 * LANES)
    candidate = tiled(workload, LANES, LANES)
    check_candidate(BACKEND, candidate, TARGET)


def test_whole_lines_are_written_past_the_caches() -> None:
    candidate = tiled(transpose(2 * LANES, 32, "float32"), 16, LANES, Stream("Y", const(1)))
    check_candidate(BACKEND, candidate, TARGET)
    (name,) = tiles_of(candidate)
    assert name == f"autotune_stream_transpose_32_{min(16, LANES)}"
    request = request_for(candidate, TARGET, 1, None)
    assert "autotune_stream_fence" in str(lower_module(scheduled_module(request), TARGET, 1))


def test_what_is_more_than_a_copy_stays() -> None:
    plain = transpose(2 * LANES, 32, "float32")
    (stage,) = plain.stages
    twice = Binary("mul", Load("X", (var("j"), var("i"))), Constant(2.0, "float32"))
    workload = evolve(plain, stages=(evolve(stage, body=twice),))
    candidate = tiled(workload, 16, LANES)
    check_candidate(BACKEND, candidate, TARGET)
    assert not tiles_of(candidate)


@pytest.mark.parametrize("at", ["j.0", None])
@pytest.mark.parametrize("block", [LANES, LANES + LANES // 2])
def test_an_operand_is_packed_in_tiles(at: str | None, block: int) -> None:
    workload = dense(m=8, n=2 * block, k=2 * LANES, bias=0, relu=0)
    steps = (
        Tile("Y", "j", (const(2), const(block))),
        Order("Y", ("j.0", "i.0", "k.0", "j.1")),
        Pack("Y", "W", at, 0, const(block), LANES),
        Vectorize("Y", "j.1"),
    )
    candidate = by_hand(workload, *steps)
    check_candidate(BACKEND, candidate, TARGET)
    assert tiles_of(candidate)
