"""Least time of an untuned program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import least_seconds
from autotune_tvm.scheduled import program_of
from thinning import thinned
from tvm import te, topi
from tvm.s_tir import Schedule

from autotune.backends import BuildRequest, aligned_copy, aligned_empty, serial_seconds
from autotune.ir.workloads import Workload, conv2d, elementwise, gemm, random_inputs
from autotune.targets import detect_cpu


def function_of(*tensors: Any) -> Any:
    return te.create_prim_func(list(tensors))


def test_additions_that_wait_for_one_another_are_counted() -> None:
    x, w = te.placeholder((16, 300), name="x"), te.placeholder((8, 300), name="w")
    product = function_of(x, w, topi.nn.relu(topi.nn.dense(x, w)))
    assert least_seconds(product) == pytest.approx(0.3e-9 * 16 * 8 * 300)
    image, kernel = te.placeholder((1, 64, 8, 8)), te.placeholder((4, 64, 3, 3))
    convolution = function_of(image, kernel, topi.nn.conv2d_nchw(image, kernel, 1, 1, 1))
    assert least_seconds(convolution) == pytest.approx(0.3e-9 * 4 * 8 * 8 * 64 * 9)


def test_nothing_is_said_of_what_llvm_may_vectorise() -> None:
    image, window = te.placeholder((1, 64, 8, 8)), te.placeholder((64, 1, 3, 3))
    short = function_of(image, window, topi.nn.depthwise_conv2d_nchw(image, window, 1, 1, 1))
    whole = te.placeholder((16, 300), dtype="int32"), te.placeholder((8, 300), dtype="int32")
    integers = function_of(*whole, topi.nn.dense(*whole))
    largest = function_of(image, topi.max(image, axis=1))
    for function in (short, integers, largest):
        assert least_seconds(function) == 0.0
    assert serial_seconds(elementwise(m=8, n=512)) == 0.0
    assert serial_seconds(gemm(m=8, n=8, k=512, dtype="int8")) == 0.0


def test_a_sum_whose_loops_are_not_the_innermost_ones_says_nothing() -> None:
    x, w = te.placeholder((16, 300), name="x"), te.placeholder((8, 300), name="w")
    schedule = Schedule(function_of(x, w, topi.nn.dense(x, w)))
    i, j, k = schedule.get_loops(schedule.get_sblock("T_matmul_NT"))
    schedule.reorder(k, i, j)
    assert least_seconds(schedule.mod["main"]) == 0.0


@pytest.mark.parametrize(
    "workload", thinned([gemm(m=96, n=96, k=320), conv2d(h=14, w=14, ci=48, co=48)], 2)
)
def test_no_untuned_program_is_faster(workload: Workload) -> None:
    backend, target = TVMBackend(), detect_cpu()
    least = backend.least_untuned(workload)
    request = BuildRequest(workload, None, None, target, 1)
    executable = backend.build(request)
    drawn = random_inputs(workload, np.random.default_rng(0))
    inputs = [aligned_copy(array) for array in drawn.values()]
    outputs = [stage.output for stage in workload.stages if stage.name in workload.outputs]
    call = executable.bind(inputs, [aligned_empty(it.shape, it.element.dtype) for it in outputs])
    call.run()
    assert 0.0 < least <= min(call.time(1) for _ in range(5))
    imported = backend.import_program(program_of(workload, None)["main"])
    assert imported.least_untuned == pytest.approx(least)
