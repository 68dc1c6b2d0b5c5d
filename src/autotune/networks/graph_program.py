"""A graph, prepared and cut into tasks: one for each workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from autotune.backends import InvalidSchedule
from autotune.errors import InvalidValueError
from autotune.ir.element_types import element_type
from autotune.ir.workloads import Workload
from autotune.networks.arrays import as_numpy, numpy_type, stored_array
from autotune.networks.asked_inputs import FixedInputs
from autotune.networks.comparison import compare_outputs
from autotune.networks.cuda_build import checked_on_device, compile_device_network
from autotune.networks.cuda_plan import DeviceCheck
from autotune.networks.cuda_programs import device_backend
from autotune.networks.draft import draft_candidate
from autotune.networks.frontend import (
    CompiledNetwork,
    LoadOptions,
    NetworkProgram,
    NetworkTask,
    Rival,
)
from autotune.networks.graph import Graph, evaluate
from autotune.networks.graph_examples import graph_examples
from autotune.networks.library.saving import Held, MadeFor, check_saving, save_library
from autotune.networks.passes.pipeline import run_passes
from autotune.networks.plan.cpu_network import compile_network
from autotune.networks.plan.elsewhere import compile_elsewhere, lacks_here, printed_for
from autotune.networks.plan.loading import BuiltPlan
from autotune.networks.task_names import task_names
from autotune.networks.tensors import NetworkTensor
from autotune.sketches import Candidate
from autotune.store.records import Record
from autotune.targets import Target

__all__ = ["GraphProgram", "GraphSource", "Yardstick"]

Array = NDArray[Any]
Form = Callable[[Path, Mapping[str, Record]], "tuple[str, ...]"]
_Compared = tuple[tuple[Array, ...], tuple[Any, ...]]
"""Inputs, and what a model makes of them."""

_QUANTISED = ("int8", "uint8")


def _untimed(arrays: Sequence[Array], threads: int, seconds: float) -> Rival | None:
    return None


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
        """As :meth:`example_inputs`, with small and large numbers where the network takes them.

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
        save = partial(self._save, MadeFor(self.name, target, threads), chosen)
        if lacks_here(target):
            return compile_elsewhere(self.graph, schedules, target, threads, save, names)
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
        self,
        made_for: MadeFor,
        chosen: Mapping[str, Record | None],
        built: BuiltPlan,
        path: Path,
    ) -> tuple[str, ...]:
        """Write a library, or another form that the source has, by the ending of the name."""
        if path.suffix not in self._source.forms:
            return save_library(made_for, built, path, held=self._held())
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
