"""GPUs as a driver describes them."""

from __future__ import annotations

import ctypes
from typing import Any, cast

import pytest
from attrs import evolve

from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.targets import (
    CudaDriver,
    cuda_devices,
    detect_cuda,
    load_driver,
    matching_device,
    preset,
    resolve,
)
from autotune.targets.cuda_driver import DRIVER_VARIABLE, CudaError

H100 = {
    1: 1024,
    8: 49152,
    10: 32,
    12: 65536,
    13: 1_980_000,
    16: 132,
    20: 0,
    36: 2_619_000,
    37: 5120,
    38: 50 << 20,
    39: 2048,
    75: 9,
    76: 0,
    81: 228 << 10,
    82: 65536,
    106: 32,
}
RTX_4090 = {**H100, 13: 2_520_000, 16: 128, 36: 10_501_000, 37: 384, 75: 8, 76: 9, 39: 1536}
H200 = {**H100, 36: 3_201_000, 37: 6016}


class Driver:
    """Functions that detection asks of a driver."""

    def __init__(self, *devices: tuple[str, dict[int, int]]) -> None:
        self._devices = devices

    def device_count(self) -> int:
        return len(self._devices)

    def device(self, index: int) -> int:
        return index

    def name(self, device: int) -> str:
        return self._devices[device][0]

    def total_memory(self, device: int) -> int:
        return 80 << 30

    def attribute(self, device: int, attribute: int) -> int:
        return self._devices[device][1][attribute]


def driver(*devices: tuple[str, dict[int, int]]) -> CudaDriver:
    return cast("CudaDriver", Driver(*devices))


TWO = driver(("NVIDIA GeForce RTX 4090", RTX_4090), ("NVIDIA H100 80GB HBM3", H100))


def test_a_device_that_a_preset_describes_is_that_preset() -> None:
    assert detect_cuda("cuda", driver(("NVIDIA H100 80GB HBM3", H100))) == preset("h100")
    assert detect_cuda("cuda", driver(("NVIDIA H200", H200))) == preset("h200")


def test_another_device_is_described_by_what_the_driver_says() -> None:
    target = detect_cuda("cuda", TWO)
    assert (target.name, target.processor) == ("nvidia-geforce-rtx-4090", "sm_89")
    assert target.multiprocessors == 128
    assert target.memory_bandwidth == pytest.approx(1.008e12, rel=1e-3)
    assert target.peak_flops["float32"] == pytest.approx(82.6e12, rel=1e-2)
    assert target.max_threads_per_multiprocessor == 1536


def test_tensor_cores_are_as_fast_as_a_cycle_of_a_known_gpu_says() -> None:
    """Of the data sheet of H100 PCIe: 756 Tflop/s for halves, 51 for float32."""
    facts = {**H100, 13: 1_755_000, 16: 114, 36: 1_593_000}
    target = detect_cuda("cuda", driver(("NVIDIA H100 PCIe", facts)))
    assert target.name == "nvidia-h100-pcie"
    assert target.tensor_peak_flops["float16"] == pytest.approx(756e12, rel=2e-2)
    assert target.peak_flops["float32"] == pytest.approx(51.2e12, rel=2e-2)
    assert target.tensor_core_shapes == preset("h100").tensor_core_shapes
    assert detect_cuda("cuda", TWO).tensor_peak_flops == {}


def test_devices_are_told_apart_by_number() -> None:
    second = detect_cuda("cuda:1", TWO)
    assert second == evolve(preset("h100"), name="h100:1")
    assert second.fingerprint == preset("h100").fingerprint
    assert matching_device(second, TWO).index == 1
    with pytest.raises(InvalidValueError, match=r"no device 'cuda:2'; there are: cuda:0 .*cuda:1"):
        detect_cuda("cuda:2", TWO)


def test_a_preset_means_the_first_device_like_it_and_no_other() -> None:
    assert matching_device(preset("h100"), TWO).index == 1
    alone = driver(("NVIDIA GeForce RTX 4090", RTX_4090))
    why = r"'h100' .* is no device of this machine: cuda:0 is NVIDIA GeForce RTX 4090 \(sm_89\)"
    with pytest.raises(UnsupportedTarget, match=why):
        matching_device(preset("h100"), alone)
    # Of one architecture, and as wide: only the memory differs.
    with pytest.raises(UnsupportedTarget, match="'h200'"):
        matching_device(preset("h200"), driver(("NVIDIA H100", H100)))


def test_a_device_that_allows_no_computing_is_refused() -> None:
    assert not cuda_devices(TWO)[0].prohibited
    with pytest.raises(UnsupportedTarget, match="compute mode 'prohibited'"):
        detect_cuda("cuda", driver(("NVIDIA H100", {**H100, 20: 2})))


def test_no_driver_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DRIVER_VARIABLE, "/nonexistent/libcuda.so.1")
    with pytest.raises(UnsupportedTarget, match="there is no CUDA device here") as refused:
        resolve("cuda")
    assert "\n" not in str(refused.value)
    with pytest.raises(UnsupportedTarget, match="there is no CUDA device here"):
        resolve("cuda:1")


def test_a_library_without_a_function_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    # Any library that has none of them.
    monkeypatch.setenv(DRIVER_VARIABLE, "libc.so.6")
    with pytest.raises(UnsupportedTarget, match="too old: .*cuInit"):
        load_driver()


class Library:
    """A driver's library all functions of which fail."""

    def __init__(self, code: int) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        kind = ctypes.CFUNCTYPE(ctypes.c_int)
        function = kind(lambda: self._code)
        self.__dict__[name] = function
        return function


@pytest.mark.parametrize(
    ("code", "loses"),
    [(1, False), (2, False), (701, False), (214, True), (700, True), (702, True), (716, True)],
)
def test_which_errors_lose_the_context(code: int, loses: bool) -> None:
    failing = CudaDriver(Library(code))
    with pytest.raises(CudaError, match=f"cuStreamSynchronize: CUDA error {code}") as raised:
        failing.synchronize(1)
    assert raised.value.loses_context is loses
