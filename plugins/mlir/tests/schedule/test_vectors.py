"""What tiles become as vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from attrs import evolve
from autotune_mlir.backend import MLIRBackend
from autotune_mlir.scripted import scheduled_text
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.ir.expressions import Binary, Cast, Load, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.spaces.sketch_space import SketchSpace
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import check_candidate, request_for

# Of each factor, and of their sums.
MIXED = (
    ("uint8", "int8", "int32"),
    ("int8", "uint8", "int32"),
    ("float16", "float32", "float32"),
    ("float32", "bfloat16", "float32"),
)


def product(m: int, n: int, k: int, types: tuple[str, str, str]) -> Workload:
    """A product of matrices whose elements are converted to the type of the sums."""
    left, right, total = types
    axes = (Axis("i", m), Axis("j", n), Axis("k", k, "reduce"))
    factors = [
        Load(name, tuple(map(var, indices))) for name, indices in (("A", "ik"), ("B", "kj"))
    ]
    converted = [
        it if dtype == total else Cast(total, it)
        for it, dtype in zip(factors, (left, right), strict=True)
    ]
    stage = Stage(Tensor("C", (m, n), total), axes, Binary("mul", *converted), "add")
    inputs = (Tensor("A", (m, k), left), Tensor("B", (k, n), right))
    return Workload("mixed product", inputs, (stage,), ("C",))


def without_dot_products(target: Target) -> Target:
    known = {*preset("avx2").features} & {*target.features}
    return evolve(preset("avx2").with_cores(1), features=tuple(sorted(known)))


@pytest.mark.parametrize("types", MIXED, ids="-".join)
def test_factors_of_two_types_are_multiplied_in_vectors(
    types: tuple[str, str, str], backend: MLIRBackend, target: Target
) -> None:
    workload, less = product(8, 32, 24, types), without_dot_products(target)
    space = SketchSpace(workload, less, backend.limits(less))
    for candidate in space.sample(6, np.random.default_rng(0)):
        if candidate.config["C.j.3"] == 1:
            continue
        text = scheduled_text(request_for(candidate, less))
        results = re.findall(r"(?:arith\.mul[if]|vector\.fma) .* : (\S+)", text)
        lanes = candidate.config["C.j.2"] * candidate.config["C.j.3"]
        assert results and all(f"{lanes}x" in it for it in results), candidate.config


@settings(max_examples=10, deadline=None)
@given(
    extents=st.tuples(*[st.sampled_from((1, 5, 7, 16, 23, 37))] * 3),
    types=st.sampled_from(MIXED),
    seed=st.integers(0, 1000),
)
def test_products_of_two_types_are_what_the_workload_says(
    extents: tuple[int, int, int], types: tuple[str, str, str], seed: int
) -> None:
    backend, target = MLIRBackend(), detect_cpu()
    workload = product(*extents, types)
    for each in (target, without_dot_products(target)):
        space = SketchSpace(workload, each, backend.limits(each))
        for candidate in space.sample(2, np.random.default_rng(seed)):
            check_candidate(backend, candidate, each)
