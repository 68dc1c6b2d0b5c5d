"""A graph run node by node, its workloads compiled by the built-in backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.backends import BuildRequest, Executable
from autotune.backends.arrays import ALIGNMENT, aligned_copy, aligned_empty
from autotune.backends.native import NativeBackend
from autotune.ir.workloads import Workload
from autotune.networks.graph.evaluator import RunNode, run_graph
from autotune.networks.graph.graph import Graph
from autotune.sketches import Candidate
from autotune.targets import Target

__all__ = ["CompiledGraph", "compile_graph"]

Array = NDArray[Any]


class CompiledGraph(RunNode):
    """A graph whose workloads are machine code; operators of the host run in numpy.

    Args:
        graph: The network.
        programs: Of each of its workloads, by :attr:`~autotune.ir.workloads.Workload.spelling`.
    """

    def __init__(self, graph: Graph, programs: Mapping[str, Executable]) -> None:
        self.graph = graph
        self._programs = programs
        self._aligned = {
            id(value.constant): aligned_copy(value.constant)
            for value in graph.constants
            if value.constant is not None
        }

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs by name; as :func:`~autotune.networks.graph.evaluate` has them.

        Args:
            inputs: An array for each input, as programs have it.

        Raises:
            InvalidValueError: an input is missing, has another shape or type, or holds what leads
                to a division by zero or an index out of range.
        """
        return run_graph(self.graph, inputs, self)

    def workload(self, workload: Workload, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """The results of a workload, in memory of their own."""
        tensors = [workload.tensors[name] for name in workload.outputs]
        outputs = [aligned_empty(tensor.shape, tensor.element.dtype) for tensor in tensors]
        program = self._programs[workload.spelling]
        program.bind([self._placed(array) for array in arrays], outputs).run()
        return tuple(outputs)

    def _placed(self, array: Array) -> Array:
        """An array where programs can read it."""
        known = self._aligned.get(id(array))
        if known is not None:
            return known
        is_placed = array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0
        return array if is_placed else aligned_copy(array)


def _untuned(workload: Workload) -> Candidate | None:
    return None


def compile_graph(
    graph: Graph,
    target: Target,
    threads: int = 1,
    schedule: Callable[[Workload], Candidate | None] = _untuned,
) -> CompiledGraph:
    """Compile every workload of a graph, equal ones once.

    Args:
        graph: The network.
        target: A CPU.
        threads: How many threads programs use.
        schedule: Of each workload its schedule; None for loops over the axes as they are.

    Raises:
        UnsupportedTarget: it is no x86-64 CPU, or has what this one lacks.
        InvalidSchedule: a workload cannot be printed.
    """
    backend = NativeBackend()
    backend.check_measuring(target, threads)
    programs = {}
    for workload in graph.workloads:
        backend.check_workload(workload)
        request = BuildRequest(workload, None, schedule(workload), target, threads)
        programs[workload.spelling] = backend.build(request)
    return CompiledGraph(graph, programs)
