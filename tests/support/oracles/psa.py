"""Scores of GPU programs from symbols, one number at a time and in Python's own arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

INFEASIBLE = -math.inf


def published_milliseconds(symbols: Sequence[Sequence[float]], gpu: Mapping[str, float]) -> float:
    """Time of statements, each ``(F, R, Q, D, G, T)``; Pruner (ASPLOS'25), as released."""
    total = 0.0
    for flop, registers, touched, elements, blocks, threads in symbols:
        warps = threads / gpu["warp"]
        whole = math.ceil(warps)
        reuse = 1 + flop / touched if flop and touched else 1
        register_penalty = registers / gpu["registers"] if registers >= gpu["registers"] else 1
        if blocks >= gpu["active_blocks"] * gpu["multiprocessors"]:
            units, slots = blocks, gpu["active_blocks"] * gpu["multiprocessors"]
        elif whole < gpu["partitions"]:
            units, slots = blocks * whole, gpu["partitions"] * gpu["multiprocessors"]
        else:
            units = blocks * gpu["partitions"]
            slots = gpu["partitions"] * gpu["multiprocessors"]
        peak = gpu["peak"] * units / (math.ceil(units / slots) * slots)
        peak *= warps / whole / register_penalty
        compute = flop * blocks * threads * (1 + 1 / reuse) / peak / 1e6
        memory = elements / gpu["bandwidth"] * 1000 / 2**30
        total += max(compute, memory)
    return total


def corrected_milliseconds(symbols: Sequence[Sequence[float]], gpu: Mapping[str, Any]) -> float:
    """Time of launches, each with the symbols of ``CORRECTED_SYMBOLS`` in their order."""
    return sum(1000 * (_launch_seconds(launch, gpu) + gpu["launch"]) for launch in symbols)


def _launch_seconds(symbols: Sequence[float], gpu: Mapping[str, Any]) -> float:
    blocks, threads, registers, shared, moved, distinct, arithmetic, others, *rest = symbols
    in_shared, in_global, barriers, copied, global_waits, shared_waits, *last = rest
    reductions, accumulators, local, stages = last
    fitted = gpu["calibration"]
    warps = math.ceil(threads / gpu["warp"])
    lanes = warps * gpu["warp"]
    most, resident = _residency(lanes, registers, shared + 1024, gpu)
    rounds = math.ceil(blocks / gpu["multiprocessors"])
    together = min(resident, rounds)
    sets = 1.0
    if rounds > resident:
        sets = (blocks / gpu["multiprocessors"] / together + math.ceil(rounds / together)) / 2
    slots = arithmetic / 16
    issued = warps * (
        slots * max(1, registers / most) + others + fitted["reduction_instructions"] * reductions
    )
    issued /= gpu["schedulers"]
    served = warps * fitted["shared_wavefront"] * in_shared
    served += warps * fitted["global_wavefront"] * in_global
    busy = math.hypot(issued, served, moved / blocks / fitted["cache_bytes"])
    at_once = min(rounds / sets, together)
    computing = fitted["wait_for_global"] * global_waits + fitted["wait_for_shared"] * shared_waits
    computing += fitted["dependent_slot"] * slots / min(fitted["chains"], max(1, accumulators))
    copies = copied / max(1, barriers) / fitted["copies_at_once"]
    latency = fitted["global_latency"] * math.sqrt(max(1, copies))
    between = (stages - 1) * math.hypot(at_once * busy, computing) / max(1, barriers)
    waiting = fitted["block_start"] + computing + min(1, barriers) * latency
    waiting += max(0, barriers - 1) * max(0, latency - between)
    steps = max(1, math.floor(math.log2(threads)))
    waiting += fitted["reduction_step"] * reductions * steps
    cycles = sets * math.hypot(at_once * busy, waiting)
    cycles *= fitted["spilled_tile"] if local else 1.0
    kept = min(1, gpu["cache"] / max(distinct, 1))
    from_memory = distinct + max(0, moved - distinct) * (1 - kept)
    return math.hypot(cycles / gpu["clock"], from_memory / gpu["bandwidth"])


def _residency(
    lanes: float, registers: float, shared: float, gpu: Mapping[str, float]
) -> tuple[float, float]:
    """Most registers that a thread may have, and blocks that a multiprocessor holds at once.

    Args:
        lanes: Threads of a block, with those that whole warps add.
        registers: What a thread asks for.
        shared: Bytes of shared memory that a block takes.
        gpu: The device.
    """
    most = min(255, gpu["block_registers"] // lanes // 8 * 8)
    held = min(most, 8 * math.ceil(max(registers, 16) / 8))
    resident = min(
        gpu["blocks_held"],
        gpu["threads_held"] // lanes,
        gpu["registers_held"] // (held * lanes),
        gpu["shared_held"] // shared,
    )
    return most, max(resident, 1)


def launch_milliseconds(symbols: Sequence[Sequence[float]], gpu: Mapping[str, float]) -> float:
    """Time of launches, each with ``LAUNCH_SYMBOLS``: what the analytic cost model estimates."""
    total = 0.0
    for blocks, threads, registers, shared, slots, loads, moved, distinct in symbols:
        warps = math.ceil(threads / gpu["warp"])
        lanes = warps * gpu["warp"]
        most, resident = _residency(lanes, registers, max(shared, 1), gpu)
        rounds = math.ceil(blocks / gpu["multiprocessors"])
        together = min(resident, rounds)
        arithmetic = rounds * lanes * slots / gpu["slot_rate"] * max(1, registers / most)
        arithmetic /= min(1, together * warps / (2 * gpu["schedulers"]))
        compute = max(arithmetic, rounds * lanes * loads / (128 * gpu["clock"]))
        kept = min(1, gpu["cache"] / max(distinct, 1))
        from_memory = distinct + max(0, moved - distinct) * (1 - kept)
        in_flight = 16 * threads * min(blocks, resident * gpu["multiprocessors"])
        traffic = max(
            moved / (32 * gpu["clock"] * gpu["multiprocessors"]), from_memory / gpu["bandwidth"]
        )
        traffic /= min(1, in_flight / (gpu["bandwidth"] * 600e-9))
        overlapped = max(compute, traffic) + min(compute, traffic) / together
        total += 1000 * (overlapped + gpu["launch"])
    return total


def score(milliseconds: float) -> float:
    """The inverse of the time; minus infinity for what is no time."""
    return 1 / milliseconds if 0 < milliseconds < math.inf else INFEASIBLE
