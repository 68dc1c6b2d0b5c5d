"""A graph, prepared and cut into tasks, one for each workload; its examples and drafts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from attrs import define, evolve, field, frozen
from numpy.typing import NDArray

from autotune.backends import InvalidSchedule
from autotune.backends.native import NativeBackend
from autotune.errors import AutotuneError, InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.expressions import Binary, Cast, IndexValue, Load, ScalarExpr, loads, var
from autotune.ir.expressions.scalar import walk
from autotune.ir.workloads import Stage, Workload
from autotune.models import ModelContext
from autotune.models.pruning import PSA
from autotune.networks.fixed_inputs import FixedInputs
from autotune.networks.frontend import (
    CompiledNetwork,
    LoadOptions,
    NetworkProgram,
    NetworkTask,
    Rival,
)
from autotune.networks.graph import Graph, Loop, Node, Requirement, Value, evaluate
from autotune.networks.library.saving import Held, check_saving, save_library
from autotune.networks.passes.pipeline import run_passes
from autotune.networks.plan.cpu_network import BuiltPlan, compile_network, printed_for
from autotune.networks.plan.cuda_network import (
    checked_on_device,
    compile_device_network,
    device_backend,
)
from autotune.networks.running import compare_outputs
from autotune.runtime.arrays import NetworkTensor, as_numpy, numpy_type, stored_array
from autotune.runtime.calling import DeviceCheck
from autotune.sketches import Candidate, Sketch
from autotune.spaces import FeasibleSpace
from autotune.spaces.feasible import FeasibleSet
from autotune.spaces.rules import generate_sketches
from autotune.spaces.sketch_space import BUILT_IN_RULES, loosen
from autotune.store.records import Record
from autotune.targets import Target

__all__ = [
    "EDGES",
    "GraphProgram",
    "GraphSource",
    "Yardstick",
    "draft_candidate",
    "graph_examples",
    "task_names",
    "timed_rival",
]

Array = NDArray[Any]
Form = Callable[[Path, Mapping[str, Record]], "tuple[str, ...]"]
_Compared = tuple[tuple[Array, ...], tuple[Any, ...]]
"""Inputs, and what a model makes of them."""

_QUANTISED = ("int8", "uint8")


def _untimed(arrays: Sequence[Array], threads: int, seconds: float) -> Rival | None:
    return None


def timed_rival(name: str, run: Callable[[], object], seconds: float) -> Rival:
    """Another runtime with its median over about so many seconds, after one call that is none."""
    run()
    samples: list[float] = []
    end = perf_counter() + seconds
    while not samples or perf_counter() < end:
        begin = perf_counter()
        run()
        samples.append(perf_counter() - begin)
    return Rival(name, median(samples))


@frozen(eq=False)
class Yardstick:
    """Runtime that computes a model besides us.

    Attributes:
        name: Of it, with its version, for messages.
        run: From arrays for the inputs of the graph to those of its outputs; None where it lacks
            something that the model needs.
        time: From such arrays, threads and seconds to what it takes with all its optimisations;
            None where there is nothing to compare with.
    """

    name: str
    run: Callable[[Sequence[Array]], tuple[Array, ...] | None]
    time: Callable[[Sequence[Array], int, float], Rival | None] = _untimed


@frozen(eq=False)
class GraphSource:
    """A model as a reader gives it.

    Attributes:
        name: What a person calls it.
        graph: What was read.
        fixed: What became of what a person says of its inputs.
        yardstick: What its outputs are compared with; None for the graph itself, in numpy.
        writes: Names of inputs, and of the state, that the model writes: their new values are its
            first outputs.
        state: What its last inputs begin with, which the network holds itself, by name.
        is_prepared: Whether its nodes are tasks as they are: no pass runs.
        forms: Files besides libraries that its networks are written as: by the ending of the name
            what writes one, from its path and the record of each workload by digest, and returns
            remarks.
    """

    name: str
    graph: Graph
    fixed: FixedInputs
    yardstick: Yardstick | None = None
    writes: tuple[str, ...] = ()
    state: Mapping[str, Array] = field(factory=dict)
    is_prepared: bool = False
    forms: Mapping[str, Form] = field(factory=dict)


class GraphProgram(NetworkProgram):
    """A network whose tasks are workloads.

    Attributes:
        graph: What the passes made; for a device with further outputs, which are checked there.
    """

    backend = "native"

    def __init__(self, source: GraphSource, options: LoadOptions) -> None:
        self.name = source.name
        self.fixed = source.fixed
        self.writes = source.writes
        self.state = source.state
        self.eps = _coarsest(source.graph)
        self.inputs = tuple(
            NetworkTensor(it.name, it.shape, it.dtype)
            for it in source.graph.inputs
            if it.name not in source.state
        )
        self.outputs = tuple(
            NetworkTensor(name, it.shape, it.dtype) for name, it in source.graph.outputs.items()
        )
        self._source = source
        graph, self._checks = source.graph, tuple[DeviceCheck, ...]()
        if options.target.kind == "cuda":
            self.backend = device_backend(options.target.kind).name
            graph, self._checks = checked_on_device(graph)
        self.graph, self.passes = graph, ()
        if not source.is_prepared:
            self.graph, self.passes = run_passes(
                graph,
                _scheduled_for(options.target),
                options.threads,
                options.passes,
                options.on_pass,
            )
        self.tasks: tuple[NetworkTask, ...] = _tasks(self.graph)
        self.weight_bytes = _constant_bytes(self.graph)
        self._checked: _Compared | None = None
        self._drafts: dict[tuple[str, str], Candidate | None] = {}

    def example_inputs(self) -> tuple[Any, ...]:
        """Inputs that it was loaded with, else random ones of one seed."""
        if self._source.fixed.examples is not None:
            return self._source.fixed.examples
        return self._examples()

    def _examples(self, edges: bool = False) -> tuple[Array, ...]:
        return graph_examples(self._source.graph, edges=edges)[: len(self.inputs)]

    def check_inputs(self) -> tuple[Any, ...]:
        """Make inputs as :meth:`example_inputs`, with small and large numbers where they may be.

        It takes those of which it makes numbers.
        """
        if self._source.fixed.examples is not None or self.wide is not None:
            return self.example_inputs()
        if self._checked is None:
            self._checked = self._edges() or self._compared(self._examples())
        return self._checked[0]

    def _edges(self) -> _Compared | None:
        """Inputs with small and large numbers; None where the model makes no numbers of them."""
        try:
            found = self._compared(self._examples(edges=True))
        except InvalidValueError:
            return None
        return found if all(map(_are_numbers, found[1])) else None

    def _compared(self, inputs: tuple[Array, ...]) -> _Compared:
        """Inputs, and what the model makes of them."""
        return inputs, self.reference(inputs)

    def reference(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Outputs of :attr:`yardstick`: a runtime of the source, else the graph as it was read.

        Raises:
            InvalidValueError: an input holds what leads to a division by zero or an index out of
                range.
        """
        if self._checked is not None and self._checked[0] is inputs:
            return self._checked[1]
        arrays = self._arrays(inputs)
        other = self._source.yardstick
        found = None if other is None else other.run(arrays)
        if other is not None and found is not None:
            self.yardstick = other.name
            return found
        lacking = "" if other is None else f", as {other.name} cannot run the model"
        self.yardstick = f"the graph that was read, in numpy{lacking}"
        return self._evaluated(arrays)

    def suspect(self, inputs: Sequence[Any], wanted: Sequence[Any], found: Sequence[Any]) -> str:
        """Suspect of wrong outputs: the reading of the model, or what is behind it."""
        read = self._evaluated(self._arrays(inputs))

        def agrees(arrays: Sequence[Any]) -> bool:
            return all(it.ok for it in compare_outputs(self.outputs, read, arrays, eps=self.eps))

        if agrees(found) and not agrees(wanted):
            return (
                f"what was read of the model computes the same as the network, and "
                f"{self.yardstick} something else: no pass is at fault, but one of the two readers"
            )
        return super().suspect(inputs, wanted, found)

    def rival(self, inputs: Sequence[Any], threads: int, seconds: float) -> Rival | None:
        """The runtime that outputs are compared with, with all its optimisations."""
        other = self._source.yardstick
        if other is None:
            return None
        return other.time(self._arrays(inputs), threads, seconds)

    def _arrays(self, inputs: Sequence[Any]) -> list[Array]:
        """The inputs of the graph: those that are given, and the state as it begins."""
        return [*map(as_numpy, inputs), *self.state.values()]

    def build(
        self, chosen: Mapping[str, Record | None], target: Target, threads: int
    ) -> CompiledNetwork:
        """Compile the network.

        A task without a record has the best schedule by the draft model; for a device it has the
        default one of the device's backend.

        Raises:
            BuildFailed: the compiler rejected it; names the task.
            InvalidSchedule: a record cannot be printed; names the task.
            UnsupportedTarget: it is no CPU of x86-64 or AArch64; or no backend makes programs for
                such a device.
        """
        names = {
            it.program.digest: it.name for it in self.tasks if isinstance(it.program, Workload)
        }
        if target.kind == "cuda":
            return compile_device_network(self.graph, self._checks, names, chosen, target)
        machine = _scheduled_for(target).with_cores(threads)
        schedules = {
            it.program.digest: self._scheduled(it.name, it.program, chosen.get(it.name), machine)
            for it in self.tasks
            if isinstance(it.program, Workload)
        }
        save = partial(self._save, chosen)
        return compile_network(self.graph, schedules, target, threads, names, save)

    def _held(self) -> tuple[Held, ...]:
        """Arrays that a library keeps between calls."""
        inputs = [it.name for it in self._source.graph.inputs]
        return tuple(
            Held(
                inputs.index(name), self.writes.index(name), stored_array(array, str(array.dtype))
            )
            for name, array in self.state.items()
        )

    def _save(
        self, chosen: Mapping[str, Record | None], built: BuiltPlan, path: Path
    ) -> tuple[str, ...]:
        """Write a library, or another form that the source has, by the ending of the name."""
        if path.suffix not in self._source.forms:
            return save_library(self.name, built, path, held=self._held())
        records = {
            it.program.digest: record
            for it in self.tasks
            if isinstance(it.program, Workload) and (record := chosen.get(it.name)) is not None
        }
        return self._source.forms[path.suffix](path, records)

    def _scheduled(
        self, name: str, workload: Workload, record: Record | None, machine: Target
    ) -> Candidate | None:
        """The schedule of a task; None for loops over its axes."""
        if record is not None:
            return _recorded(name, workload, record)
        return self._draft(workload, machine)

    def refuses(self, record: Record, target: Target) -> str:
        """Return why a network is not built of a record: only its own backend can apply it."""
        return _refusal(record) if target.kind == "cpu" else ""

    def check_saving(self, path: Path, target: Target) -> None:
        """Check that a library for a CPU can be written to a path.

        Raises:
            InvalidValueError: there is no such folder, or the name has another ending.
            BuildFailed: there is no C compiler.
        """
        if target.kind == "cpu" and path.suffix not in self._source.forms:
            check_saving(path, target)

    def _draft(self, workload: Workload, machine: Target) -> Candidate | None:
        key = workload.digest, machine.fingerprint
        if key not in self._drafts:
            self._drafts[key] = draft_candidate(workload, machine)
        return self._drafts[key]

    def _evaluated(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The outputs of the graph as it was read, in numpy."""
        given = {
            it.name: stored_array(array, it.dtype)
            for it, array in zip(self._source.graph.inputs, arrays, strict=True)
        }
        found = evaluate(self._source.graph, given)
        return tuple(found[it.name].view(numpy_type(it.dtype)) for it in self.outputs)


def _scheduled_for(target: Target) -> Target:
    """Target that passes and the draft model are asked for."""
    return printed_for(target) if target.kind == "cpu" else target


def _refusal(record: Record) -> str:
    """Reason why a schedule cannot be printed, in a line; "" where it can be."""
    sketch = record.candidate.sketch
    if record.scheduled is None or not sketch.is_opaque:
        return ""
    return (
        f"record {record.name} is a schedule that only backend {record.key.backend!r} can apply "
        f"(sketch {sketch.name!r}), and no part of a network"
    )


def _recorded(name: str, workload: Workload, record: Record) -> Candidate | None:
    """The schedule of a record for a workload; None for its untuned program."""
    own = record.candidate.sketch
    if own.workload.digest != workload.digest:
        raise InvalidSchedule(
            f"task {name!r}: record {record.name} is of workload {own.workload.name!r}, which "
            "computes something else"
        )
    if record.scheduled is None:
        return None
    if refusal := _refusal(record):
        raise InvalidSchedule(f"task {name!r}: {refusal}")
    return record.on(workload, None).scheduled


@define
class _Counted:
    """A workload of a graph: the first of those that are equal, and what calls them."""

    workload: Workload
    calls: int = 0
    nodes: dict[str, None] = field(factory=dict)


def _tasks(graph: Graph) -> tuple[NetworkTask, ...]:
    """A task for each workload, in the order of the first call."""
    found: dict[str, _Counted] = {}
    for node, times in graph.runs:
        workload = node.operation
        if not isinstance(workload, Workload):
            continue
        counted = found.setdefault(workload.digest, _Counted(workload))
        counted.calls += times
        counted.nodes.update(dict.fromkeys(node.label.split("+")))
    names = task_names([it.workload for it in found.values()])
    return tuple(
        NetworkTask(name, it.workload, it.calls, float(it.workload.flop), tuple(it.nodes))
        for name, it in zip(names, found.values(), strict=True)
    )


def _constant_bytes(graph: Graph) -> int:
    read = (it for node, _ in graph.runs for it in node.operands)
    found = {it.key: it.constant for it in (*read, *graph.outputs.values())}
    return sum(array.nbytes for array in found.values() if array is not None)


def _coarsest(graph: Graph) -> float:
    """``eps`` of the floats inside that have the fewest digits; 0 where there are none.

    Bytes that floats are rounded to have about as many as bfloat16.
    """
    found = [0.0]
    for node, _ in graph.runs:
        types = {dtype for _, dtype in node.results}
        found += [element_type(it).eps for it in types]
        reads_floats = any(element_type(it.dtype).is_float for it in node.operands)
        if reads_floats and types & {*_QUANTISED} and isinstance(node.operation, Workload):
            found.append(element_type("bfloat16").eps)
    return max(found)


def _are_numbers(array: Any) -> bool:
    return bool(np.isfinite(np.asarray(array).astype(np.float64)).all())


_SAMPLES = 128


def draft_candidate(workload: Workload, machine: Target) -> Candidate | None:
    """The best of a few configurations by the draft model; nothing is compiled or timed.

    They are of the first and of the last sketch of the search space: to read a sketch takes as
    long as to score thousands of configurations, and more of these make up for the others. The
    same workload gets the same one in every process.

    Args:
        workload: What it computes.
        machine: A CPU, with as many cores as there are threads.

    Returns:
        None where the search space refuses the workload: there are only loops over its axes.
    """
    limits = NativeBackend().limits(machine)
    try:
        made = generate_sketches(workload, machine, limits, BUILT_IN_RULES).sketches
        chosen = {**_first_feasible(made), **_first_feasible(reversed(made))}
        if not chosen:
            return None
        batch = FeasibleSpace(chosen).sample(_SAMPLES, np.random.default_rng(0))
        scores = PSA(ModelContext(target=machine)).score(batch)
    except AutotuneError:
        return None
    if not np.isfinite(scores).any():
        return None
    # Of a number that is none nothing is known.
    best = int(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)))
    return list(batch)[best]


def _first_feasible(sketches: Iterable[Sketch]) -> dict[Sketch, FeasibleSet]:
    """The first one that has configurations, with these; empty where none has."""
    for made in sketches:
        sketch, feasible, _ = loosen(made)
        if feasible.count:
            return {sketch: feasible}
    return {}


_LENGTH = 40
_WINDOW = re.compile(r"k\d")


def task_names(workloads: Sequence[Workload]) -> list[str]:
    """A name for each, all different: ``conv2d_3x3_relu``, ``matmul_add``, ``matmul_add_2``.

    Args:
        workloads: In the order of their first call, named after their operators with a ``+``
            between them.
    """
    taken: dict[str, None] = {}
    for workload in workloads:
        base = _base(workload)
        numbered = (f"{base}_{number}" for number in count(2))
        name = base if base not in taken else next(it for it in numbered if it not in taken)
        taken[name] = None
    return list(taken)


def _base(workload: Workload) -> str:
    """The operators of a workload, as many of them as are not too long together."""
    first, *others = workload.name.replace("max+min", "clip").split("+")
    words = [_with_window(first, workload), *others]
    while len("_".join(words)) > _LENGTH and len(words) > 1:
        words.pop()
    return "_".join(words)[:_LENGTH]


def _with_window(name: str, workload: Workload) -> str:
    """``convolution`` with the number of its dimensions and the extents of its window."""
    for stage in workload.stages:
        window = [it.extent for it in stage.reduce_axes if _WINDOW.fullmatch(it.name)]
        if window and "convolution" in name:
            short = name.replace("convolution", f"conv{len(window)}d")
            return f"{short}_{'x'.join(map(str, window))}"
    return name


EDGES = (0.0, -0.0, 1e-4, -1e-4, 16.0, -16.0)
"""Numbers that are none, small or large beside those of a normal distribution. Larger ones would
hide what is wrong elsewhere, and smaller ones are slow on some processors."""
_EDGE_SHARE = 1 / 16


@frozen
class _Use:
    """Conditions on the elements of an input.

    Attributes:
        low: The smallest one that is allowed.
        high: The largest one.
        nonzero: Whether integers are divided by them.
        is_computed: Whether that is said of what is computed of them.
    """

    low: float = -np.inf
    high: float = np.inf
    nonzero: bool = False
    is_computed: bool = False

    def with_other(self, other: _Use) -> _Use:
        """Both conditions."""
        return _Use(
            max(self.low, other.low),
            min(self.high, other.high),
            self.nonzero or other.nonzero,
            self.is_computed or other.is_computed,
        )


def graph_examples(graph: Graph, edges: bool = False) -> tuple[Array, ...]:
    """Random inputs of one seed: those that indices and divisors may be, others as they come.

    Floats are normally distributed. Integers that are compared with all of a range, as those of
    which one-hot vectors are made, are of that range. Others from which indices or divisors are
    computed, and those of more than 8 bits of which nothing is known, are 0 or 1, as every table
    has these.

    Args:
        graph: The network as it was read.
        edges: Whether some of the floats are among :data:`EDGES`.
    """
    uses = _uses(graph)
    rng, marks = np.random.default_rng(0), np.random.default_rng(1)
    found = []
    for value in graph.inputs:
        use = uses.get(value.name)
        if "float" in value.dtype and (use is None or use.is_computed):
            drawn = rng.standard_normal(value.shape)
            if edges and value.size > 1:
                chosen = marks.random(value.shape) < _EDGE_SHARE
                drawn = np.where(chosen, marks.choice(EDGES, value.shape), drawn)
        else:
            drawn = _whole(value, use, rng)
        found.append(drawn.astype(numpy_type(value.dtype)))
    return tuple(found)


def _whole(value: Value, use: _Use | None, rng: np.random.Generator) -> Array:
    """Whole numbers that are allowed."""
    low, high = 0.0, 1.0
    if use is None and value.dtype in ("int8", "uint8"):
        limits = np.iinfo(value.dtype)
        low, high = limits.min, limits.max
    elif use is not None and not use.is_computed and np.isfinite((use.low, use.high)).all():
        low, high = use.low, max(use.low, use.high)
    if use is not None and use.nonzero:
        low, high = max(low, 1.0), max(high, 2.0)
    if value.dtype == "bool":
        low, high = 0.0, 1.0
    return rng.integers(int(low), int(high), value.shape, endpoint=True)


def _uses(graph: Graph) -> dict[str, _Use]:
    """The conditions on each input of which there are some, by its name."""
    found: dict[str, _Use] = {}
    for value, use in _conditions(graph):
        for source, own in _sources(value, use):
            found[source.name] = found.get(source.name, _Use()).with_other(own)
    return found


def _conditions(graph: Graph) -> Iterator[tuple[Value, _Use]]:
    """Values of a graph on which there are conditions, in bodies of loops, too."""
    for node in graph.nodes:
        for it in node.requirements:
            yield node.operands[it.operand], _use_of(it)
        yield from _choices(node)
        if isinstance(node.operation, Loop):
            inner = _uses(node.operation.body)
            for value, own in zip(node.operands, node.operation.body.inputs, strict=True):
                if own.name in inner:
                    yield value, inner[own.name]


def _choices(node: Node) -> Iterator[tuple[Value, _Use]]:
    """Whole numbers that are compared with all of a range, so that they choose of it."""
    stage = node.pointwise
    if stage is None:
        return
    operands = node.named_operands
    for body in walk(stage.body):
        if not isinstance(body, Binary) or body.op != "eq":
            continue
        for one, other in ((body.left, body.right), (body.right, body.left)):
            limits = _limits(one, stage, operands)
            if limits is None:
                continue
            for value in (operands[load.tensor] for load in loads(other)):
                if value.constant is None and value.dtype.removeprefix("u").startswith("int"):
                    yield value, _Use(*limits)


def _limits(
    body: ScalarExpr, stage: Stage, operands: Mapping[str, Value]
) -> tuple[int, int] | None:
    """The least and the largest of a range that a body walks through; None where it is none."""
    body = body.operand if isinstance(body, Cast) else body
    if isinstance(body, IndexValue):
        extents = [it.extent for it in stage.axes if body.index == var(it.name)]
        return (0, extents[0] - 1) if extents else None
    known = operands[body.tensor].constant if isinstance(body, Load) else None
    if known is None or known.size < 2 or known.dtype.kind not in "iu":
        return None
    return int(known.min()), int(known.max())


def _use_of(requirement: Requirement) -> _Use:
    low, high = (
        [] if it is None else [it] if isinstance(it, int) else list(it)
        for it in (requirement.low, requirement.high)
    )
    return _Use(max(low, default=-np.inf), min(high, default=np.inf), requirement.nonzero)


def _sources(value: Value, use: _Use) -> Iterator[tuple[Value, _Use]]:
    """The inputs that a value is, elsewhere or in another type, or is computed of."""
    while not value.is_input and (before := _moved(value.node)) is not None:
        value = before
    if value.is_input:
        yield value, use
        return
    computed = evolve(use, is_computed=True)
    waiting, seen = [value], set()
    while waiting:
        value = waiting.pop()
        if value.is_input:
            yield value, computed
        elif value.node is not None and id(value.node) not in seen:
            seen.add(id(value.node))
            waiting.extend(value.node.operands)


def _moved(node: Node | None) -> Value | None:
    """Value that a node only moves, or converts."""
    if node is None or node.is_reshape:
        return None if node is None else node.operands[0]
    if node.pointwise is None:
        return None
    body = node.pointwise.body
    body = body.operand if isinstance(body, Cast) else body
    return node.operands[0] if isinstance(body, Load) and len(node.operands) == 1 else None
