"""Reductions in parts and tiled transposes, run: they are what the workload says."""

from __future__ import annotations

import pytest
from split_reductions import SPLIT_REDUCTIONS
from thinning import thinned
from transposes import transpose, transposed_pair
from tvm_programs import BACKEND, one_of_each, samples

from autotune.ir.expressions import Binary, Constant, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate


@pytest.mark.parametrize("cores", [1, 64])
@pytest.mark.parametrize(
    "workload", thinned((*SPLIT_REDUCTIONS, transpose(64, 48), transposed_pair(40, 32)), 3)
)
def test_results_are_those_of_the_reference(workload: Workload, cores: int) -> None:
    target = detect_cpu().with_cores(cores)
    for candidate in one_of_each(samples(workload, target)):
        check_candidate(BACKEND, candidate, target)


@pytest.mark.parametrize("cores", [1, 64])
def test_a_single_number_that_is_computed_with_may_be_reduced_in_parts(cores: int) -> None:
    axes = (Axis("i", 16, "reduce"), Axis("j", 32, "reduce"))
    total = Stage(Tensor("S", (), "float32"), axes, Load("X", (var("i"), var("j"))), "add")
    mean = Stage(
        Tensor("M", (), "float32"), (), Binary("div", Load("S", ()), Constant(512, "float32"))
    )
    workload = Workload("mean", (Tensor("X", (16, 32), "float32"),), (total, mean), ("M",))
    target = detect_cpu().with_cores(cores)
    for candidate in one_of_each(samples(workload, target)):
        assert candidate.sketch.name.startswith("split-reduction")
        check_candidate(BACKEND, candidate, target)
