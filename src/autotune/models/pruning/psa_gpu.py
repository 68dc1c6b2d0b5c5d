"""PSA on GPUs: machine parameters, and scores of the configurations of one sketch.

Two arithmetics read a sketch: the published one (`psa_published`) and a corrected one
(`psa_corrected`). The documentation of pruning models lists how they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from attrs import astuple, field, frozen
from numpy.typing import NDArray

from autotune.errors import InvalidValueError, UnknownNameError
from autotune.sketches import Sketch, per_sketch
from autotune.targets import Target

if TYPE_CHECKING:
    from autotune.nest import Tape

__all__ = [
    "FORMULAS",
    "PUBLISHED_GPUS",
    "Calibration",
    "CorrectedGpu",
    "GpuScorer",
    "PublishedGpu",
    "corrected_gpu",
    "published_gpu",
    "symbol_tape",
]

FORMULAS = ("published", "corrected")

LAUNCH_SECONDS = 2e-6
"""Time between the starts of two short kernels of one stream, about what current GPUs need."""


@frozen
class PublishedGpu:
    """Facts of a GPU that the published formula uses.

    Attributes:
        peak: Gflop/s.
        bandwidth: Of device memory, in GiB/s, although data sheets' GB/s are entered.
        active_blocks: Blocks that are assumed to run on a multiprocessor at once.
        multiprocessors: Streaming multiprocessors.
        partitions: Parts of a multiprocessor that each start a warp per cycle.
        warp: Threads of a warp.
        registers: Elements that a thread can hold without a penalty.
    """

    peak: float
    bandwidth: float
    active_blocks: float = field(default=1.0, kw_only=True)
    multiprocessors: float
    partitions: float = 4.0
    warp: float = 32.0
    registers: float = 128.0

    def parameters(self) -> list[float]:
        """The numbers in the order of the fields, as native code takes them."""
        return list(astuple(self))


PUBLISHED_GPUS: Mapping[str, PublishedGpu] = MappingProxyType(
    {
        "k80": PublishedGpu(8226.0, 480.0, 26.0),
        "t4": PublishedGpu(8141.0, 320.0, 40.0),
        "titanv": PublishedGpu(14900.0, 651.0, 80.0),
        "orin": PublishedGpu(2660.0, 204.0, 16.0),
        "a100": PublishedGpu(19490.0, 1935.0, 108.0),
        "a100_40": PublishedGpu(19490.0, 1555.0, 108.0),
        # Not among the published ones: from data sheets.
        "h100": PublishedGpu(66910.0, 3350.0, 132.0),
        "h200": PublishedGpu(66910.0, 4800.0, 132.0),
    }
)
"""Figures of the released code (Pruner, ASPLOS'25) by name, and two newer GPUs.

They describe both dies of a K80, and half of the multiply-adds of an Orin.
"""


@frozen
class Calibration:
    """Constants of the corrected formula, fitted to kernels measured on an H100.

    In cycles, unless said; the benchmark ``cuda_fit`` makes them, and tells how well they order
    a workload that they were not fitted to.

    Attributes:
        global_latency: Until a copy from global memory has arrived.
        wait_for_global: For global loads that are no copies, for each group in flight.
        wait_for_shared: For shared loads, for each group in flight.
        reduction_step: Of a reduction across threads, which takes log2(threads) of them.
        dependent_slot: Between multiply-adds that depend on each other.
        block_start: Until a block has begun.
        reduction_instructions: That a warp starts for a reduction across threads.
        shared_wavefront: Of shared memory.
        global_wavefront: Of global memory, for each cache line.
        cache_bytes: Bytes of a cycle between the last cache and a multiprocessor.
        spilled_tile: Time of a kernel whose accumulators are in local memory, over that of others.
        copies_at_once: Vectors of a thread that arrive in the time of one.
        chains: Independent multiply-adds that hide each other's latency.
    """

    global_latency: float = 300.0
    wait_for_global: float = 46.0
    wait_for_shared: float = 23.0
    reduction_step: float = 100.0
    dependent_slot: float = 6.2
    block_start: float = 650.0
    reduction_instructions: float = 85.0
    shared_wavefront: float = 1.0
    global_wavefront: float = 0.42
    cache_bytes: float = 48.0
    spilled_tile: float = 1.25
    copies_at_once: float = 4.8
    chains: float = 3.7


@frozen
class CorrectedGpu:
    """Facts of a GPU that the corrected formula uses; rates per second.

    Attributes:
        slot_rate: Sixteenths of a float32 multiply-add that one multiprocessor starts; of the
            analytic cost model.
        bandwidth: Bytes of device memory.
        clock: Cycles.
        multiprocessors: Streaming multiprocessors.
        schedulers: Warp schedulers of a multiprocessor.
        warp: Threads of a warp.
        block_registers: Registers that one block can have.
        registers_held: Registers of a multiprocessor.
        threads_held: Threads that a multiprocessor can hold.
        blocks_held: Blocks that a multiprocessor can hold.
        shared_held: Bytes of shared memory of a multiprocessor.
        cache: Bytes of the last cache before device memory.
        launch: Seconds that a launch costs.
        calibration: What was fitted, on whatever device.
    """

    slot_rate: float
    bandwidth: float
    clock: float
    multiprocessors: float
    schedulers: float
    warp: float
    block_registers: float
    registers_held: float
    threads_held: float
    blocks_held: float
    shared_held: float
    cache: float
    launch: float = LAUNCH_SECONDS
    calibration: Calibration = field(default=Calibration(), kw_only=True)

    def parameters(self) -> list[float]:
        """The numbers in the order in which native code takes them."""
        _, *own, _ = astuple(self, recurse=False)
        return [float(value) for value in (*own, *astuple(self.calibration))]


def published_gpu(target: Target, name: str | None = None) -> PublishedGpu:
    """The published figures called ``name``, or those of ``target``.

    A target that has the name of published figures gets these; any other its own rates.

    Raises:
        UnknownNameError: there are no figures of that name.
        InvalidValueError: the target lacks a rate.
    """
    if name is not None and name not in PUBLISHED_GPUS:
        raise UnknownNameError("preset of PSA", name, PUBLISHED_GPUS)
    if name is None and target.name in PUBLISHED_GPUS:
        name = target.name
    if name is not None:
        return PUBLISHED_GPUS[name]
    peak = target.peak_flops.get("float32", 0.0)
    _require(
        target,
        {
            "peak_flops of float32": peak,
            "memory_bandwidth": target.memory_bandwidth,
            "multiprocessors": target.multiprocessors,
        },
    )
    return PublishedGpu(peak / 1e9, target.memory_bandwidth / 1e9, float(target.multiprocessors))


def corrected_gpu(target: Target) -> CorrectedGpu:
    """Facts of ``target`` that the corrected formula needs.

    Raises:
        InvalidValueError: the target lacks a rate or a limit.
    """
    peak = target.peak_flops.get("float32", 0.0)
    needed = {
        "peak_flops of float32": peak,
        "memory_bandwidth": target.memory_bandwidth,
        "clock": target.clock,
        "multiprocessors": target.multiprocessors,
        "warp_schedulers": target.warp_schedulers,
        "warp_size": target.warp_size,
        "registers_per_block": target.registers_per_block,
        "registers_per_multiprocessor": target.registers_per_multiprocessor,
        "max_threads_per_multiprocessor": target.max_threads_per_multiprocessor,
        "max_blocks_per_multiprocessor": target.max_blocks_per_multiprocessor,
        "shared_memory_per_multiprocessor": target.shared_memory_per_multiprocessor,
        "caches": target.caches[-1].size_bytes if target.caches else 0,
    }
    _require(target, needed)
    _, *limits = needed.values()
    return CorrectedGpu(16 * peak / 2 / target.multiprocessors, *map(float, limits))


def _require(target: Target, needed: Mapping[str, float]) -> None:
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise InvalidValueError(
            f"PSA needs {', '.join(missing)} of the target {target.name!r}; "
            "the GPU presets have them"
        )


@per_sketch
def symbol_tape(sketch: Sketch, target: Target, formula: str) -> tuple[Tape, list[float]]:
    """The symbols of a sketch as a tape, and the maxima of its last outputs.

    Outputs are called ``GROUP/SYMBOL``, groups being statements (published) or launches
    (corrected), then ``limit/INDEX`` for what a maximum belongs to.
    """
    # Here, because naming a model must not cost loading the loop nest.
    from autotune.models.pruning.gpu_accesses import limits
    from autotune.models.pruning.psa_symbols import (
        CORRECTED_SYMBOLS,
        PUBLISHED_SYMBOLS,
        corrected_symbols,
        published_symbols,
    )
    from autotune.nest import build_tape, derive_nest

    nest = derive_nest(sketch)
    published = formula == "published"
    groups = published_symbols(nest) if published else corrected_symbols(nest, target)
    names: tuple[str, ...] = PUBLISHED_SYMBOLS if published else CORRECTED_SYMBOLS
    outputs = {
        f"{index}/{name}": symbol
        for index, symbols in enumerate(groups)
        for name, symbol in zip(names, symbols, strict=True)
    }
    limited = limits(nest, target)
    outputs.update({f"limit/{i}": expression for i, (expression, _) in enumerate(limited)})
    return build_tape(sketch.param_names, outputs), [most for _, most in limited]


class GpuScorer:
    """Scores configurations of any sketch for one GPU; derives each sketch's symbols once.

    Args:
        target: The GPU.
        formula: One of :data:`FORMULAS`.
        figures: Name of published figures; None for those of the target.

    Raises:
        UnknownNameError: the formula or the figures do not exist.
        InvalidValueError: the target lacks a rate, or figures are given for the corrected
            arithmetic, which has its own.
    """

    def __init__(
        self, target: Target, formula: str = "corrected", figures: str | None = None
    ) -> None:
        from autotune._native import PsaGpu

        if formula not in FORMULAS:
            raise UnknownNameError("formula of PSA", formula, FORMULAS)
        if formula == "corrected" and figures is not None:
            raise InvalidValueError(
                f"published figures ({figures!r}) are for the published formula; "
                "the corrected one takes the target's"
            )
        published = formula == "published"
        gpu = published_gpu(target, figures) if published else corrected_gpu(target)
        self._target = target
        self._formula = formula
        self._native = PsaGpu(formula, gpu.parameters())

    def score(
        self, sketch: Sketch, matrix: NDArray[np.int64], threads: int = 1
    ) -> NDArray[np.float64]:
        """Scores [n] of configurations [n, params]: one over the estimated milliseconds.

        Minus infinity for a configuration whose kernels would be illegal on the target.

        Raises:
            InvalidValueError: the matrix does not fit the sketch, or some value is no number.
        """
        tape, maxima = symbol_tape(sketch, self._target, self._formula)
        rows = np.ascontiguousarray(matrix, dtype=np.int64)
        try:
            return self._native.score(tape.program, rows, maxima, threads)
        except (OverflowError, TypeError, ValueError) as error:
            raise InvalidValueError(f"sketch {sketch.name!r} cannot be scored: {error}") from error
