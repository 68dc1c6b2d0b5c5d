"""Outcomes of programs of kernels for matrix products, run on threads of the machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from cuda_threads import Array, Program
from workload_names import named

from autotune.ir.workloads import reference_outputs
from autotune.measure.validation import error_bound, relative_bound
from autotune.targets import Target

ONE_OR_MORE = [
    pytest.param(1, marks=pytest.mark.slow, id="one"),
    pytest.param(3, marks=pytest.mark.long, id="more"),
]
"""Most programs of a workload that are compiled and run."""

RIGHT, WRONG = "right", "wrong"


def check(program: Program, found: Mapping[str, Array], target: Target) -> None:
    """Compare what a program computed with the reference, by the bounds of measuring."""
    expected = reference_outputs(program.workload, dict(program.inputs))
    for name, array in expected.items():
        element = program.workload.tensors[name].element
        wanted, got = element.numbers(array), element.numbers(found[name])
        bound = error_bound(wanted, relative_bound(program.workload, name, target))
        assert np.all(np.abs(got.astype(np.float64) - wanted) <= bound), named(program.workload)


def outcome_of(program: Program, result: Mapping[str, Array] | int, target: Target) -> int | str:
    """The code that a program ended with, or whether its results are right."""
    if isinstance(result, int):
        return result
    try:
        check(program, result, target)
    except AssertionError:
        return WRONG
    return RIGHT
