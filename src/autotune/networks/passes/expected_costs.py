"""Costs of forms of a network, as the draft model expects, without compiling them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf, isfinite, prod
from pathlib import Path

import numpy as np
from attrs import evolve, field, frozen

from autotune.backends.native import NativeBackend
from autotune.errors import AutotuneError, InvalidValueError
from autotune.ir.expressions import Load
from autotune.ir.workloads import Workload
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.networks.graph import Graph, HostOperator, Loop, Node, Value, input_value, readers
from autotune.networks.graph.graph import results_of
from autotune.process.cache_folder import user_cache_folder
from autotune.sketches import STEP_TYPES, Prepack, Sketch
from autotune.sketches.limits import ScheduleLimits
from autotune.spaces import FeasibleSpace, SketchSpace
from autotune.spaces.rules import replayable_sketches
from autotune.spaces.sketch_space import BUILT_IN_RULES, loosen
from autotune.store.jsonl import replacing
from autotune.targets import Target

__all__ = [
    "Costs",
    "KeptSpeedups",
    "Passes",
    "cost_key",
    "expected_speedup",
    "programs",
    "user_file",
]

Passes = Sequence[Callable[[Graph, Target], tuple[Graph, str]]]

_SAMPLES = 64
"""Configurations of a sketch that are scored; the best of them stands for it."""
_MOST = 2
"""Programs of a form that are scored of those that reduce, and as many of those that only move
elements: the largest."""
_MANY_TERMS = 64
_FOLLOWERS = 4
"""Operations behind a reduction that it may be one program with."""
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
    """Describe a graph but for values of constants and names, a line for each node."""
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
    """Expected speed of one form of a network relative to another, by the draft model.

    The cost of a program is that of the best of a few random configurations by the draft model:
    nothing is compiled. Of what only one form has, the largest operations that reduce are taken
    for all, each with what follows it, and so are the largest that only move elements.

    Args:
        before: A network.
        after: The same, with its tensors stored in other orders.
        machine: What it runs on.
        afterwards: The passes that make programs of operations.

    Returns:
        The ratio; None where the search space expresses less of the second form.
    """
    first, second = (_Operations.of(graph) for graph in (before, after))
    costs = Costs(machine)
    totals = [
        sum(_total(one, other.calls, reduces, costs, afterwards) for reduces in (True, False))
        for one, other in ((first, second), (second, first))
    ]
    if not all(map(isfinite, totals)):
        return None
    return totals[0] / totals[1] if totals[1] else 1.0


@frozen(eq=False)
class _Operations:
    """The workloads of a graph.

    Attributes:
        calls: How often it has each.
        nodes: A node of each.
        readers: Who reads what.
    """

    calls: Counter[Workload]
    nodes: Mapping[Workload, Node]
    readers: Mapping[object, list[tuple[Node | None, int]]]

    @staticmethod
    def of(graph: Graph) -> _Operations:
        """Cost of a graph; bodies of loops are left out."""
        found = [(it.operation, it) for it in graph.nodes if isinstance(it.operation, Workload)]
        return _Operations(Counter(it for it, _ in found), dict(found), readers(graph))

    def alone(self, workload: Workload) -> Graph:
        """A network of an operation and of what follows it, as long as nothing else reads it."""
        chain = [self.nodes[workload]]
        while len(chain) <= _FOLLOWERS and len(chain[-1].results) == 1:
            who = self.readers.get(results_of(chain[-1])[0].key, [])
            node = who[0][0] if len(who) == 1 else None
            if node is None or isinstance(node.operation, Loop):
                break
            chain.append(node)
        new: dict[object, Value] = {}
        inputs: list[Value] = []
        for node in chain:
            for value in node.operands:
                if value.constant is None and value.key not in new:
                    inputs.append(input_value(f"x{len(inputs)}", value.shape, value.dtype))
                    new[value.key] = inputs[-1]
            made = evolve(node, operands=tuple(new.get(it.key, it) for it in node.operands))
            new |= {
                it.key: own for it, own in zip(results_of(node), results_of(made), strict=True)
            }
        return Graph(tuple(inputs), {"result": new[results_of(chain[-1])[0].key]})


def _total(
    operations: _Operations,
    others: Counter[Workload],
    reduces: bool,
    costs: Costs,
    afterwards: Passes,
) -> float:
    """The expected cost of what a form has more of than another one."""
    sizes = {
        workload: calls * _size(workload)
        for workload, calls in (operations.calls - others).items()
        if (_reduces(workload) if reduces else _moves(workload))
    }
    taken = sorted(sizes, key=sizes.__getitem__, reverse=True)[:_MOST]
    if not taken:
        return 0.0
    total = 0.0
    for workload in taken:
        found = [workload]
        if reduces:
            made = programs(operations.alone(workload), costs.machine, afterwards)
            found = [it for it in made if _reduces(it)]
        total += operations.calls[workload] * sum(map(costs.of, found))
    return total * sum(sizes.values()) / sum(sizes[it] for it in taken)


def programs(graph: Graph, machine: Target, afterwards: Passes) -> Counter[Workload]:
    """Programs that a graph is cut into, and their numbers of calls."""
    for each in afterwards:
        graph, _ = each(graph, machine)
    operations = (node.operation for node in graph.nodes)
    return Counter(it for it in operations if isinstance(it, Workload))


def _reduces(workload: Workload) -> bool:
    return any(stage.reduce_axes for stage in workload.stages)


def _moves(workload: Workload) -> bool:
    """Tell if it only moves elements."""
    return all(isinstance(stage.body, Load) and not stage.combiner for stage in workload.stages)


def _size(workload: Workload) -> float:
    """Expected size of a program, in no unit: a byte takes as long as 16 operations."""
    work = sum(stage.points for stage in workload.stages)
    return work / 8 + sum(it.elements for it in workload.tensors.values())


@frozen(eq=False)
class Costs:
    """Expectations of the draft model for programs, each scored once.

    Attributes:
        machine: What they run on.
    """

    machine: Target
    known: dict[Workload, float] = field(factory=dict)

    def of(self, workload: Workload) -> float:
        """Reciprocal of the best score of a few configurations; infinite where there are none."""
        if workload not in self.known:
            self.known[workload] = self._scored(workload)
        return self.known[workload]

    def _scored(self, workload: Workload) -> float:
        limits = _limits(self.machine)
        made = replayable_sketches(workload, self.machine, limits, BUILT_IN_RULES)
        try:
            told = _telling(workload, made)
        except AutotuneError:
            return inf
        if told is None:
            return inf
        sketch, feasible, _ = loosen(told)
        if not feasible.count:
            return inf
        batch = FeasibleSpace({sketch: feasible}).sample(_SAMPLES, np.random.default_rng(0))
        scores = PSA(ModelContext(target=self.machine)).score(batch)
        best = float(scores.max(initial=-inf))
        return 1 / best if best > 0 else inf


def _telling(workload: Workload, sketches: Iterator[Sketch]) -> Sketch | None:
    """The sketch by which a program is judged; to read one takes as long as to score thousands.

    Where many elements are added up, and constants can be packed for it, one that packs them. None
    where there are no sketches.
    """
    terms = max(prod(axis.extent for axis in it.reduce_axes) for it in workload.stages)
    first = next(sketches, None)
    if first is None or terms < _MANY_TERMS:
        return first
    packed = (it for it in chain([first], sketches) if _packs(it))
    return next(packed, first)


def _packs(sketch: Sketch) -> bool:
    return any(isinstance(step, Prepack) for step in sketch.steps)


def _limits(machine: Target) -> ScheduleLimits:
    """Limits of a network's programs on a machine."""
    if machine.kind == "cpu":
        return NativeBackend().limits(machine)
    return ScheduleLimits(frozenset(STEP_TYPES), _THREAD_BYTES, _UNROLLED, "registers of a thread")


_SCHEMA = "autotune.layout_speedups"
_VERSION = 1
_MOST_KEPT = 1000
"""Answers that are kept; the oldest are forgotten first."""


def user_file() -> Path | None:
    """``autotune/layouts.json`` in this user's folder for caches; None for one without a home."""
    folder = user_cache_folder()
    return None if folder is None else folder / "layouts.json"


@frozen
class KeptSpeedups:
    """Expected speedups by a key that says all that they depend on.

    A file that is damaged, or of another version, counts as empty, and one that cannot be written
    keeps nothing: then speedups are expected anew each time. Of processes that write at once, the
    last one wins.

    Attributes:
        path: The file; its folder is made when something is kept.
    """

    path: Path

    def find(self, key: str) -> tuple[float | None] | None:
        """Return the speedup of a key, or None for what cannot be expressed, if it is known."""
        speedups = self._read()
        return (speedups[key],) if key in speedups else None

    def keep(self, key: str, speedup: float | None) -> None:
        """Remember it."""
        speedups = {name: known for name, known in self._read().items() if name != key}
        newest = [*speedups.items(), (key, speedup)][-_MOST_KEPT:]
        text = json.dumps({"schema": _SCHEMA, "version": _VERSION, "speedups": dict(newest)})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as stream:
                stream.write(text.encode())
        except (OSError, InvalidValueError):
            return

    def _read(self) -> Mapping[str, float | None]:
        try:
            data = json.loads(self.path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(data, dict) or data.get("schema") != _SCHEMA:
            return {}
        speedups = data.get("speedups")
        if data.get("version") != _VERSION or not isinstance(speedups, dict):
            return {}
        return {key: value for key, value in speedups.items() if _is_speedup(value)}


def _is_speedup(value: object) -> bool:
    # Infinities and NaN, which Python's JSON has, are no speedups.
    return value is None or (type(value) is float and 0 < value < float("inf"))
