"""Printed programs compute what the reference does, and TVM lowers them as they are."""

from __future__ import annotations

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.compiler import PRINTED
from autotune_tvm.emit import module_for
from autotune_tvm.printed import printed_functions
from printed_workloads import TARGETS, ParallelSuite, PrintedSuite, drawn
from tvm import tirx
from written import written

from autotune.backends import BuildRequest
from autotune.ir.workloads import gemm, softmax
from autotune.sketches import prepacked_operands
from autotune.targets import Target, detect_cpu, preset
from autotune.testing.programs import (
    check_candidate,
    check_program,
    request_for,
    sample_candidates,
)

BACKEND = TVMBackend()


class TestPrinted(PrintedSuite, ParallelSuite):
    @pytest.fixture
    def backend(self) -> TVMBackend:
        return BACKEND


def test_an_imported_function_keeps_its_parameters(target: Target) -> None:
    """In their order, with their names and shapes: what is printed stands in its place."""
    made = module_for(gemm(m=24, n=32, k=16))["main"]
    left, right, result = made.params
    product = tirx.PrimFunc([result, right, left], made.body)
    imported = BACKEND.import_program(product)
    for candidate in sample_candidates(BACKEND, imported.workload, target):
        request = BuildRequest(imported.workload, imported.program, candidate, target, 1)
        parameters = printed_functions(request).kernel.params
        before = product.params
        assert [str(it.name) for it in parameters] == [str(it.name) for it in before]
        assert [it.ty.shape for it in parameters] == [it.ty.shape for it in before]
        check_candidate(BACKEND, candidate, target, program=imported.program)


def test_packed_constants_take_the_places_of_the_constants(target: Target) -> None:
    workload = gemm(m=12, n=48, k=24).with_constants("B")
    candidates = sample_candidates(BACKEND, workload, target)
    packing = [it for it in candidates if prepacked_operands(it)]
    assert packing
    for candidate in packing:
        functions = printed_functions(request_for(candidate, target))
        (packer,) = functions.packers.values()
        first, *packed = packer.params
        assert str(first.name) == "B" and list(functions.packers) == [1]
        names = [str(it.name) for it in functions.kernel.params]
        assert names == ["A", *(str(it.name) for it in packed), "C"]
        check_candidate(BACKEND, candidate, target)


def test_nothing_but_the_call_is_left_to_tvm(target: Target) -> None:
    """Loops, vectors and names of a printed function are those of the lowered one."""
    for candidate in sample_candidates(BACKEND, softmax(m=8, n=32), target):
        request = request_for(candidate, target)
        lowered = BACKEND.lower(request).program.module
        text = str(printed_functions(request).kernel.script())
        found = str(lowered.script())
        for part in ("T.parallel(", " in range(", "T.Shuffle(", "T.Select("):
            assert found.count(part) == text.count(part), candidate.sketch.name


def test_values_that_use_each_other_twice_are_built_at_once() -> None:
    """TVM's analyzer would take a time that grows by half for each use."""
    workload = softmax(m=4, n=64, dtype="float16")
    for candidate in drawn(BACKEND, workload, preset(TARGETS[0]), 0):
        script = printed_functions(request_for(candidate, detect_cpu())).kernel.script()
        assert "values_float32" in script, candidate.sketch.name


@pytest.mark.parametrize(
    ("sign", "number", "dtype"),
    [("+", -128, "int8"), ("+", -3, "int32"), ("-", 0, "int32"), ("+", 100, "int64")],
)
def test_sums_of_integers_wrap_around(sign: str, number: int, dtype: str, target: Target) -> None:
    """Numpy's sums do so; and constants may be negative."""
    workload = written(f"X[40]: {dtype}", f"Y[i:40]: {dtype} = n {sign} X[i]", n=number)
    limits = np.iinfo(dtype)
    inputs = {"X": np.resize(np.array([limits.min, limits.max, 0, 1, -1], dtype), 40)}
    for candidate in sample_candidates(BACKEND, workload, target):
        with np.errstate(over="ignore"):
            check_candidate(BACKEND, candidate, target, inputs)


def test_default_programs_go_through_tvms_own_passes(target: Target) -> None:
    workload = gemm(m=12, n=16, k=8)
    module = module_for(workload)
    assert PRINTED not in (module["main"].attrs or {})
    check_program(BACKEND, BuildRequest(workload, None, None, target, 1))
