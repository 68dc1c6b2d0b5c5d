"""The trace space: its contract, what its schedules compute, and who cannot read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from attrs import evolve
from autotune_tvm import importer
from autotune_tvm.backend import TVMBackend
from autotune_tvm.trace.space import TraceSpace, make_trace_space
from renamed_workloads import respelled
from tvm import te, topi

from autotune.backends import BuildRequest, InvalidSchedule
from autotune.errors import InvalidValueError, UnsupportedTarget, UnsupportedWorkload
from autotune.ir.workloads import Workload, gemm, softmax
from autotune.nest import derive_nest
from autotune.sketches import Candidate, ProductEquals
from autotune.spaces import SpaceContext
from autotune.spaces.search_space import SearchSpace
from autotune.targets import Target, preset
from autotune.testing.programs import check_program
from autotune.testing.search_space_suite import SearchSpaceFactory, SearchSpaceSuite

MACHINE = preset("skylake-avx512-4core")
GEMM = gemm(m=12, n=16, k=8)


def space_of(workload: Workload, program: str | None = None) -> TraceSpace:
    return TraceSpace(workload, program, MACHINE, 2)


class TestSpace(SearchSpaceSuite):
    @pytest.fixture
    def search_space_factory(self) -> SearchSpaceFactory:
        def make() -> SearchSpace:
            return space_of(softmax(m=4, n=6))

        return make


def test_decisions_of_the_rules_are_the_parameters() -> None:
    space = space_of(GEMM)
    assert [sketch.name for sketch in space.sketches()] == ["trace 1", "trace 2", "trace 3"]
    for sketch in space.sketches():
        stems = {name.rpartition(".")[0] for name in sketch.param_names}
        assert stems == {"", "C.i", "C.j", "C.k"}
        products = [it for it in sketch.constraints if isinstance(it, ProductEquals)]
        assert [it.total.value for it in products] == [12, 16, 8]


@pytest.mark.parametrize("workload", [GEMM, softmax(m=6, n=8)], ids=["gemm", "softmax"])
def test_schedules_compute_what_the_workload_says(
    check: Callable[..., None], workload: Workload
) -> None:
    space = space_of(workload)
    sample = space.sample(len(space.sketches()), np.random.default_rng(0))
    for candidate in sample:
        check(workload, candidate=candidate, threads=2)


def imported(*names: str) -> tuple[Workload, str]:
    """A product of matrices with relu as a TIR function, its inputs called so."""
    shapes = (12, 8), (8, 16)
    x, w = (te.placeholder(it, "float32", name) for it, name in zip(shapes, names, strict=True))
    product = topi.nn.relu(topi.matmul(x, w))
    workload, module = importer.import_module(te.create_prim_func([w, x, product]))
    return workload, importer.text_of(module)


def test_a_schedule_is_applied_to_an_equal_program_under_other_names(
    backend: TVMBackend, target: Target
) -> None:
    workload, program = imported("lv3", "lv4")
    other, same_program = imported("lv70", "a")
    assert workload.digest == other.digest and workload.names != other.names
    space = space_of(workload, program)
    for candidate in space.sample(3, np.random.default_rng(1)):
        check_program(backend, BuildRequest(workload, program, candidate, target, 2))
        moved = candidate.on(other)
        assert moved.digest == candidate.digest
        check_program(backend, BuildRequest(other, same_program, moved, target, 2))


REORDERED = """
@T.prim_func(s_tir=True)
def f(
    A: T.Buffer((12, 8), "float32"),
    B: T.Buffer((8, 16), "float32"),
    C: T.Buffer((12, 16), "float32"),
):
    for k, j, i in T.grid(8, 16, 12):
        with T.sblock("product"):
            vk, vj, vi = T.axis.remap("RSS", [k, j, i])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""


def test_a_schedule_is_applied_to_an_equal_program_with_loops_in_another_order(
    backend: TVMBackend, target: Target
) -> None:
    other, module = importer.import_module(tvm.script.from_source(REORDERED))
    assert other.digest == GEMM.digest
    for candidate in space_of(GEMM).sample(3, np.random.default_rng(1)):
        request = BuildRequest(other, importer.text_of(module), candidate.on(other), target, 2)
        check_program(backend, request)


@pytest.mark.parametrize("seed", range(3))
def test_equal_workloads_have_equal_sketches(seed: int) -> None:
    digests = {sketch.digest for sketch in space_of(GEMM).sketches()}
    assert {sketch.digest for sketch in space_of(respelled(GEMM, seed)).sketches()} == digests


def test_what_cannot_be_applied_is_an_invalid_schedule(
    backend: TVMBackend, target: Target
) -> None:
    sketch = space_of(GEMM).sketches()[0]
    config = dict.fromkeys(sketch.param_names, 1)
    for values, said in (
        (config | {"unroll_explicit": 17}, "17 is none of the choices 0, 16, 64, 512"),
        (config | {"unroll_explicit": 16, "C.i.1": 0}, "are not the factors of 4 loops"),
    ):
        candidate = Candidate.from_config(sketch, values)
        with pytest.raises(InvalidSchedule, match=said):
            backend.lower(BuildRequest(GEMM, None, candidate, target, 2))


def test_there_is_no_symbolic_nest() -> None:
    sketch = space_of(GEMM).sketches()[0]
    with pytest.raises(InvalidValueError, match="'trace 1' has no symbolic loop nest"):
        derive_nest(sketch)


def test_whom_it_is_not_for() -> None:
    with pytest.raises(UnsupportedTarget, match="for CPUs only; target 'a100'"):
        TraceSpace(GEMM, None, preset("a100"), 2)
    limits = TVMBackend().limits(MACHINE)
    context = SpaceContext(workload=GEMM, target=MACHINE, limits=limits, backend="tvm")
    with pytest.raises(UnsupportedWorkload, match="backend 'mlir' cannot replay"):
        make_trace_space(evolve(context, backend="mlir"))
    with pytest.raises(InvalidValueError, match="has no option 'rules'"):
        make_trace_space(evolve(context, options={"rules": []}))
