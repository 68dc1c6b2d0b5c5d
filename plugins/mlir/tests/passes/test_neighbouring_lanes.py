"""Gathers of neighbours are loads."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_mlir import bindings, parsing
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.passes.neighbouring_lanes import GATHER, load_neighbours
from autotune_mlir.traversal import operations_in
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed_workloads import embedding_bag, gathered_product
from mlir_schedules import candidates

from autotune.ir.workloads import Workload
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import check_candidate, request_for

ROWS = 2


def program(lanes: str, layout: str = "", mask: str = "dense<true>") -> str:
    """Two rows of a table, each from a place of its own on.

    Args:
        lanes: What makes ``%lanes`` of ``%step``, both of 2 x 4 x 1 lanes.
        layout: Of the table.
        mask: The constant that masks.
    """
    kind = "vector<2x4x1xindex>"
    return f"""
func.func @kernel(%table: memref<5x12xf32{layout}>, %at: memref<2xindex>, %out: memref<2x4xf32>) {{
  %zero = arith.constant 0 : index
  %two = arith.constant dense<2> : {kind}
  %width = arith.constant dense<12> : {kind}
  %mask = arith.constant {mask} : vector<2x4x1xi1>
  %nothing = arith.constant dense<-1.0> : vector<2x4x1xf32>
  %rows = vector.load %at[%zero] : memref<2xindex>, vector<2xindex>
  %spread = vector.broadcast %rows : vector<2xindex> to vector<4x1x2xindex>
  %places = vector.transpose %spread, [2, 0, 1] : vector<4x1x2xindex> to {kind}
  %one = vector.step : vector<4xindex>
  %many = vector.broadcast %one : vector<4xindex> to vector<2x1x4xindex>
  %step = vector.transpose %many, [0, 2, 1] : vector<2x1x4xindex> to {kind}
  {lanes}
  %start = arith.muli %places, %width : {kind}
  %index = arith.addi %start, %lanes : {kind}
  %read = vector.gather %table[%zero, %zero] [%index], %mask, %nothing
    : memref<5x12xf32{layout}>, {kind}, vector<2x4x1xi1>, vector<2x4x1xf32> into vector<2x4x1xf32>
  %flat = vector.shape_cast %read : vector<2x4x1xf32> to vector<2x4xf32>
  vector.transfer_write %flat, %out[%zero, %zero] {{in_bounds = [true, true]}}
    : vector<2x4xf32>, memref<2x4xf32>
  return
}}
"""


def operations(text: str) -> list[str]:
    """Names of the operations of a program after the rewriting."""
    module = parsing.parse_payload(text)
    ir = bindings.load().ir
    with module.context, ir.Location.unknown():
        load_neighbours(ir, [it for it in operations_in(module.operation) if it.name == GATHER])
        assert module.operation.verify()
        return [it.name for it in operations_in(module.operation)]


@pytest.mark.parametrize(
    "lanes",
    [
        "%lanes = arith.addi %step, %two : vector<2x4x1xindex>",
        "%less = arith.subi %step, %two : vector<2x4x1xindex>\n"
        "%lanes = arith.addi %less, %two : vector<2x4x1xindex>",
        "%flat_step = vector.shape_cast %step : vector<2x4x1xindex> to vector<2x4xindex>\n"
        "%lanes = vector.shape_cast %flat_step : vector<2x4xindex> to vector<2x4x1xindex>",
    ],
    ids=["shifted", "shifted back", "other shape"],
)
def test_rows_are_loaded(lanes: str) -> None:
    names = operations(program(lanes))
    assert GATHER not in names
    assert names.count("vector.load") == 1 + ROWS


@pytest.mark.parametrize(
    "text",
    [
        program("%lanes = arith.muli %step, %two : vector<2x4x1xindex>"),
        program("%lanes = arith.minsi %step, %two : vector<2x4x1xindex>"),
        program("%lanes = arith.subi %two, %step : vector<2x4x1xindex>"),
        program("%lanes = arith.addi %step, %two : vector<2x4x1xindex>", mask="dense<false>"),
        program(
            "%lanes = arith.addi %step, %two : vector<2x4x1xindex>",
            layout=", strided<[24, 1], offset: 0>",
        ),
    ],
    ids=["two apart", "the same at last", "backwards", "masked", "rows with gaps"],
)
def test_other_gathers_are_left_alone(text: str) -> None:
    assert operations(text).count(GATHER) == 1


@st.composite
def gathering(draw: st.DrawFn) -> Workload:
    rows, depth = draw(st.sampled_from((1, 2, 7, 13))), draw(st.sampled_from((1, 3, 8, 11)))
    width = draw(st.sampled_from((1, 5, 16, 29, 37, 64)))
    if draw(st.booleans()):
        return embedding_bag(rows, depth, width)
    return gathered_product(rows, width, depth)


@settings(max_examples=15, deadline=None)
@given(workload=gathering(), seed=st.integers(0, 1000))
def test_gathered_rows_are_what_the_workload_says(workload: Workload, seed: int) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    space = SketchSpace(workload, target, backend.limits(target))
    for candidate in space.sample(2, np.random.default_rng(seed)):
        check_candidate(backend, candidate, target)


def test_an_embedding_bag_gathers_nothing(backend: MLIRBackend, target: Target) -> None:
    for candidate in candidates(embedding_bag(16, 6, 64), target, 2):
        lowered = backend.lower(request_for(candidate, target)).program
        assert "masked.gather" not in str(lowered.module)
        check_candidate(backend, candidate, target)
