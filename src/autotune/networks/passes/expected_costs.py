"""What the draft model expects forms of a network to take, without compiling them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf, isfinite

import numpy as np
from attrs import field, frozen

from autotune.backends.native import NativeBackend
from autotune.errors import AutotuneError
from autotune.ir.workloads import Workload
from autotune.models.pruning import PSA
from autotune.networks.graph import Graph, HostOperator, Value
from autotune.plugins import Context
from autotune.sketches import STEP_TYPES
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces import SketchSpace
from autotune.targets import Target

__all__ = ["Costs", "Passes", "cost_key", "expected_speedup", "programs"]

Passes = Sequence[Callable[[Graph, Target], tuple[Graph, str]]]

_SAMPLES = 64
"""Configurations of a workload that are scored; the best of them stands for it."""
_MOST = 3
"""Workloads of a form that are scored of those that reduce, and as many of the others: those that
move and compute the most."""
_THREAD_BYTES, _UNROLLED = 1024, 512


def cost_key(question: str, graph: Graph, machine: Target) -> str:
    """All that what is expected of a network depends on; the values of weights do not.

    Args:
        question: Who asks for what, with a version.
        graph: The network.
        machine: What it runs on.
    """
    backend = NativeBackend()
    parts = (SketchSpace, PSA, NativeBackend)
    versions = (*(f"{part.name} {part.version}" for part in parts), backend.compiler_version())
    digest = hashlib.sha256("\n".join(_written(graph)).encode()).hexdigest()[:16]
    return "; ".join((question, f"graph {digest}", f"target {machine.fingerprint}", *versions))


def _written(graph: Graph) -> Iterator[str]:
    """What a graph computes, but for values of constants and names, a line for each node."""
    places = {value.key: f"in{number}" for number, value in enumerate(graph.inputs)}

    def place(value: Value) -> str:
        if value.constant is not None:
            return f"{value.dtype}{list(value.shape)}"
        return places[value.key]

    for number, node in enumerate(graph.nodes):
        operation = node.operation
        if isinstance(operation, Workload):
            yield repr((operation.inputs, operation.stages, operation.outputs))
        elif isinstance(operation, HostOperator):
            yield repr(operation)
        else:
            yield f"loop {operation.trips} {operation.states} {operation.slices}"
            yield from _written(operation.body)
        yield ", ".join(map(place, node.operands))
        key = id(node)
        places |= {(key, at): f"{number}.{at}" for at in range(len(node.results))}
    yield from (place(value) for value in graph.outputs.values())


def expected_speedup(
    before: Graph, after: Graph, machine: Target, afterwards: Passes = ()
) -> float | None:
    """How many times as fast one form of a network is as another, as the draft model expects.

    Both are cut into programs. The cost of one is that of the best of a few random configurations
    by the draft model: nothing is compiled. Of what only one form has the largest programs are
    taken for all: of those that reduce, and of those that only move and convert elements.

    Args:
        before: A network.
        after: The same, with its tensors stored in other orders.
        machine: What it runs on.
        afterwards: The passes that cut a form into programs.

    Returns:
        The ratio; None where the search space expresses less of the second form.
    """
    first, second = (programs(graph, machine, afterwards) for graph in (before, after))
    costs = Costs(machine)
    totals = _total(first - second, costs), _total(second - first, costs)
    if not all(map(isfinite, totals)):
        return None
    return totals[0] / totals[1] if totals[1] else 1.0


def programs(graph: Graph, machine: Target, afterwards: Passes) -> Counter[Workload]:
    """What a graph is cut into, and how often."""
    for each in afterwards:
        graph, _ = each(graph, machine)
    operations = (node.operation for node in graph.nodes)
    return Counter(it for it in operations if isinstance(it, Workload))


def _total(programs: Counter[Workload], costs: Costs) -> float:
    """The expected cost of all, from that of the largest."""
    total = 0.0
    for reduces in (True, False):
        sizes = {
            workload: calls * _size(workload)
            for workload, calls in programs.items()
            if any(stage.reduce_axes for stage in workload.stages) == reduces
        }
        taken = sorted(sizes, key=sizes.__getitem__, reverse=True)[:_MOST]
        if taken:
            share = sum(sizes[it] for it in taken) / sum(sizes.values())
            total += sum(programs[it] * costs.of(it) for it in taken) / share
    return total


def _size(workload: Workload) -> float:
    """What a program is expected to take, in no unit: a byte takes as long as 16 operations."""
    work = sum(stage.points for stage in workload.stages)
    return work / 8 + sum(it.elements for it in workload.tensors.values())


@frozen(eq=False)
class Costs:
    """What the draft model expects of programs, each scored once.

    Attributes:
        machine: What they run on.
    """

    machine: Target
    known: dict[Workload, float] = field(factory=dict)

    def of(self, workload: Workload) -> float:
        """One over the best score of a few configurations; infinite where there are none."""
        if workload not in self.known:
            self.known[workload] = self._scored(workload)
        return self.known[workload]

    def _scored(self, workload: Workload) -> float:
        try:
            space = SketchSpace(workload, self.machine, _limits(self.machine))
        except AutotuneError:
            return inf
        batch = space.sample(_SAMPLES, np.random.default_rng(0))
        scores = PSA(Context(target=self.machine, workload=workload)).score(batch)
        best = float(scores.max(initial=-inf))
        return 1 / best if best > 0 else inf


def _limits(machine: Target) -> ScheduleLimits:
    """What the programs of a network may be on a machine."""
    if machine.kind == "cpu":
        return NativeBackend().limits(machine)
    return ScheduleLimits(frozenset(STEP_TYPES), _THREAD_BYTES, _UNROLLED, "registers of a thread")
