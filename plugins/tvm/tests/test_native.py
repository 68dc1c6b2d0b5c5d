"""Compiled functions called and timed without the interpreter."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from autotune_tvm.executable import latest_error, native_call

from autotune.backends import (
    BuildRequest,
    NativeCallFailed,
    aligned_copy,
    aligned_empty,
    time_native_call,
)
from autotune.backends.backend import Array
from autotune.targets import Target


def function(body: str, parameters: str) -> Any:
    """A compiled function of TVM's own script."""
    import tvm

    text = f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def main({parameters}):
{body}
"""
    built = tvm.compile(tvm.script.from_source(text), target=tvm.target.Target("llvm"))
    return built.mod["main"]


def add_one(dtype: str) -> Any:
    one = "T.bool(True)" if dtype == "bool" else f'T.Cast("{dtype}", 1)'
    value = one if dtype == "bool" else f"A[i, j] + {one}"
    body = f"""
        for i, j in T.grid(3, 5):
            B[i, j] = {value}
"""
    return function(body, f'A: T.Buffer((3, 5), "{dtype}"), B: T.Buffer((3, 5), "{dtype}")')


@pytest.fixture(scope="module")
def float_function() -> Any:
    return add_one("float32")


DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64", "bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_type_where_they_lie(dtype: str) -> None:
    given, result = np.ones((3, 5), dtype), aligned_empty((3, 5), dtype)
    result[...] = 0
    time_native_call(native_call(add_one(dtype), [aligned_copy(given), result]), 1)
    np.testing.assert_array_equal(result, np.full((3, 5), 1 if dtype == "bool" else 2, dtype))


def test_keeps_alive_what_it_needs(float_function: Any) -> None:
    def made() -> tuple[Any, Array]:
        result = aligned_empty((3, 5), "float32")
        given = aligned_copy(np.full((3, 5), 7, "float32"))
        return native_call(add_one("float32"), [given, result]), result

    call, result = made()
    gc.collect()
    taken = [aligned_copy(np.zeros((3, 5), "float32")) for _ in range(20)]
    result[...] = 0
    time_native_call(call, 5)
    assert (result == 8).all()
    assert not any(array.any() for array in taken)


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [((4, 5), "float32", "A.shape"), ((3, 5), "float64", "dtype"), ((15,), "float32", "ndim")],
)
def test_a_failure_is_explained(
    float_function: Any, shape: tuple[int, ...], dtype: str, said: str
) -> None:
    arrays = [aligned_empty(shape, dtype), aligned_empty((3, 5), "float32")]
    call = native_call(float_function, arrays)
    for _ in range(2):
        with pytest.raises(NativeCallFailed, match=f"returned -1: .*Error: .*{said}"):
            time_native_call(call, 3)
    assert latest_error() == "TVM gives no reason"


def test_other_strides_are_refused_by_the_program(float_function: Any) -> None:
    wrong = aligned_empty((3, 10), "float32")[:, ::2]
    call = native_call(float_function, [wrong, aligned_empty((3, 5), "float32")])
    with pytest.raises(NativeCallFailed, match="compact"):
        time_native_call(call, 1)


def test_the_backend_times_it_as_it_runs_it(backend: TVMBackend, target: Target) -> None:
    from autotune.ir.workloads import elementwise

    workload = elementwise(m=4, n=16)
    executable = backend.build(BuildRequest(workload, None, None, target, 1))
    inputs = [aligned_copy(np.full(t.shape, -1, t.dtype)) for t in workload.inputs]
    outputs = [aligned_empty((4, 16), "float32")]
    call = executable.bind(inputs, outputs)
    call.run()
    right = outputs[0].copy()
    call.poison()
    assert time_native_call(call.native(), 3) > 0
    np.testing.assert_array_equal(outputs[0], right)
    assert call.time(3) > 0
