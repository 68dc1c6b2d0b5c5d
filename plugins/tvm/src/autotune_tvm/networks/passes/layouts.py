"""The order in which convolutions store tensors, chosen by what the draft model expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

import numpy as np
from tvm.ir import IRModule

from autotune.ir.workloads import Workload
from autotune.networks.kept_speedups import KeptSpeedups
from autotune.targets import Target
from autotune_tvm.networks.passes.channels_last import channels_last
from autotune_tvm.networks.passes.expected_costs import (
    AFTERWARDS,
    Costs,
    Passes,
    Programs,
    cost_key,
)

__all__ = ["choose_layout", "expected_speedup"]

_MOST_PAIRS = 6
"""Programs that are scored in both orders: those that move and compute the most."""
_GAIN = 1.03
"""The model's own order is kept where the other one is expected to gain less."""
_VERSION = 1
"""Grows when this module or :func:`channels_last` expects another speedup of some network."""


def choose_layout(
    module: IRModule,
    machine: Target,
    kept: KeptSpeedups | None = None,
    passes: Passes = AFTERWARDS,
) -> tuple[IRModule, str]:
    """Store channels last where that is expected to be faster for the network as a whole.

    Args:
        module: A network of operators.
        machine: What it runs on, with as many cores as it has threads.
        kept: What was expected of networks before; None to expect it anew.
        passes: What cuts the network into programs.
    """
    changed, note = channels_last(module)
    if changed is module:
        return module, ""
    key = cost_key(f"layouts {_VERSION}", module, machine)
    known = None if kept is None else kept.find(key)
    if known is None:
        speedup = expected_speedup(module, changed, machine, passes)
    else:
        speedup = known[0]
    if kept is not None and known is None:
        kept.keep(key, speedup)
    if speedup is None:
        return module, f"{note} stay: the space does not express them with the channels last"
    if speedup < _GAIN:
        return module, f"{note} stay; channels last would be {speedup:.2f} times as fast"
    return changed, f"{note} channels last, expected to be {speedup:.2f} times as fast"


def expected_speedup(
    before: IRModule, after: IRModule, machine: Target, passes: Passes = AFTERWARDS
) -> float | None:
    """How many times as fast one form of a network is as another, as the draft model expects.

    Both are cut into programs. The cost of one is that of the best of a few random configurations
    by the draft model: nothing is compiled. What only one form has, such as permutations, counts
    whole; of the reductions, which correspond to one another in order, the largest are taken for
    all.

    Args:
        before: A network of operators.
        after: The same, with its tensors stored in other orders.
        machine: What it runs on.
        passes: What cuts a form into programs.

    Returns:
        The ratio; None where the search space expresses less of the second form.
    """
    first, second = Programs.of(before, passes), Programs.of(after, passes)
    if len(first.reductions) != len(second.reductions) or second.refused > first.refused:
        return None
    pairs = Counter(zip(first.reductions, second.reductions, strict=True))
    changed = {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
    known = first.workloads | second.workloads

    def size(pair: tuple[str, str]) -> float:
        return changed[pair] * _size(known[pair[0]])

    taken = sorted(changed, key=size, reverse=True)[:_MOST_PAIRS]
    whole = sum(map(size, changed)) / sum(map(size, taken)) if taken else 0.0
    costs = Costs(machine)
    moves = [first.moves - second.moves, second.moves - first.moves]
    totals = []
    for side, rest in enumerate(moves):
        parts = [changed[pair] * costs.of(known[pair[side]]) for pair in taken]
        total = whole * sum(parts)
        totals.append(total + sum(n * costs.of(known[digest]) for digest, n in rest.items()))
    if not np.isfinite(totals[1]):
        return None
    return totals[0] / totals[1] if totals[1] else 1.0


def _size(workload: Workload) -> float:
    """What a program is expected to take, in no unit: a byte takes as long as 16 operations."""
    work = sum(prod(axis.extent for axis in stage.axes) for stage in workload.stages)
    return work / 8 + _elements(workload.tensors[name].shape for name in workload.tensors)


def _elements(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(map(prod, shapes))
