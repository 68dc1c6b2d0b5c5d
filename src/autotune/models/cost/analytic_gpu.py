"""The cost of a program on a GPU, as an expression of a sketch's parameters with smooth forms.

Symbols are those of the corrected PSA (:mod:`autotune.models.pruning.psa_corrected`), launch by
launch, without what depends on single instructions. Whole waves, warps and blocks are counted as
real numbers, at least one, so that a relaxed reading has a useful derivative everywhere.

Everything is counted in femtoseconds, because expressions are of integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from autotune.ir.expressions import IntExpr, const, maximum, minimum
from autotune.models.pruning.psa_corrected import LAUNCH_SYMBOLS, corrected_symbols
from autotune.models.pruning.psa_gpu import CorrectedGpu, corrected_gpu
from autotune.nest import derive_nest
from autotune.sketches import Sketch
from autotune.targets import Target

__all__ = ["GPU_COMPONENTS", "gpu_components"]

GPU_COMPONENTS = ("arithmetic", "shared", "cache", "memory", "launch")
"""What the time of a program is made of, in the order of :func:`gpu_components`.

Instructions; shared memory; what passes between multiprocessors and the last cache; device
memory; starts of kernels.
"""

_FEMTO = 1e15
_MOST_REGISTERS = 255
_LEAST_REGISTERS = 16
# Bytes of shared memory, and of the last cache, that a multiprocessor moves per cycle.
_SHARED_PER_CYCLE, _CACHE_PER_CYCLE = 128, 32
# Bytes that a thread has in flight, and how long one takes to come from memory.
_IN_FLIGHT, _LATENCY_SECONDS = 16, 600e-9
# Rates are fractions of femtoseconds: kept to a thousandth.
_FINE = 1000


def gpu_components(sketch: Sketch, target: Target) -> tuple[IntExpr, ...]:
    """The cost of the program, by :data:`GPU_COMPONENTS`, in femtoseconds.

    Raises:
        InvalidValueError: the target lacks a rate or a limit.
    """
    gpu = corrected_gpu(target)
    totals = [const(1)] * (len(GPU_COMPONENTS) - 1)
    launches = corrected_symbols(derive_nest(sketch), target, LAUNCH_SYMBOLS)
    for symbols in launches:
        found = _launch(symbols, gpu)
        totals = [total + value for total, value in zip(totals, found, strict=True)]
    return (*totals, const(max(1, round(len(launches) * gpu.launch * _FEMTO))))


def _launch(symbols: Sequence[IntExpr], gpu: CorrectedGpu) -> tuple[IntExpr, ...]:
    """Components of one launch, but for its start, from the symbols of the corrected PSA."""
    blocks, threads, registers, shared, slots, loads, moved, distinct = symbols
    warp, units = round(gpu.warp), round(gpu.multiprocessors)
    lanes = maximum(threads, warp)
    most = minimum(const(round(gpu.block_registers)) // lanes, _MOST_REGISTERS)
    held = minimum(maximum(registers, _LEAST_REGISTERS), most)
    resident = minimum(
        minimum(const(round(gpu.threads_held)) // lanes, round(gpu.blocks_held)),
        minimum(
            const(round(gpu.registers_held)) // (held * lanes),
            const(round(gpu.shared_held)) // maximum(shared, 1),
        ),
    )
    resident = maximum(resident, 1)
    rounds = maximum(blocks, units) // units
    together = minimum(resident, rounds)
    # Warps that keep all schedulers busy.
    enough = round(2 * gpu.schedulers * gpu.warp)
    work = rounds * lanes * slots * maximum(registers, most) // most
    work = work * maximum(together * lanes, enough) // (together * lanes)
    flying = minimum(blocks, resident * units) * threads * _IN_FLIGHT
    needed = max(1, round(gpu.bandwidth * _LATENCY_SECONDS))
    exposed = maximum(flying, needed)
    cache = max(1, round(gpu.cache))
    larger = maximum(distinct, cache)
    again = maximum(moved, distinct) - distinct
    from_memory = distinct + again * (larger - cache) // larger
    return (
        _timed(work, gpu.slot_rate),
        _timed(rounds * lanes * loads, _SHARED_PER_CYCLE * gpu.clock),
        _timed(moved, gpu.multiprocessors * _CACHE_PER_CYCLE * gpu.clock) * exposed // flying,
        _timed(from_memory, gpu.bandwidth) * exposed // flying,
    )


def _timed(amount: IntExpr, rate: float) -> IntExpr:
    """Femtoseconds for an amount at a rate per second."""
    return amount * max(1, round(_FINE * _FEMTO / rate)) // _FINE
