"""Products whose operands are read backwards."""

from __future__ import annotations

import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.importing.reading import read_text
from autotune_mlir.preparation.reversal import forwards
from backward_reads import (
    BACKWARDS,
    CROSSED,
    both_ways,
    convolution,
    matrix_product,
    relative_scores,
)
from mlir_programs import function
from mlir_schedules import candidates, scheduled

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.ir.expressions import Binary, Constant, IndexValue, Load, Select, const, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import BoundLoop, Candidate, FuseConsumer, Inline, Pack, Prepack, Sketch
from autotune.sketches.variants import names_used
from autotune.targets import Target
from autotune.testing.programs import check_candidate, check_program

BOUND = BoundLoop("C", "j.0", "i", const(0), 1)

BACKWARDS_IN_MLIR = function(
    """
%z = arith.constant 0.0 : f32
%e = tensor.empty() : tensor<24x32xf32>
%i = linalg.fill ins(%z : f32) outs(%e : tensor<24x32xf32>) -> tensor<24x32xf32>
%0 = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>,
    affine_map<(i, j, k) -> (15 - k, j)>, affine_map<(i, j, k) -> (i, j)>],
    iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%x, %w : tensor<24x16xf32>, tensor<16x32xf32>) outs(%i : tensor<24x32xf32>) {
^bb0(%p: f32, %q: f32, %o: f32):
  %m = arith.mulf %p, %q : f32
  %s = arith.addf %o, %m : f32
  linalg.yield %s : f32
} -> tensor<24x32xf32>
%1 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, -j + 31)>,
    affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    ins(%0 : tensor<24x32xf32>) outs(%e : tensor<24x32xf32>) {
^bb0(%p: f32, %o: f32):
  %s = arith.negf %p : f32
  linalg.yield %s : f32
} -> tensor<24x32xf32>
return %1 : tensor<24x32xf32>
""",
    "%x: tensor<24x16xf32>, %w: tensor<16x32xf32>",
    "tensor<24x32xf32>",
)


@pytest.mark.parametrize("name", BACKWARDS)
def test_every_sketch_computes_it(name: str, backend: MLIRBackend, target: Target) -> None:
    found = list(candidates(BACKWARDS[name], target, 1, draws=60))
    # Columns that are read backwards are no vectors, and are not packed.
    if name not in ("B j", "Bt j"):
        assert any("pack.reversed" in names_used(it.sketch) for it in found)
    for number, candidate in enumerate(found):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


@pytest.mark.parametrize("name", CROSSED)
def test_what_grows_along_one_axis_and_falls_along_another(
    name: str, backend: MLIRBackend, target: Target
) -> None:
    found = list(candidates(CROSSED[name], target, 1, draws=30))
    assert any("pack.crossed" in names_used(it.sketch) for it in found)
    for number, candidate in enumerate(found):
        check_candidate(backend, candidate, target, threads=1 + number % 2)


def test_results_are_reversed_where_axes_of_the_result_run_backwards() -> None:
    """Those of stages that are computed in its loops as well; others read what it was."""
    steps = (Inline("S"), FuseConsumer("D", "C", "i.0", (const(1), const(1))))
    fused = Sketch("fused", CROSSED["mask"], (), (), steps)
    assert forwards(Candidate(fused, ()), CROSSED["mask"]).reversed == {
        "C": (0,),
        "S": (0,),
        "D": (0,),
    }
    for steps, restored in (((), {"C": "C.restored"}), ((BOUND,), {})):
        alone = Sketch("alone", CROSSED["mask"], (), (), steps)
        found = forwards(Candidate(alone, ()), CROSSED["mask"])
        assert {name: stage.name for name, stage in found.restored.items()} == restored
        assert set(found.reversed) == set(restored)


def test_steps_on_what_is_transposed_are_on_its_dimensions() -> None:
    workload = relative_scores(24, 16)
    steps = (Pack("C", "B", "i.0", 0, const(8), 1), Pack("C", "A", "i.0", None, None, 1))
    found = forwards(Candidate(Sketch("packed", workload, (), (), steps), ()), workload)
    moved, same = (made.name for made in reversed(found.made["C"]))
    assert found.candidate is not None
    assert found.candidate.sketch.steps == (
        evolve(steps[0], operand=moved, block_dim=1),
        evolve(steps[1], operand=same),
    )


def test_what_is_too_large_is_not_spread() -> None:
    workload = both_ways(1 << 14, 1 << 13, 4)
    steps = (Pack("C", "B", "i.0", None, None, 1),)
    candidate = Candidate(Sketch("packed", workload, (), (), steps), ())
    with pytest.raises(InvalidSchedule, match="forwards and backwards at once"):
        forwards(candidate, workload)


def test_operations_of_others_that_read_backwards_are_scheduled(
    backend: MLIRBackend, target: Target
) -> None:
    workload, program = read_text(BACKWARDS_IN_MLIR, "own.mlir", None)
    check_program(backend, BuildRequest(workload, program, None, target, 1))
    for candidate in candidates(workload, target, 1, draws=60):
        check_candidate(backend, candidate, target, program=program)


def test_nothing_is_gathered(target: Target) -> None:
    """What runs backwards is reversed once, in vectors; products are those of what is not."""
    for candidate in candidates(matrix_product(64, "B k"), target.with_cores(1), 1, draws=60):
        text = str(scheduled(candidate))
        assert "vector.gather" not in text and "tensor.extract %" not in text


def test_axes_that_are_reduced_run_backwards_where_that_helps() -> None:
    workload = convolution(9, 3, 4, 8)
    pack = Pack("C", "A", "i.0", None, None, 1)
    found = forwards(Candidate(Sketch("packed", workload, (), (), (pack,)), ()), workload)
    (reversed_weights,) = found.made["C"]
    assert reversed_weights.reads == ("B",)
    assert found.candidate is not None and found.candidate.sketch.steps == (pack,)
    assert forwards(None, workload).workload is workload


def test_steps_on_an_operand_are_on_what_is_read_in_its_place() -> None:
    workload = matrix_product(8, "B k")
    steps = (Pack("C", "B", None, None, None, 1), Prepack("C", "B"))
    found = forwards(Candidate(Sketch("packed", workload, (), (), steps), ()), workload)
    (made,) = found.made["C"]
    assert found.candidate is not None
    assert found.candidate.sketch.steps == tuple(evolve(it, operand=made.name) for it in steps)


def padded_convolution() -> Workload:
    """Of which the data run backwards, with two zeros on either side."""
    workload = convolution(9, 3, 4, 8)
    place, (data, weights) = IndexValue(var("p")), workload.inputs
    inside = Binary("and", Binary("ge", place, number(2)), Binary("lt", place, number(9)))
    value = Select(inside, Load("X", (var("c"), var("p") - 2)), Constant(0.0, "float32"))
    padded = Stage(data, (Axis("c", 4), Axis("p", 11)), value)
    inputs = (Tensor("X", (4, 7), "float32"), weights)
    return evolve(workload, inputs=inputs, stages=(padded, *workload.stages))


def number(value: int) -> IndexValue:
    return IndexValue(const(value))


def test_bounds_of_axes_that_run_backwards_are_turned(
    backend: MLIRBackend, target: Target
) -> None:
    for candidate in candidates(padded_convolution(), target, 1):
        (bound,) = (it for it in candidate.sketch.steps if isinstance(it, BoundLoop))
        assert (bound.stride, bound.offset, bound.least) == (-1, const(0), const(-6))
        forward = forwards(candidate, candidate.sketch.workload).candidate
        assert forward is not None
        (turned,) = (it for it in forward.sketch.steps if isinstance(it, BoundLoop))
        assert (turned.stride, turned.offset, turned.least) == (1, const(8), const(2))
        check_candidate(backend, candidate, target)
    causal = BoundLoop("C", "k.0", "i", const(0), 1)
    pack = Pack("C", "A", "i.0", None, None, 1)
    made = Sketch("bounded", convolution(9, 3, 4, 8), (), (), (pack, causal))
    turning = forwards(Candidate(made, ()), made.workload).candidate
    assert turning is not None
    assert turning.sketch.steps[-1] == BoundLoop("C", "k.0", "i", const(10), 1, 1, const(2))
