"""A network of the core that runs in this process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import BuildFailed, BuildRequest, Executable, InvalidSchedule
from autotune.backends.native import NativeBackend
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Workload
from autotune.networks.arrays import aligned_inputs, handed_back, stored_array
from autotune.networks.frontend import CompiledNetwork, NetworkTensor
from autotune.networks.graph import Graph
from autotune.networks.graph.executor import CompiledGraph
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["GraphNetwork", "compile_network"]

Array = NDArray[Any]

_PROFILED_SECONDS, _MOST_PROFILED = 0.3, 25


def compile_network(
    graph: Graph,
    candidates: Mapping[str, Candidate | None],
    names: Mapping[str, str],
    outputs: Sequence[NetworkTensor],
    target: Target,
    threads: int,
) -> CompiledNetwork:
    """Compile a graph for a CPU.

    Args:
        graph: After its passes.
        candidates: Schedules of its workloads, by spelling; None for loops over their axes.
        names: Of the workloads' tasks, by spelling.
        outputs: Of the graph, in order.
        target: What the network runs on.
        threads: How many threads it uses.

    Raises:
        BuildFailed: the compiler rejected a program; names the task.
        InvalidSchedule: a schedule cannot be printed; names the task.
        UnsupportedTarget: the target is no x86-64 CPU, or has what this machine lacks.
    """
    backend = NativeBackend()
    backend.check_measuring(target, threads)
    programs: dict[str, Executable] = {}
    for workload in graph.workloads:
        name, candidate = names[workload.spelling], candidates[workload.spelling]
        request = BuildRequest(workload, None, candidate, target, threads)
        try:
            backend.check_workload(workload)
            programs[workload.spelling] = backend.build(request)
        except (BuildFailed, InvalidSchedule) as error:
            raise type(error)(f"task {name!r}: {error}") from error
    return GraphNetwork(graph, names, programs, outputs)


class GraphNetwork(CompiledNetwork):
    """A graph run node by node.

    Args:
        graph: The network.
        names: As of :func:`compile_network`.
        programs: Of its workloads, by their spelling.
        outputs: As of :func:`compile_network`.
    """

    def __init__(
        self,
        graph: Graph,
        names: Mapping[str, str],
        programs: Mapping[str, Executable],
        outputs: Sequence[NetworkTensor],
    ) -> None:
        self._inputs = [NetworkTensor(it.name, it.shape, it.dtype) for it in graph.inputs]
        self._outputs = tuple(outputs)
        self._tasks = tuple(dict.fromkeys(names.values()))
        self._run = _TimedGraph(graph, programs, names)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Raises:
            InvalidValueError: an input is missing, or of another shape or type, or holds what
                leads to a division by zero or an index out of range.
        """
        found = self._run.run(self._arguments(inputs))
        like = inputs[0] if inputs else None
        return tuple(
            # Inputs, constants and views of them belong to others.
            handed_back(np.array(found[it.name]), it.dtype, like)
            for it in self._outputs
        )

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Raises InvalidValueError: there is no form for files."""
        raise InvalidValueError(f"{str(path)!r} cannot be written: networks of ONNX run here only")

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, after one that is not counted."""
        given = self._arguments(inputs)
        self._run.run(given)
        return tuple(self._timed(given) for _ in range(repeats))

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference: medians of several inferences."""
        given = self._arguments(inputs)
        taken = self._timed(given)
        repeats = int(min(max(1, _PROFILED_SECONDS / taken), _MOST_PROFILED))
        found = []
        for _ in range(repeats):
            self._run.seconds.clear()
            self._run.run(given)
            found.append([self._run.seconds[name] for name in self._tasks])
        return dict(zip(self._tasks, map(median, zip(*found, strict=True)), strict=True))

    def _timed(self, given: Mapping[str, Array]) -> float:
        begin = perf_counter()
        self._run.run(given)
        return perf_counter() - begin

    def _arguments(self, inputs: Sequence[Any]) -> dict[str, Array]:
        arrays = aligned_inputs(self._inputs, inputs)
        return {
            it.name: stored_array(array, it.dtype)
            for it, array in zip(self._inputs, arrays, strict=True)
        }


class _TimedGraph(CompiledGraph):
    """Adds up the seconds of calls by the name of the task."""

    def __init__(
        self, graph: Graph, programs: Mapping[str, Executable], names: Mapping[str, str]
    ) -> None:
        super().__init__(graph, programs)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._names = names

    def workload(self, workload: Workload, arrays: Sequence[Array]) -> tuple[Array, ...]:
        begin = perf_counter()
        found = super().workload(workload, arrays)
        self.seconds[self._names[workload.spelling]] += perf_counter() - begin
        return found
