"""Detection of GPUs through CUDA's driver."""

from __future__ import annotations

import re

from attrs import evolve, frozen

from autotune.errors import InvalidValueError, UnsupportedTarget
from autotune.targets.cuda_driver import CudaDriver, load_driver
from autotune.targets.gpus import GPUS, LINE, WARP, WIDEST_ACCESS, gpu_target
from autotune.targets.target import Cache, Target
from autotune.targets.tf32 import TF32_SUFFIX

__all__ = ["CudaDevice", "cuda_devices", "detect_cuda", "is_cuda_name", "matching_device"]

_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_bytes": 8,
    "warp_size": 10,
    "registers_per_block": 12,
    "clock_khz": 13,
    "multiprocessors": 16,
    "compute_mode": 20,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2": 38,
    "max_threads_per_multiprocessor": 39,
    "major": 75,
    "minor": 76,
    "shared_memory_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
    "max_blocks_per_multiprocessor": 106,
}
"""``CUdevice_attribute`` by what it is here."""

_EDGES = 2  # Memory of GPUs transfers data on both edges of its clock.
# Lanes of float32 of a multiprocessor, by compute capability; others since 8.6 have 128.
_LANES = {75: 64, 80: 64}
# A preset describes a device whose bandwidth differs by no more than this share.
_SAME_BANDWIDTH = 0.1
_PROHIBITED = 2


@frozen
class CudaDevice:
    """A device as the driver describes it.

    Attributes:
        index: Its number, as in ``cuda:1``.
        name: Its product name.
        memory_bytes: Size of its memory.
        prohibited: Whether its compute mode forbids every context.
        target: What programs are made for.
    """

    index: int
    name: str
    memory_bytes: int
    prohibited: bool
    target: Target


def is_cuda_name(spec: str) -> bool:
    """Return whether a text asks for a detected GPU: ``cuda`` or ``cuda:N``."""
    return re.fullmatch(r"cuda(:\d+)?", spec) is not None


def cuda_devices(driver: CudaDriver) -> list[CudaDevice]:
    """Every device that this process may use, in the driver's order."""
    return [_describe(driver, index) for index in range(driver.device_count())]


def detect_cuda(spec: str = "cuda", driver: CudaDriver | None = None) -> Target:
    """The GPU that ``cuda`` (the first one) or ``cuda:N`` means.

    One that is as a preset says is described by it, so that records of both agree.

    Args:
        spec: Which one.
        driver: The driver; that of this machine unless given.

    Raises:
        InvalidValueError: there is no device of that number.
        UnsupportedTarget: there is no usable driver or device, or it allows no computing.
    """
    devices = cuda_devices(driver or load_driver())
    index = int(spec.partition(":")[2] or 0)
    if index >= len(devices):
        names = ", ".join(f"cuda:{it.index} ({it.name})" for it in devices)
        raise InvalidValueError(f"there is no device {spec!r}; there are: {names}")
    device = devices[index]
    if device.prohibited:
        raise UnsupportedTarget(
            f"{spec!r} ({device.name}) is in compute mode 'prohibited': nvidia-smi -c changes it"
        )
    return device.target if index == 0 else evolve(device.target, name=_indexed(device))


def matching_device(target: Target, driver: CudaDriver) -> CudaDevice:
    """The device that a target describes: the one its name numbers, else the first alike.

    Raises:
        UnsupportedTarget: no device of this machine is as the target says; names them.
    """
    devices = cuda_devices(driver)
    asked = re.search(r":(\d+)$", target.name.removesuffix(TF32_SUFFIX))
    for device in devices:
        if asked is not None and device.index != int(asked.group(1)):
            continue
        if _alike(device.target, target):
            return device
    found = ", ".join(f"cuda:{it.index} is {it.name} ({it.target.processor})" for it in devices)
    raise UnsupportedTarget(
        f"target {target.name!r} ({target.processor}, {target.multiprocessors} multiprocessors) "
        f"is no device of this machine: {found}; --target cuda means what is here"
    )


def _indexed(device: CudaDevice) -> str:
    return f"{device.target.name}:{device.index}"


def _alike(found: Target, target: Target) -> bool:
    """Return whether programs that are timed on one count for the other."""
    architectures = [re.sub("[af]$", "", it.processor) for it in (found, target)]
    return (
        architectures[0] == architectures[1]
        and found.multiprocessors == target.multiprocessors
        and _near(found.memory_bandwidth, target.memory_bandwidth)
    )


def _near(found: float, wanted: float) -> bool:
    if not found or not wanted:
        return True
    return abs(found - wanted) <= _SAME_BANDWIDTH * max(found, wanted)


def _describe(driver: CudaDriver, index: int) -> CudaDevice:
    device = driver.device(index)
    facts = {name: driver.attribute(device, number) for name, number in _ATTRIBUTES.items()}
    name = driver.name(device)
    target = _target(name, facts)
    for gpu in GPUS:
        known = gpu_target(gpu)
        if _alike(target, known):
            target = known
            break
    prohibited = facts["compute_mode"] == _PROHIBITED
    return CudaDevice(index, name, driver.total_memory(device), prohibited, target)


def _target(name: str, facts: dict[str, int]) -> Target:
    capability = facts["major"] * 10 + facts["minor"]
    clock = facts["clock_khz"] * 1e3
    lanes = _LANES.get(capability, 128)
    shared = facts["shared_memory_per_multiprocessor"]
    cycles = facts["multiprocessors"] * clock
    float32 = 2 * lanes * cycles
    made = Target(
        kind="cuda",
        name=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or f"sm-{capability}",
        vector_bytes=WIDEST_ACCESS,
        processor=f"sm_{capability}",
        caches=tuple(
            Cache(level, size, level == 2, LINE)
            for level, size in ((1, shared), (2, facts["l2"]))
            if size
        ),
        memory_bandwidth=_EDGES * facts["memory_clock_khz"] * 1e3 * facts["bus_bits"] / 8,
        peak_flops={"float32": float32} if float32 else {},
        clock=clock,
        warp_size=facts["warp_size"] or WARP,
        warp_schedulers=4,
        multiprocessors=facts["multiprocessors"],
        shared_memory_bytes=facts["shared_memory_bytes"],
        registers_per_block=facts["registers_per_block"],
        max_threads_per_block=facts["max_threads_per_block"],
        shared_memory_per_multiprocessor=shared,
        registers_per_multiprocessor=facts["registers_per_multiprocessor"],
        max_threads_per_multiprocessor=facts["max_threads_per_multiprocessor"],
        max_blocks_per_multiprocessor=facts["max_blocks_per_multiprocessor"],
    )
    return _with_rates(made, cycles)


def _with_rates(target: Target, cycles: float) -> Target:
    """A device with the rates that a cycle of a multiprocessor has on a known GPU of its kind.

    Args:
        target: The device as the driver describes it, which tells nothing of tensor cores.
        cycles: Cycles a second of all its multiprocessors.
    """
    known = next((gpu for gpu in GPUS if gpu.architecture == target.processor), None)
    if known is None or not cycles:
        return target
    scale = cycles / (known.multiprocessors * known.clock)
    peak, tensor = (
        {dtype: rate * scale for dtype, rate in rates.items()}
        for rates in (known.peak_flops, known.tensor_peak_flops)
    )
    return evolve(
        target,
        peak_flops=peak,
        tensor_peak_flops=tensor,
        tensor_core_shapes=known.tensor_core_shapes,
    )
