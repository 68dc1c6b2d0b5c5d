"""The order in which convolutions store tensors, chosen by what the draft model expects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

import numpy as np
from attrs import define, field, frozen
from tvm.ir import IRModule
from tvm_ffi import structural_hash

from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.models.pruning import PSA
from autotune.plugins import Context
from autotune.spaces import SketchSpace
from autotune.targets import Target
from autotune_tvm.backend import TVMBackend
from autotune_tvm.importer import import_module
from autotune_tvm.networks.constants import mark_constants
from autotune_tvm.networks.graph import tensor_calls
from autotune_tvm.networks.kept_speedups import KeptSpeedups
from autotune_tvm.networks.passes.boolean_operators import boolean_operators
from autotune_tvm.networks.passes.channels_last import channels_last
from autotune_tvm.networks.passes.fuse import fuse, legalize, views
from autotune_tvm.networks.passes.merge_equal import merge_equal
from autotune_tvm.networks.passes.merge_views import merge_views
from autotune_tvm.networks.passes.sink_views import sink_views

__all__ = ["AFTERWARDS", "choose_layout", "expected_speedup"]

AFTERWARDS = (
    *(merge_views, sink_views, boolean_operators),
    *(legalize, fuse, views, merge_equal),
)
"""The passes that cut a network into programs once its layouts are chosen."""

_SAMPLES = 128
"""Configurations of a program that are scored; the best of them stands for it."""
_MOST_PAIRS = 6
"""Programs that are scored in both orders: those that move and compute the most."""
_GAIN = 1.03
"""The model's own order is kept where the other one is expected to gain less."""
_VERSION = 1
"""Grows when this module or :func:`channels_last` expects another speedup of some network."""


def choose_layout(
    module: IRModule, machine: Target, kept: KeptSpeedups | None = None
) -> tuple[IRModule, str]:
    """Store channels last where that is expected to be faster for the network as a whole.

    Args:
        module: A network of operators.
        machine: What it runs on, with as many cores as it has threads.
        kept: What was expected of networks before; None to expect it anew.
    """
    changed, note = channels_last(module)
    if changed is module:
        return module, ""
    key = _key(module, machine)
    known = None if kept is None else kept.find(key)
    speedup = expected_speedup(module, changed, machine) if known is None else known[0]
    if kept is not None and known is None:
        kept.keep(key, speedup)
    if speedup is None:
        return module, f"{note} stay: the space does not express them with the channels last"
    if speedup < _GAIN:
        return module, f"{note} stay; channels last would be {speedup:.2f} times as fast"
    return changed, f"{note} channels last, expected to be {speedup:.2f} times as fast"


def _key(module: IRModule, machine: Target) -> str:
    """All that the expected speedup of a network depends on; the values of weights do not."""
    versions = (
        f"layouts {_VERSION}",
        *(f"{part.name} {part.version}" for part in (SketchSpace, PSA, TVMBackend)),
        TVMBackend().compiler_version(),
    )
    graph = structural_hash(module, skip_tensor_content=True) & (2**64 - 1)
    return "; ".join((f"graph {graph:016x}", f"target {machine.fingerprint}", *versions))


def expected_speedup(before: IRModule, after: IRModule, machine: Target) -> float | None:
    """How many times as fast one form of a network is as another, as the draft model expects.

    Both are cut into programs. The cost of one is that of the best of a few random configurations
    by the draft model: nothing is compiled. What only one form has, such as permutations, counts
    whole; of the reductions, which correspond to one another in order, the largest are taken for
    all.

    Args:
        before: A network of operators.
        after: The same, with its tensors stored in other orders.
        machine: What it runs on.

    Returns:
        The ratio; None where the search space expresses less of the second form.
    """
    first, second = _Programs.of(before), _Programs.of(after)
    if len(first.reductions) != len(second.reductions) or second.refused > first.refused:
        return None
    pairs = Counter(zip(first.reductions, second.reductions, strict=True))
    changed = {pair: count for pair, count in pairs.items() if pair[0] != pair[1]}
    known = first.workloads | second.workloads

    def size(pair: tuple[str, str]) -> float:
        return changed[pair] * _size(known[pair[0]])

    taken = sorted(changed, key=size, reverse=True)[:_MOST_PAIRS]
    whole = sum(map(size, changed)) / sum(map(size, taken)) if taken else 0.0
    costs = _Costs(machine)
    moves = [first.moves - second.moves, second.moves - first.moves]
    totals = []
    for side, rest in enumerate(moves):
        parts = [changed[pair] * costs.of(known[pair[side]]) for pair in taken]
        total = whole * sum(parts)
        totals.append(total + sum(n * costs.of(known[digest]) for digest, n in rest.items()))
    if not np.isfinite(totals[1]):
        return None
    return totals[0] / totals[1] if totals[1] else 1.0


@define(eq=False)
class _Programs:
    """What a network is cut into.

    Attributes:
        reductions: Digests of programs that reduce, by call.
        moves: Digests of the others, with their numbers of calls.
        refused: Calls of programs that cannot be imported.
        workloads: By digest.
    """

    reductions: list[str] = field(factory=list)
    moves: Counter[str] = field(factory=Counter)
    refused: int = 0
    workloads: dict[str, Workload] = field(factory=dict)

    @classmethod
    def of(cls, module: IRModule) -> _Programs:
        for each in AFTERWARDS:
            module, _ = each(module)
        module = mark_constants(module)
        found = cls()
        imported: dict[str, Workload | None] = {}
        for name, _ in tensor_calls(module):
            if name not in imported:
                imported[name] = _imported(module[name])
            found._add(imported[name])
        return found

    def _add(self, workload: Workload | None) -> None:
        if workload is None:
            self.refused += 1
            return
        self.workloads[workload.digest] = workload
        if any(stage.reduce_axes for stage in workload.stages):
            self.reductions.append(workload.digest)
        else:
            self.moves[workload.digest] += 1


def _imported(function: object) -> Workload | None:
    try:
        return import_module(function)[0]
    except AutotuneError:
        return None


def _size(workload: Workload) -> float:
    """What a program is expected to take, in no unit: a byte takes as long as 16 operations."""
    work = sum(prod(axis.extent for axis in stage.axes) for stage in workload.stages)
    return work / 8 + _elements(workload.tensors[name].shape for name in workload.tensors)


def _elements(shapes: Iterable[tuple[int, ...]]) -> int:
    return sum(map(prod, shapes))


@frozen(eq=False)
class _Costs:
    """What the draft model expects of programs, each scored once.

    Attributes:
        machine: What they run on.
    """

    machine: Target
    known: dict[str, float] = field(factory=dict)

    def of(self, workload: Workload) -> float:
        """One over the best score of a few configurations; infinite where there are none."""
        if workload.digest not in self.known:
            self.known[workload.digest] = self._scored(workload)
        return self.known[workload.digest]

    def _scored(self, workload: Workload) -> float:
        try:
            space = SketchSpace(workload, self.machine, TVMBackend().limits(self.machine))
        except AutotuneError:
            return np.inf
        batch = space.sample(_SAMPLES, np.random.default_rng(0))
        scores = PSA(Context(target=self.machine, workload=workload)).score(batch)
        best = float(scores.max(initial=-np.inf))
        return 1 / best if best > 0 else np.inf
