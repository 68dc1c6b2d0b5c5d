"""The draft model for CPUs, one configuration and one number at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.models.pruning.psa_cpu import CpuMachine, Reads, SketchSymbols, StatementSymbols


def cycles(symbols: SketchSymbols, machine: CpuMachine, values: Mapping[int, int]) -> float:
    """Estimated cycles; ``values`` has the value of every column of the symbols' tape."""
    total = symbols.nests * machine.launch
    hidden, idle = 0.0, 0.0
    for statement in symbols.statements:
        computing = _computing(statement, machine, values)
        moving = _moving(statement, machine, values, symbols.program_bytes)
        tasks = math.prod(
            values[int(column)]
            for column, parallel in zip(statement.extents, statement.parallel, strict=True)
            if parallel
        )
        busy = tasks / math.ceil(tasks / machine.cores)
        if statement.early >= 0 and values[statement.early]:
            share = values[statement.early] / 2
            hidden += share * moving / busy
            moving -= share * moving
        if statement.hides:
            idle += max(computing - moving, 0.0) / busy
        shorter, longer = sorted((computing, moving))
        total += (longer + machine.overlap * shorter) / busy
    return total + max(hidden - idle, 0.0)


def _computing(s: StatementSymbols, machine: CpuMachine, values: Mapping[int, int]) -> float:
    extents = [values[int(column)] for column in s.extents]
    lanes = extents[s.vector] if s.vector >= 0 else 1
    vectors = math.ceil(lanes / s.lanes)
    if s.vector >= 0 and not s.declared and lanes % s.lanes:
        vectors += 2

    def inside(depth: int) -> int:
        return vectors * math.prod(
            extent for i, extent in enumerate(extents) if i >= depth and i != s.vector
        )

    depth = s.body
    if not s.declared and depth == s.vector + 1 > 0:
        depth = s.vector
        while depth > 0 and not s.remains[depth - 1]:
            depth -= 1
    size = max(s.work + s.calls, 1.0) + 1.0
    while depth > 0 and not s.parallel[depth - 1] and inside(depth - 1) * size <= machine.unrolled:
        depth -= 1
    chain = math.prod(e for i, e in enumerate(extents) if i >= depth and s.reduces[i])
    carried = depth > 0 and bool(s.reduces[depth - 1])
    counts = []
    for buffer, meets in enumerate(s.meets):
        region = values[int(s.regions[buffer, depth])]
        in_vectors = s.vector >= 0 and meets == Reads.CONTIGUOUS
        counts.append(region / lanes * vectors if in_vectors else float(region))
    accumulators = counts.pop(s.written)
    kept = carried and accumulators <= machine.vector_registers + 4
    reloaded = accumulators if carried and not kept else 0.0
    call = s.calls * (machine.wide_call if lanes > s.narrow else 1.0)
    parts = [
        inside(depth) * (s.work / machine.fma_units + lanes / vectors * call),
        (sum(counts) + reloaded) / machine.loads_per_cycle,
        0.0 if kept else accumulators / machine.stores_per_cycle,
    ]
    body = max(parts) + machine.contention * (sum(parts) - max(parts))
    if carried:
        body = max(body, machine.latency * chain)
    if carried or chain > 1:
        body += max(accumulators + 2 - machine.vector_registers, 0.0) * chain * machine.spill
    entries = math.prod(extents[: max(depth - 1, 0)])
    iterations = math.prod(extents[:depth])
    return iterations * (body + machine.iteration) + entries * machine.entry


def _moving(
    s: StatementSymbols, machine: CpuMachine, values: Mapping[int, int], program_bytes: int
) -> float:
    total = 0.0
    for level in range(3):
        capacity = machine.capacity[level]
        for depth in range(len(s.extents) + 1):
            footprint, brought, conflicting = _held(s, machine, values, depth, level)
            if depth == len(s.extents) or max(footprint, conflicting) <= capacity:
                cold = 1.0
                if depth == 0:
                    cold = min(1.0, max(0.0, program_bytes / machine.cores / capacity - 1.0))
                total += brought * cold / machine.bandwidth[level]
                break
    for buffer, column in enumerate(s.aligned):
        if column < 0 or machine.cores < 2 or values[int(column)]:
            continue
        touched = values[int(s.regions[buffer, 0])] * int(s.element_bytes[buffer])
        share = 1.0 if values[int(s.divided[buffer])] else machine.cores
        total += touched * share * (machine.cores - 1) / machine.cores / machine.foreign
    return total


def _held(
    s: StatementSymbols, machine: CpuMachine, values: Mapping[int, int], depth: int, level: int
) -> tuple[float, float, float]:
    """Bytes occupied, bytes brought in, and bytes of sets that the worst buffer needs."""
    footprint, brought, conflicting = 0.0, 0.0, 0.0
    around = max(depth - 1, 0)
    for buffer in range(len(s.element_bytes)):
        divided = depth == 0 and values[int(s.divided[buffer])]
        share = 1.0 / machine.cores if divided else 1.0
        rows, lines = values[int(s.rows[buffer, depth])], values[int(s.lines[buffer, depth])]
        outer_rows = values[int(s.rows[buffer, around])]
        moved = values[int(s.lines[buffer, around])]
        moved += outer_rows * machine.row if outer_rows > 1 else 0.0
        traffic = values[int(s.traffic[buffer, depth])]
        footprint += lines * share
        brought += traffic / values[int(s.regions[buffer, around])] * moved * share
        way = machine.way_bytes[level]
        if rows > 1 and way > 0:
            apart = min(values[int(s.apart[buffer, depth])], way)
            conflicting = max(conflicting, max(lines, rows * apart) * share)
    return footprint, brought, conflicting
