"""Operands at quotients and remainders, of which tiles read slices."""

from __future__ import annotations

import numpy as np
import pytest
from attention_workloads import divided
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from autotune_mlir.scripted import program_of, scheduled_text
from divided_reductions import shared_factor
from hypothesis import given, settings
from hypothesis import strategies as st
from mlir_programs import function
from mlir_schedules import candidates

from autotune.backends import InvalidSchedule
from autotune.ir.expressions import Binary, Load, ScalarExpr, transform, var
from autotune.ir.workloads import Workload, attention
from autotune.sketches import Candidate, Pack
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import check_candidate, request_for, sample_candidates


def cyclic(workload: Workload) -> Workload:
    """A product whose batches take the matrices in turns, and not one after the other."""
    (stage,) = workload.stages
    matrices = workload.tensors["K"].shape[0]

    def in_turns(node: ScalarExpr) -> ScalarExpr | None:
        if not isinstance(node, Load) or node.tensor != "K":
            return None
        return Load("K", (var("b") % matrices, *node.indices[1:]))

    return evolve(workload, stages=(evolve(stage, body=transform(stage.body, in_turns)),))


@st.composite
def products(draw: st.DrawFn) -> Workload:
    copies, columns = draw(st.integers(1, 5)), draw(st.sampled_from((5, 16, 23, 32, 47)))
    batches, rows = copies * draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 7, 12)))
    made = shared_factor(batches, copies, rows, columns, draw(st.sampled_from((3, 13, 16, 24))))
    return cyclic(made) if draw(st.booleans()) else made


@settings(max_examples=12, deadline=None)
@given(workload=products(), seed=st.integers(0, 1000))
def test_products_with_shared_factors_compute_what_the_workload_says(
    workload: Workload, seed: int
) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    space = SketchSpace(workload, target, backend.limits(target))
    for candidate in space.sample(3, np.random.default_rng(seed)):
        check_candidate(backend, candidate, target)


def test_what_all_batches_share_is_packed_whole(backend: MLIRBackend, target: Target) -> None:
    """Its one element of the first dimension is read at a constant index."""
    space = SketchSpace(shared_factor(5, 5, 2, 5, 16), target, backend.limits(target))
    for candidate in space.sample(6, np.random.default_rng(0)):
        check_candidate(backend, candidate, target)


def test_tiles_read_slices_of_one_copy(backend: MLIRBackend, target: Target) -> None:
    """No element is extracted, and the products are contractions in registers."""
    for workload in (shared_factor(8, 4, 6, 32, 16), cyclic(shared_factor(8, 4, 6, 32, 16))):
        for candidate in candidates(workload, target, 2):
            text = scheduled_text(request_for(candidate, target))
            assert not any(kind in text for kind in ("tensor.extract ", "vector.gather"))
            assert "linalg.generic" not in text
            check_candidate(backend, candidate, target)


def test_values_that_heads_share_are_slices_in_place(backend: MLIRBackend, target: Target) -> None:
    workload = divided(attention(h=4, n=16, d=32, m=48), 2)
    found = list(candidates(workload, target, 1))
    assert "attention-tiles" in {candidate.sketch.name for candidate in found}
    for candidate in found:
        program = program_of(workload, None, candidate)
        assert "tensor.extract " not in program
        assert " floordiv 2" in program
        check_candidate(backend, candidate, target)


def test_a_tile_that_is_in_several_groups_is_refused(target: Target) -> None:
    workload = shared_factor(6, 3)
    (sketch, *_) = SketchSpace(workload, target, MLIRBackend().limits(target)).sketches()
    config = {"Y.b.0": 3, "Y.b.2": 2, "Y.i.0": 5, "Y.j.extent": 32, "Y.j.2": 2, "Y.j.3": 16}
    config["Y.k.0"] = 16
    candidate = Candidate(sketch, tuple(config.get(name, 1) for name in sketch.param_names))
    with pytest.raises(InvalidSchedule, match="tiles of 2 along 'b' are neither multiples nor"):
        program_of(workload, None, candidate)


def test_a_factor_at_the_quotient_of_a_sum_stays_in_place(target: Target) -> None:
    """Groups do not begin with tiles: elements are extracted, and nothing is packed of it."""
    for candidate in candidates(shared_factor(6, 3, first=1), target, 1):
        assert not any(isinstance(it, Pack) and it.operand == "K" for it in candidate.sketch.steps)
        assert "tensor.extract " in program_of(candidate.sketch.workload, None, candidate)
        check_candidate(MLIRBackend(), candidate, target)


def test_what_lanes_read_at_several_quotients_is_extracted(target: Target) -> None:
    workload = shared_factor(4, 2, 6, 32, 16)
    (stage,) = workload.stages
    read = Load("K", (var("b") // 2, var("j") // 2, var("k")))
    body = Binary("mul", Load("Q", (var("b"), var("i"), var("k"))), read)
    workload = evolve(workload, stages=(evolve(stage, body=body),))
    for candidate in candidates(workload, target, 1):
        assert "tensor.extract " in program_of(workload, None, candidate)
        check_candidate(MLIRBackend(), candidate, target)


SHARED = function(
    """
%z = arith.constant 0.0 : f32
%e = tensor.empty() : tensor<6x5x23xf32>
%i = linalg.fill ins(%z : f32) outs(%e : tensor<6x5x23xf32>) -> tensor<6x5x23xf32>
%0 = linalg.generic {indexing_maps = [
    affine_map<(b, i, j, k) -> (b, i, k)>, affine_map<(b, i, j, k) -> (b floordiv 3, j, k)>,
    affine_map<(b, i, j, k) -> (b, i, j)>],
    iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
    ins(%q, %k : tensor<6x5x16xf32>, tensor<2x23x16xf32>) outs(%i : tensor<6x5x23xf32>) {
^bb0(%p: f32, %r: f32, %o: f32):
  %m = arith.mulf %p, %r : f32
  %s = arith.addf %o, %m : f32
  linalg.yield %s : f32
} -> tensor<6x5x23xf32>
return %0 : tensor<6x5x23xf32>
""",
    "%q: tensor<6x5x16xf32>, %k: tensor<2x23x16xf32>",
    "tensor<6x5x23xf32>",
)


def test_an_imported_program_reads_slices(backend: MLIRBackend, target: Target) -> None:
    workload, program = read_text(SHARED, "program.mlir")
    for candidate in sample_candidates(backend, workload, target):
        prepared = program_of(workload, program, candidate)
        assert "tensor.extract " not in prepared and " floordiv 3" in prepared
        check_candidate(backend, candidate, target, program=program)
