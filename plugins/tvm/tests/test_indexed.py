"""Reads at quotients and remainders, and where data says: imported, scheduled, computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.emit import module_for
from autotune_tvm.importer import import_module, text_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from indexed_workloads import INDEXED_WORKLOADS
from random_indices import quasi_affine
from thinning import thinned
from tvm import te, tirx, topi

from autotune.backends import BuildRequest
from autotune.errors import UnsupportedWorkload
from autotune.ir.expressions import Gather, IndexValue, IntExpr, Load, index_bounds, var
from autotune.ir.workloads import Axis, Stage, Tensor, Workload
from autotune.sketches import CandidateBatch
from autotune.targets import Target, detect_cpu
from autotune.testing.programs import check_candidate, check_program, sample_candidates
from autotune.testing.step_suite import StepSuite


class TestIndexedReads(StepSuite):
    """Nest, features and program of every sketch."""

    @pytest.fixture
    def backend(self, backend: TVMBackend) -> TVMBackend:
        return backend

    @pytest.fixture(params=thinned(INDEXED_WORKLOADS, 2), ids=lambda workload: workload.name)
    def batch(
        self, request: pytest.FixtureRequest, backend: TVMBackend, target: Target
    ) -> CandidateBatch:
        return CandidateBatch.of(sample_candidates(backend, request.param, target))


def data(shape: tuple[int, ...], name: str = "X", dtype: str = "float32") -> Any:
    return te.placeholder(shape, dtype, name)


def operators() -> dict[str, tuple[list[Any], Any]]:
    """Functions of TVM's operator library: arguments and result."""
    x, w, table = data((1, 4, 5, 6)), data((4, 3, 4, 4), "W"), data((30, 32), "T")
    ids, place, mask = data((7,), "I", "int64"), data((), "S", "int64"), data((6, 32), "M", "bool")
    heads, bags = data((1, 12, 64), "H"), data((7, 20), "I", "int32")
    member = te.reduce_axis((0, 20), "k")
    strides, padding = (2, 2), (1, 1, 1, 1)
    return {
        "transposed convolution": (
            [x, w],
            topi.nn.conv2d_transpose_nchw(x, w, strides, padding, "float32", (0, 0)),
        ),
        "bags": (
            [table, bags],
            te.compute((7, 32), lambda i, j: te.max(table[bags[i, member], j], axis=member)),
        ),
        "merged heads": ([heads], topi.reshape(topi.reshape(heads, (12, 4, 16)), (48, 16))),
        "shuffled pixels": ([x], topi.nn.depth_to_space(x, 2, mode="CRD")),
        "embedding": ([table, ids], topi.take(table, ids, 0, mode="fast")),
        "clipped": ([table, ids], topi.take(table, ids, 0, mode="clip")),
        "one row": ([table, place], topi.take(table, place, 0, mode="fast")),
        "by several": ([table, ids], topi.adv_index(table, [ids, ids])),
        "resized": ([x], topi.image.resize2d(x, (0.0,) * 4, (10, 12), layout="NCHW")),
        "nearest": (
            [x],
            topi.image.resize2d(
                x, (0.0,) * 4, (10, 12), method="nearest_neighbor", rounding_method="round"
            ),
        ),
        # In the middle between two elements, as far as single precision tells.
        "nearest, between": (
            [x],
            topi.image.resize2d(
                x, (0.0,) * 4, (13, 7), method="nearest_neighbor", rounding_method="round"
            ),
        ),
        "next": (
            [x],
            topi.image.resize2d(
                x, (0.0,) * 4, (9, 7), method="nearest_neighbor", rounding_method="ceil"
            ),
        ),
        "flat": ([table, ids], topi.take(table, ids, mode="clip")),
        "pooled": ([x], topi.nn.pool2d(x, (3, 3), strides, (1, 1), (0, 1, 2, 0), "avg", True)),
        "number": ([place], topi.add(place, tirx.const(1, "int64"))),
        "truth": ([mask], topi.cast(topi.logical_not(mask), "float32")),
        "cast to truth": ([ids], topi.cast(ids, "bool")),
        "remainder": ([ids], topi.mod(ids, tirx.const(3, "int64"))),
    }


@pytest.mark.parametrize("name", operators())
def test_operators_are_imported(name: str, backend: TVMBackend, target: Target) -> None:
    arguments, result = operators()[name]
    workload, module = import_module(te.create_prim_func([*arguments, result]))
    *_, candidate = sample_candidates(backend, workload, target)
    check_candidate(backend, candidate, target, program=text_of(module))


def test_reshapes_that_are_affine_are_read_so() -> None:
    x = data((12, 64))
    workload, _ = import_module(te.create_prim_func([x, topi.reshape(x, (12, 4, 16))]))
    (load,) = workload.stages[0].loads
    axes = [axis.name for axis in workload.stages[0].axes]
    assert [form.terms for form in workload.stages[0].forms(load)] == [{}, {}]
    assert load.indices[1] == var(axes[1]) * 16 + var(axes[2])


def test_data_says_where_to_read() -> None:
    table, ids = data((30, 32), "T"), data((7,), "I", "int64")
    taken = te.compute((7, 32), lambda i, j: table[ids[i], j // 2], "Y")
    workload, _ = import_module(te.create_prim_func([table, ids, taken]))
    i, j = (var(axis.name) for axis in workload.stages[0].axes)
    assert workload.stages[0].body == Gather("T", (Load("I", (i,)), IndexValue(j // 2)))


def test_indices_that_cannot_be_given_are_refused() -> None:
    table, ids = data((30, 32), "T"), data((7,), "I", "int64")
    beside = te.compute((7, 32), lambda i, j: table[ids[i] + 30, j], "Y")
    with pytest.raises(UnsupportedWorkload, match="stage 'Y' reads beside 'T', also where all"):
        import_module(te.create_prim_func([table, ids, beside]))


def test_truth_values_are_compared(check: Callable[..., Any]) -> None:
    """Alone, TVM makes a program of this that LLVM refuses."""
    left, right = data((5, 6), "A", "bool"), data((5, 6), "B", "bool")
    same = te.compute((5, 6), lambda i, j: tirx.EQ(left[i, j], right[i, j]), "Y")
    workload, module = import_module(te.create_prim_func([left, right, same]))
    check(workload, text_of(module))


BACKEND, TARGET = TVMBackend(), detect_cpu()


@settings(max_examples=15)
@example(indices=[var("j") % 2 % 2, var("i")], extents=(4, 2), seed=0)
@given(
    indices=st.lists(quasi_affine(("i", "j"), least=0), min_size=1, max_size=2),
    extents=st.tuples(st.integers(1, 5), st.integers(1, 33)),
    seed=st.integers(0, 9),
)
def test_random_quasi_affine_maps(
    indices: list[IntExpr], extents: tuple[int, int], seed: int
) -> None:
    """Written to TVM, imported again and scheduled: all compute what numpy does.

    TVM 0.27 itself is wrong where what is divided falls along an axis, as in ``(1 - j) % 2``.
    """
    ranges = dict(zip("ij", extents, strict=True))
    bounds = [index_bounds(index, ranges) for index in indices]
    shape = tuple(high - low + 1 for low, high in bounds)
    read = Load("X", tuple(i - low for i, (low, _) in zip(indices, bounds, strict=True)))
    axes = tuple(Axis(name, extent) for name, extent in ranges.items())
    stage = Stage(Tensor("Y", extents, "float32"), axes, read)
    workload = Workload("map", (Tensor("X", shape, "float32"),), (stage,), ("Y",))
    check_program(BACKEND, BuildRequest(workload, None, None, TARGET, 1))
    for candidate in sample_candidates(BACKEND, workload, TARGET, seed=seed):
        check_candidate(BACKEND, candidate, TARGET)
    imported, module = import_module(module_for(workload))
    for candidate in sample_candidates(BACKEND, imported, TARGET, seed=seed):
        check_candidate(BACKEND, candidate, TARGET, program=text_of(module))
