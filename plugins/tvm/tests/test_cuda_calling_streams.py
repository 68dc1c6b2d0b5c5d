"""Calls of a tuned program on the streams of torch: in order, and not waited for.

The fake driver begins what is on a stream as late as it may, and mixes it with that of others.
"""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from fake_cuda import FakeCuda
from fake_torch import WAITING, FakeTorch

from autotune.backends import BuildRequest, CudaExecutable
from autotune.errors import InvalidValueError
from autotune.ir.workloads import gemm, reference_outputs, softmax
from autotune.measure.devices.shared import DeviceFailed, shared_device
from autotune.targets import preset
from autotune.tuning.device_function import DeviceFunction

pytestmark = pytest.mark.usefixtures("cuda")
TARGET = preset("h100")
# Untuned, it has intermediate arrays, which its calls share.
SOFTMAX, PRODUCT = softmax(m=4, n=32), gemm(m=8, n=8, k=8)
X = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
A, B = np.random.default_rng(2).standard_normal((2, 8, 8)).astype(np.float32)


def built(workload: Any) -> DeviceFunction:
    executable = TVMBackend().build(BuildRequest(workload, None, None, TARGET, 1))
    assert isinstance(executable, CudaExecutable)
    return DeviceFunction(workload, executable, TARGET)


def wanted(x: Any) -> Any:
    return next(iter(reference_outputs(SOFTMAX, {"X": x}).values()))


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def shifted(torch: FakeTorch, array: Any) -> Any:
    """A tensor that begins four bytes behind a multiple of 16."""
    whole = torch.tensor(np.concatenate([np.zeros(1, np.float32), array.reshape(-1)]))
    return torch.part(whole, 4, array.shape)


def test_the_host_waits_for_nothing(
    torch: FakeTorch, counted: Callable[[], dict[str, int]]
) -> None:
    function = built(SOFTMAX)
    torch.stream = torch.new_stream()
    function(torch.tensor(X))
    given = torch.tensor(3 * X)
    counted()
    found = function(given)
    assert not set(WAITING) & set(counted())
    assert not np.allclose(torch.read(found), wanted(3 * X)), "nothing was left to do"
    shared_device(TARGET).driver.synchronize(torch.stream)
    close(torch.read(found), wanted(3 * X))


@pytest.mark.promise(
    "a tuned CUDA program is called on two streams of torch at once",
    "its calls follow one another, and each gives its own output",
)
def test_calls_on_several_streams_follow_one_another(torch: FakeTorch) -> None:
    function, driver = built(SOFTMAX), shared_device(TARGET).driver
    streams = [torch.new_stream(), torch.new_stream(), 0]
    found = []
    for number, factor in enumerate((1, 2, 3, 4, 5)):
        torch.stream = streams[number % 3]
        found.append(function(torch.tensor(factor * X)))
    # Arrays of the host are computed in between, and waited for.
    close(function(7 * X), wanted(7 * X))
    torch.stream = streams[0]
    found.append(function(torch.tensor(6 * X)))
    for stream in reversed(streams):
        driver.synchronize(stream)
    for factor, tensor in enumerate(found, 1):
        close(torch.read(tensor), wanted(factor * X))


def test_outputs_are_written_where_the_caller_says(
    torch: FakeTorch, counted: Callable[[], dict[str, int]]
) -> None:
    """Tensors that kernels cannot read or write in place are copied, when the stream is there."""
    function, driver = built(SOFTMAX), shared_device(TARGET).driver
    torch.stream = torch.new_stream()
    function(torch.tensor(X))
    for number, make in enumerate((torch.tensor, lambda array: shifted(torch, array)), 2):
        given, out = make(number * X), make(np.zeros_like(X))
        counted()
        assert function(given, out=out) is out
        assert not set(WAITING) & set(counted())
        assert not torch.read(out).any(), "nothing was left to do"
        driver.synchronize(torch.stream)
        close(torch.read(out), wanted(number * X))
    gaps = torch.tensor(X)
    gaps.order = False
    close(torch.read_done(function(gaps)), wanted(X))
    with pytest.raises(InvalidValueError, match="out for .* is not contiguous"):
        function(torch.tensor(X), out=gaps)
    there = torch.tensor(X)
    with pytest.raises(InvalidValueError, match="out for .* overlaps another one"):
        function(there, out=there)
    with pytest.raises(InvalidValueError, match=r"must be float32 of shape \[4, 32\]"):
        function(torch.tensor(A))


def test_with_arrays_of_the_host_a_call_has_ended(torch: FakeTorch) -> None:
    function = built(PRODUCT)
    torch.stream = torch.new_stream()
    # What torch has begun on a tensor comes first.
    left = torch.empty((8, 8), dtype=torch.float32, device=("cuda", 0))
    with shared_device(TARGET).current() as driver:
        driver.begin_upload(left.data_ptr(), A, torch.stream)
    found = function(left, B)
    np.testing.assert_allclose(found.numpy(), A @ B, rtol=1e-4, atol=1e-4)
    into = torch.tensor(np.zeros_like(A))
    assert function(A, 2 * B, out=into) is into
    np.testing.assert_allclose(torch.read(into), 2 * A @ B, rtol=1e-4, atol=1e-4)


def test_torch_records_a_program(torch: FakeTorch) -> None:
    function, driver = built(SOFTMAX), shared_device(TARGET).driver
    torch.stream = torch.new_stream()
    x = torch.tensor(X)
    driver.begin_capture(torch.stream)
    with pytest.raises(InvalidValueError, match="when it has been called before"):
        function(x)
    driver.destroy_graph(driver.end_capture(torch.stream))
    function(x)
    driver.synchronize(torch.stream)
    driver.begin_capture(torch.stream)
    found = function(x)
    with pytest.raises(InvalidValueError, match="with tensors of the device only"):
        function(x, out=np.zeros_like(X))
    graph = driver.end_capture(torch.stream)
    for factor in (1, 4):
        torch.write(x, factor * X)
        driver.launch_graph(graph, torch.stream)
        driver.synchronize(torch.stream)
        close(torch.read(found), wanted(factor * X))


def test_what_is_on_its_way_is_freed_afterwards(torch: FakeTorch) -> None:
    function = built(SOFTMAX)
    torch.stream = torch.new_stream()
    found = function(torch.tensor(X))
    loaded = weakref.ref(function._loaded)  # type: ignore[arg-type]
    del function
    gc.collect()
    assert loaded() is None
    close(torch.read_done(found), wanted(X))


def test_faults_are_those_of_whatever_waits(
    cuda: FakeCuda, fake_driver: Path, tmp_path: Path
) -> None:
    # A driver of its own, whose context is lost.
    driver = shutil.copy(fake_driver, tmp_path / "libcuda.so.1")
    cuda.patch.setenv("AUTOTUNE_LIBCUDA", str(driver))
    cuda.fail(1, "error 700")
    function, device = built(SOFTMAX), shared_device(TARGET)
    with device.driver.current(device.context):
        torch = FakeTorch(device, cuda.patch)
        torch.stream = torch.new_stream()
        given = torch.tensor(X)
        function(given)
        with pytest.raises(DeviceFailed, match="CUDA error 700"), device.current() as known:
            known.synchronize(torch.stream)
        with pytest.raises(DeviceFailed, match="700.*nothing runs on it in this process"):
            function(given)
        del function, given
        gc.collect()
