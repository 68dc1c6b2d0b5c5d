"""What all lanes of a vector choose is read by itself, where it is."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from autotune_mlir import bindings, compiler
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.code_generation import generate
from autotune_mlir.parsing import parse_payload
from autotune_mlir.passes.chosen_reads import separate_choices
from autotune_mlir.passes.vector_instructions import VectorInstructions
from autotune_mlir.traversal import operations_in
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.backends import NativeCall, aligned_copy, aligned_empty, time_native_call
from autotune.ir.expressions import (
    Binary,
    Constant,
    IndexValue,
    IntExpr,
    Load,
    ScalarExpr,
    Select,
    var,
)
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import detect_cpu, preset
from autotune.testing.programs import check_candidate

ROWS, WIDTH, TILE = 8, 24, 16


def program(limited: str = "arith.maxsi", condition: str = "sge, %at, %width") -> str:
    """Two matrices beside each other, in tiles of which one reads both."""
    kind, read = f"vector<{TILE}xindex>", f"memref<{ROWS}x{WIDTH}xf32>"
    mask, result = f"vector<{TILE}xi1>", f"vector<{TILE}xf32>"
    types = f"{read}, {kind}, {mask}, {result} into {result}"
    return f"""
func.func @kernel(%a: {read}, %b: {read}, %out: memref<{ROWS}x{2 * WIDTH}xf32>) {{
  %z = arith.constant 0 : index
  %one = arith.constant 1 : index
  %tile = arith.constant {TILE} : index
  %rows = arith.constant {ROWS} : index
  %columns = arith.constant {2 * WIDTH} : index
  %step = arith.constant {WIDTH} : index
  %width = arith.constant dense<{WIDTH}> : {kind}
  %last = arith.constant dense<{WIDTH - 1}> : {kind}
  %zeros = arith.constant dense<0> : {kind}
  %all = arith.constant dense<true> : {mask}
  %none = arith.constant dense<0.0> : {result}
  %lanes = vector.step : {kind}
  scf.for %i = %z to %rows step %one {{
    %offset = arith.muli %i, %step : index
    %row = vector.broadcast %offset : index to {kind}
    scf.for %j = %z to %columns step %tile {{
      %start = vector.broadcast %j : index to {kind}
      %at = arith.addi %start, %lanes : {kind}
      %second = arith.cmpi {condition} : {kind}
      %behind = arith.subi %at, %width : {kind}
      %inside = {limited} %behind, %zeros : {kind}
      %in_second = arith.addi %inside, %row : {kind}
      %x = vector.gather %b[%z, %z] [%in_second], %all, %none : {types}
      %within = arith.minsi %at, %last : {kind}
      %in_first = arith.addi %within, %row : {kind}
      %y = vector.gather %a[%z, %z] [%in_first], %all, %none : {types}
      %r = arith.select %second, %x, %y : {mask}, {result}
      vector.store %r, %out[%i, %j] : memref<{ROWS}x{2 * WIDTH}xf32>, {result}
    }}
  }}
  return
}}
"""


def names_after(text: str, least_masked_bits: int = 8) -> collections.Counter[str]:
    """How many operations of each kind the rewriting leaves."""
    module, ir = parse_payload(text), bindings.load().ir
    with module.context, ir.Location.unknown():
        separate_choices(ir, module, least_masked_bits)
        assert module.operation.verify()
        passes = bindings.load().passmanager.PassManager
        passes.parse("builtin.module(canonicalize)").run(module.operation)
        return collections.Counter(it.name for it in operations_in(module.operation))


@pytest.mark.parametrize("condition", ["sge, %at, %width", "sgt, %at, %last", "sle, %width, %at"])
def test_each_branch_loads_and_nothing_is_gathered(condition: str) -> None:
    names = names_after(program(condition=condition))
    # Of one tensor in two branches, and of both, under masks, in the third.
    kinds = ("scf.if", "vector.load", "vector.maskedload", "vector.store", "vector.gather")
    assert [names[kind] for kind in kinds] == [2, 2, 2, 3, 0]
    assert not names["arith.maxsi"] and not names["arith.minsi"]


def test_lanes_that_differ_are_gathered_where_there_are_no_masks() -> None:
    names = names_after(program(), least_masked_bits=128)
    assert (names["vector.load"], names["vector.maskedload"], names["vector.gather"]) == (2, 0, 2)


@pytest.mark.parametrize(
    "text",
    [
        program(condition="eq, %at, %width"),
        program(condition="slt, %at, %last"),
        program("arith.muli").replace("arith.minsi %at, %last", "arith.muli %at, %last"),
    ],
    ids=["equal", "another place", "products"],
)
def test_choices_that_say_nothing_of_where_is_read_are_left_alone(text: str) -> None:
    names = names_after(text)
    assert names["vector.gather"] == 2 and not names["scf.if"]


def test_a_choice_that_is_the_same_for_all_lanes_gathers_from_one() -> None:
    text = program().replace("sge, %at, %width : vector<16xindex>", "sge, %i, %one : index")
    text = text.replace("select %second, %x, %y : vector<16xi1>, ", "select %second, %x, %y : ")
    names = names_after(text)
    kinds = ("scf.if", "vector.gather", "vector.store", "arith.select")
    assert [names[kind] for kind in kinds] == [1, 2, 2, 0]


@pytest.mark.parametrize("least_masked_bits", [8, 128])
def test_results_are_those_of_numpy(least_masked_bits: int) -> None:
    vectors = VectorInstructions(least_masked_bits)
    generated = generate(compiler.lower(program(), None, threads=1, vectors=vectors))
    left, right = (
        aligned_copy(np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) + number)
        for number in (0, 1000)
    )
    out = aligned_empty((ROWS, 2 * WIDTH), np.float32)
    pointers = np.array([it.ctypes.data for it in (left, right, out)], np.uint64)
    call = NativeCall(generated.address, (pointers.ctypes.data,), (left, right, out))
    time_native_call(call, 1)
    np.testing.assert_array_equal(out, np.hstack([left, right]))


def beside(rows: int, widths: list[int], dtype: str, turned: bool) -> Workload:
    """Matrices beside each other, perhaps transposed."""
    column: IntExpr = var("j")
    value: ScalarExpr = Load("X0", (var("i"), column))
    for number in range(1, len(widths)):
        start = sum(widths[:number])
        is_behind = Binary("ge", IndexValue(column), Constant(start, "int32"))
        value = Select(is_behind, Load(f"X{number}", (var("i"), column - start)), value)
    axes, shape = (Axis("i", rows), Axis("j", sum(widths))), (rows, sum(widths))
    stages = [Stage(Tensor("C", shape, dtype), axes, value)]
    if turned:
        read = Load("C", (var("j"), var("i")))
        axes = (Axis("i", shape[1]), Axis("j", shape[0]))
        stages.append(Stage(Tensor("Y", shape[::-1], dtype), axes, read))
    inputs = [Tensor(f"X{at}", (rows, width), dtype) for at, width in enumerate(widths)]
    return Workload("beside", tuple(inputs), tuple(stages), (stages[-1].name,))


SIZES = st.sampled_from((1, 3, 7, 8, 16, 17, 31, 32, 40, 48, 64))


@settings(max_examples=15, deadline=None)
@given(
    rows=SIZES,
    widths=st.lists(SIZES, min_size=2, max_size=3),
    dtype=st.sampled_from(("float32", "float64", "int8", "float16")),
    turned=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_matrices_beside_each_other_are_what_the_workload_says(
    rows: int, widths: list[int], dtype: str, turned: bool, seed: int
) -> None:
    backend, host = MLIRBackend(), detect_cpu()
    workload = beside(rows, widths, dtype, turned)
    for target in (host, preset("avx2").with_cores(1)):
        space = SketchSpace(workload, target, backend.limits(target))
        for candidate in space.sample(2, np.random.default_rng(seed)):
            check_candidate(backend, candidate, target)
