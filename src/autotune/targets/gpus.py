"""GPUs by name: what their data sheets and NVIDIA's table of compute capabilities say.

Rates are those at the boost clock, of dense matrices where tensor cores are concerned.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from autotune.targets.target import Cache, Target

__all__ = ["GPUS", "SCORING_ONLY", "Gpu", "gpu_target"]

KIB = 1024
MIB = 1024 * KIB
WARP = 32
LINE = 128
# One thread loads or stores at most 16 bytes at once.
WIDEST_ACCESS = 16

SCORING_ONLY = ("k80", "titanv", "v100")
"""Presets of GPUs that current CUDA toolkits no longer compile for: to score candidates with."""


@frozen
class Gpu:
    """A GPU model, per die.

    Attributes:
        name: What people call it.
        architecture: NVIDIA's name of its compute capability: `"sm_80"`.
        multiprocessors: Streaming multiprocessors.
        clock: Boost clock in cycles/s.
        bandwidth: bytes/s of device memory.
        l1: Bytes of L1 cache and shared memory together, of one multiprocessor.
        l2: Bytes of L2 cache.
        shared: Bytes of shared memory of one multiprocessor.
        registers: 32-bit registers of one multiprocessor.
        threads: Threads that one multiprocessor can hold.
        blocks: Blocks that one multiprocessor can hold.
        peak_flops: flop/s by dtype without tensor cores; a multiply-add counts as two.
        tensor_peak_flops: flop/s by dtype of the operands on tensor cores.
        tensor_core_shapes: (m, n, k) of the matrix instructions of a warp.
    """

    name: str
    architecture: str
    multiprocessors: int
    clock: float
    bandwidth: float
    l1: int
    l2: int
    shared: int
    registers: int
    threads: int
    blocks: int
    peak_flops: Mapping[str, float]
    tensor_peak_flops: Mapping[str, float]
    tensor_core_shapes: tuple[tuple[int, int, int], ...]


def _tera(**rates: float) -> dict[str, float]:
    return {dtype: rate * 1e12 for dtype, rate in rates.items()}


def _a100(name: str, bandwidth: float) -> Gpu:
    return Gpu(
        *(name, "sm_80", 108, 1.41e9, bandwidth, 192 * KIB, 40 * MIB),
        *(164 * KIB, 65536, 2048, 32),
        _tera(float64=9.746, float32=19.49, float16=77.97, bfloat16=38.98, int32=19.49),
        _tera(float64=19.49, float16=311.9, bfloat16=311.9, int8=623.7, uint8=623.7),
        ((16, 8, 8), (16, 8, 16)),
    )


def _hopper(name: str, bandwidth: float) -> Gpu:
    return Gpu(
        *(name, "sm_90", 132, 1.98e9, bandwidth, 256 * KIB, 50 * MIB),
        *(228 * KIB, 65536, 2048, 32),
        _tera(float64=33.45, float32=66.91, float16=133.8, bfloat16=133.8, int32=33.45),
        _tera(float64=66.91, float16=989.4, bfloat16=989.4, int8=1978.9, uint8=1978.9),
        ((16, 8, 8), (16, 8, 16)),
    )


GPUS = (
    # One of the two dies of the board: a CUDA device is one die.
    Gpu(
        *("k80", "sm_37", 13, 0.875e9, 240e9, 16 * KIB, 1536 * KIB),
        *(112 * KIB, 131072, 2048, 16),
        _tera(float64=1.456, float32=4.368, int32=0.728),
        {},
        (),
    ),
    Gpu(
        *("titanv", "sm_70", 80, 1.455e9, 652.8e9, 128 * KIB, 4608 * KIB),
        *(96 * KIB, 65536, 2048, 32),
        _tera(float64=7.45, float32=14.9, float16=29.8, int32=14.9),
        _tera(float16=119.2),
        ((8, 8, 4),),
    ),
    Gpu(
        *("v100", "sm_70", 80, 1.53e9, 900e9, 128 * KIB, 6 * MIB),
        *(96 * KIB, 65536, 2048, 32),
        _tera(float64=7.834, float32=15.67, float16=31.33, int32=15.67),
        _tera(float16=125.3),
        ((8, 8, 4),),
    ),
    Gpu(
        *("t4", "sm_75", 40, 1.59e9, 320e9, 96 * KIB, 4 * MIB),
        *(64 * KIB, 65536, 1024, 16),
        _tera(float64=0.2544, float32=8.141, float16=16.28, int32=8.141),
        _tera(float16=65.13, int8=130.3, uint8=130.3),
        ((16, 8, 8),),
    ),
    _a100("a100", 1935e9),
    _a100("a100_40", 1555e9),
    # The 64 GB module at its highest power.
    Gpu(
        *("orin", "sm_87", 16, 1.3e9, 204.8e9, 192 * KIB, 4 * MIB),
        *(164 * KIB, 65536, 1536, 16),
        _tera(float64=0.0832, float32=5.325, float16=10.65, bfloat16=5.325, int32=2.662),
        _tera(float16=42.6, bfloat16=42.6, int8=85.2, uint8=85.2),
        ((16, 8, 8), (16, 8, 16)),
    ),
    _hopper("h100", 3.35e12),
    _hopper("h200", 4.8e12),
)


def gpu_target(gpu: Gpu) -> Target:
    """Returns the target that describes one GPU.

    The shared memory of a block is what it has without asking for more when it is launched:
    48 KiB on every model.
    """
    return Target(
        kind="cuda",
        name=gpu.name,
        vector_bytes=WIDEST_ACCESS,
        processor=gpu.architecture,
        caches=(Cache(1, gpu.l1, False, LINE), Cache(2, gpu.l2, True, LINE)),
        memory_bandwidth=gpu.bandwidth,
        peak_flops=gpu.peak_flops,
        tensor_peak_flops=gpu.tensor_peak_flops,
        clock=gpu.clock,
        multiprocessors=gpu.multiprocessors,
        shared_memory_bytes=48 * KIB,
        shared_memory_per_multiprocessor=gpu.shared,
        registers_per_block=65536,
        registers_per_multiprocessor=gpu.registers,
        max_threads_per_block=1024,
        max_threads_per_multiprocessor=gpu.threads,
        max_blocks_per_multiprocessor=gpu.blocks,
        warp_size=WARP,
        warp_schedulers=4,
        tensor_core_shapes=gpu.tensor_core_shapes,
    )
