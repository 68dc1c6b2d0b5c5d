"""Reductions of truth values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module, text_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import te, tirx, topi
from written import written

from autotune.errors import UnsupportedWorkload
from autotune.ir.workloads import reference_outputs
from autotune.targets import detect_cpu
from autotune.testing.programs import check_candidate, sample_candidates

BACKEND, TARGET = TVMBackend(), detect_cpu()
FUNCTIONS = {"any": np.any, "all": np.all}


def reduced(shape: tuple[int, ...], axis: int | None, name: str) -> Any:
    x = te.placeholder(shape, "bool", "X")
    return te.create_prim_func([x, getattr(topi, name)(x, axis)])


def combined(combine: Any, first: bool) -> Any:
    """Rows of truth values that are combined, beginning with ``first``."""
    x = te.placeholder((4, 9), "bool", "X")
    k = te.reduce_axis((0, 9), "k")
    reducer = te.comm_reducer(lambda a, b: combine(a, b), lambda dtype: tirx.const(first, dtype))
    return te.create_prim_func([x, te.compute((4,), lambda i: reducer(x[i, k], axis=k), name="Y")])


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    axis=st.sampled_from((0, 1, None)),
    name=st.sampled_from(tuple(FUNCTIONS)),
    share=st.floats(0, 1),
)
def test_results_are_those_of_numpy(
    shape: tuple[int, int], axis: int | None, name: str, share: float
) -> None:
    workload, _ = import_module(reduced(shape, axis, name))
    x = np.random.default_rng(0).random(shape) < share
    (output,) = reference_outputs(workload, {"X": x}).values()
    np.testing.assert_array_equal(output, FUNCTIONS[name](x, axis))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("shape", "axis"), [((16, 64), 1), ((64, 32), 0), ((8, 64), None)])
def test_programs_reduce_them(shape: tuple[int, int], axis: int | None, name: str) -> None:
    workload, module = import_module(reduced(shape, axis, name))
    x = np.random.default_rng(0).random(shape) < (0.02 if name == "any" else 0.98)
    candidates = sample_candidates(BACKEND, workload, TARGET)
    assert candidates
    for candidate in candidates if (name, axis) in (("any", 0), ("all", 1)) else candidates[-1:]:
        check_candidate(BACKEND, candidate, TARGET, {"X": x}, program=text_of(module))


@pytest.mark.parametrize(
    ("combine", "first", "function"),
    [(tirx.bitwise_or, False, np.any), (tirx.bitwise_and, True, np.all)],
)
def test_bitwise_operations_are_the_same(combine: Any, first: bool, function: Any) -> None:
    workload, _ = import_module(combined(combine, first))
    x = np.random.default_rng(0).random((4, 9)) < 0.5
    (output,) = reference_outputs(workload, {"X": x}).values()
    np.testing.assert_array_equal(output, function(x, 1))


@pytest.mark.parametrize(
    ("combine", "first", "reason"),
    [
        (tirx.Or, True, "block 'Y': it starts with True, not the identity of 'or'"),
        (tirx.bitwise_xor, False, "its update is not output = output"),
    ],
)
def test_others_are_refused(combine: Any, first: bool, reason: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=reason):
        import_module(combined(combine, first))


def test_names_that_a_program_has_are_not_given_again() -> None:
    x = te.placeholder((4, 9), "bool", "X_red_number")
    y = te.placeholder((4,), "bool", "X_red_number_1")
    red = topi.any(te.compute((4, 9), lambda i, j: x[i, j], name="X"), 1)
    program = te.create_prim_func([x, y, te.compute((4,), lambda i: red[i] == y[i], name="Z")])
    workload, _ = import_module(program)
    assert "X_red_number_2" in [stage.name for stage in workload.stages]


def test_truth_values_in_vectors_are_combined() -> None:
    """TVM loses the type of a tile that is only read and written in whole vectors."""
    workload = written("X[4, 2]: bool", "Y[i:4; k:2]: bool min= X[i, k]")
    candidates = sample_candidates(BACKEND, workload, TARGET)
    (direct,) = (it for it in candidates if it.sketch.name == "direct")
    check_candidate(BACKEND, direct, TARGET)
