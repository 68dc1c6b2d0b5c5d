"""Calling tuned programs on a CUDA device, shown on a fake driver whose memory is the host's."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import fake_cuda
import numpy as np
import pytest
from autotune_tvm.backend import TVMBackend
from fake_cuda import FakeCuda

from autotune.backends import (
    BuildRequest,
    CudaExecutable,
    CudaProgram,
    KernelLaunch,
    find_cuda_compiler,
)
from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.ir.workloads import Workload, gemm, random_inputs, reference_outputs, softmax
from autotune.runtime.arrays import as_numpy
from autotune.runtime.device import (
    DeviceArray,
    DeviceFailed,
    release_unused,
    shared_device,
)
from autotune.runtime.function import DeviceFunction
from autotune.runtime.loaded import Caller, LoadedKernels
from autotune.targets import CudaError, Target, preset

pytestmark = pytest.mark.usefixtures("cuda")
TARGET = preset("h100")
SMALL = gemm(m=16, n=16, k=16)


def built(workload: Workload, target: Target = TARGET) -> DeviceFunction:
    candidate = fake_cuda.candidates_of(workload, 1)[0] if workload is SMALL else None
    executable = TVMBackend().build(BuildRequest(workload, None, candidate, target, 1))
    assert isinstance(executable, CudaExecutable)
    return DeviceFunction(workload, executable, target)


def on_device(array: Any) -> DeviceArray:
    device = shared_device(TARGET)
    made = device.empty(array.shape, str(array.dtype))
    with device.current() as driver:
        driver.upload(made.pointer, array)
    return made


@pytest.fixture
def product(cuda: FakeCuda) -> tuple[DeviceFunction, dict[str, Any], Any]:
    inputs = random_inputs(SMALL, np.random.default_rng(1))
    return built(SMALL), inputs, reference_outputs(SMALL, inputs)["C"]


def test_tensors_of_the_device_are_read_where_they_lie_and_arrays_copied(
    product: tuple[DeviceFunction, dict[str, Any], Any],
) -> None:
    function, inputs, expected = product
    found = function(*inputs.values())
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert "A: float32[16, 16]" in repr(function)

    left, right = map(on_device, inputs.values())
    out = function(left, B=right)
    assert isinstance(out, DeviceArray)
    assert out.__dlpack_device__() == (2, 0)
    np.testing.assert_array_equal(out.numpy(), found)
    np.testing.assert_array_equal(as_numpy(out), found)
    # What the caller writes there is what the next call reads; outputs are its own.
    doubled = on_device(2 * inputs["A"])
    again = function(doubled, inputs["B"])
    np.testing.assert_allclose(again.numpy(), 2 * expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(out.numpy(), found)

    into = on_device(np.zeros((16, 16), np.float32))
    assert function(left, right, out=into) is into
    np.testing.assert_array_equal(into.numpy(), found)
    host = np.zeros((16, 16), np.float32)
    assert function(*inputs.values(), out=host) is host
    np.testing.assert_array_equal(host, found)


def test_torch_gives_back_what_it_keeps_for_later(cuda: FakeCuda) -> None:
    of_torch = SimpleNamespace(is_initialized=lambda: True, empty_cache=lambda: cuda.set(USED="0"))
    cuda.patch.setitem(sys.modules, "torch", SimpleNamespace(cuda=of_torch))
    device = shared_device(TARGET)
    cuda.set(USED=str(79 << 30))
    assert device.empty((1 << 30,), "uint8").bytes == 1 << 30
    cuda.set(USED=str(79 << 30))
    with pytest.raises(DeviceFailed, match="OUT_OF_MEMORY"):
        device.empty((1 << 37,), "uint8")


class Exported:
    """A tensor of a package that exports those of its current device only, as torch does."""

    current: ClassVar[list[int]] = [3]

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        if self.current[-1] != self.__dlpack_device__()[1]:
            raise BufferError("Can't export tensors on a different CUDA device index")
        return self.array.__dlpack__(stream=stream)


@contextmanager
def made_current(index: int) -> Iterator[None]:
    Exported.current.append(index)
    yield
    Exported.current.pop()


def test_tensors_of_torch_may_be_of_another_device_than_its_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = SimpleNamespace(Tensor=Exported, cuda=SimpleNamespace(device=made_current))
    monkeypatch.setitem(sys.modules, "torch", torch)
    array = on_device(np.ones((2, 3), np.float32))
    with shared_device(TARGET).current():
        found = Caller.of(shared_device(TARGET)).read("A", (2, 3), "float32", Exported(array))
    assert found.address == array.pointer
    assert Exported.current == [3]


def test_wrong_arrays_are_refused_by_name(
    product: tuple[DeviceFunction, dict[str, Any], Any], cuda: FakeCuda
) -> None:
    function, inputs, _ = product
    left, right = inputs.values()
    with pytest.raises(InvalidValueError, match=r"lacks B; the inputs are A: float32\[16, 16\]"):
        function(left)
    with pytest.raises(
        InvalidValueError, match=r"'B' must be float32 of shape \[16, 16\], got fl"
    ):
        function(left, on_device(right[:8].copy()))
    with pytest.raises(InvalidValueError, match="got float64"):
        function(left, right.astype(np.float64))
    there = on_device(left)
    with pytest.raises(InvalidValueError, match="out for 'C' overlaps another one"):
        function(there, right, out=there)
    with pytest.raises(InvalidValueError, match="out has 2 arrays; the outputs of .* are C"):
        function(there, right, out=[there, there])
    host = np.zeros((16, 16), np.float32)
    host.flags.writeable = False
    with pytest.raises(InvalidValueError, match="out for 'C' cannot be written to"):
        function(left, right, out=host)
    elsewhere = type("Elsewhere", (), {"__dlpack_device__": lambda _: (2, 3)})()
    with pytest.raises(InvalidValueError, match="'A' is on cuda:3, and the program on cuda:0"):
        function(elsewhere, right)
    unopened = built(SMALL)
    cuda.set(DEVICES="rtx4090")
    with pytest.raises(UnsupportedTarget, match="'h100' .*is no device of this machine"):
        unopened(left, right)


def test_kernels_with_intermediates_and_misaligned_inputs() -> None:
    workload = softmax(m=4, n=32)
    inputs = random_inputs(workload, np.random.default_rng(1))
    (expected,) = reference_outputs(workload, inputs).values()
    function = built(workload)
    whole = on_device(np.concatenate([np.zeros(1, np.float32), inputs["X"].reshape(-1)]))
    part = DeviceArray.__new__(DeviceArray)
    part.device, part.pointer = whole.device, whole.pointer + 4
    part.shape, part.dtype = (4, 32), "float32"
    for given in (inputs["X"], part):
        found = function(given)
        found = found if isinstance(found, np.ndarray) else found.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_memory_is_given_back_and_faults_are_one_error(cuda: FakeCuda) -> None:
    function = built(SMALL)
    device = shared_device(TARGET)
    inputs = list(map(on_device, random_inputs(SMALL, np.random.default_rng(1)).values()))
    function(*inputs)
    gc.collect()
    with device.current() as driver:
        before = driver.memory()[0]
    for _ in range(3):
        function(*inputs)
    gc.collect()
    with device.current() as driver:
        assert driver.memory()[0] == before
    # Given back once nothing is on it, and opened again when something is to be.
    release_unused()
    assert shared_device(TARGET) is device
    del function, inputs
    release_unused()
    # What is left of a context that others use has none of our streams and events.
    with pytest.raises(CudaError, match="CUDA error 400"), driver.current(device.context):
        driver.destroy_stream(device.stream)
    assert shared_device(TARGET) is not device
    device = shared_device(TARGET)
    with pytest.raises(DeviceFailed, match=r"cuda:0: cuMemAlloc_v2: CUDA error 2 .*OUT_OF_MEMORY"):
        device.empty((1 << 40,), "float32")
    with pytest.raises(DeviceFailed, match="nothing runs on it in this process"), device.current():
        raise_lost()


_BESIDE_BARRIERS = """
extern "C" __global__ void main_kernel(float* __restrict__ C_ptr) {
  __shared__ unsigned long long full[8];
  full[threadIdx.x] = 1;
  C_ptr[threadIdx.x] = full[threadIdx.x];
}
"""


@pytest.mark.parametrize("dynamic", [1024, 48 * 1024, 226 * 1024])
def test_dynamic_shared_memory_is_asked_for_beside_static(dynamic: int) -> None:
    """A kernel has 48 KiB of both together without asking."""
    cubin = find_cuda_compiler().compile(_BESIDE_BARRIERS, "sm_90a", ())
    launch = KernelLaunch("main_kernel", (1, 1, 1), (8, 1, 1), dynamic, ("C",))
    out = on_device(np.zeros(8, np.float32))
    with shared_device(TARGET).current() as driver:
        loaded = LoadedKernels.load(driver, CudaProgram(cubin, (launch,)), {"C"})
        loaded.launch(loaded.parameters({"C": out.pointer}), out.device.stream)
        out.device.synchronize()
        loaded.unload()
    np.testing.assert_array_equal(out.numpy(), np.ones(8))


def raise_lost() -> None:
    raise CudaError("cuStreamSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
