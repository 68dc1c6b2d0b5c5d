"""Modules that run: what calls the functions, on numpy arrays and torch tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from autotune.backends import NativeBoundCall, aligned_copy, aligned_empty
from autotune.networks import CompiledNetwork, NetworkTensor
from autotune.networks.arrays import aligned_inputs, converter_to, random_examples
from autotune_mlir.code_generation import Generated
from autotune_mlir.executable import bound_call
from autotune_mlir.networks.module_library import write_library
from autotune_mlir.networks.units import Unit

if TYPE_CHECKING:
    from autotune_mlir.networks.program import ModuleProgram

__all__ = ["ModuleNetwork"]

Array = NDArray[Any]


class ModuleNetwork(CompiledNetwork):
    """A compiled module.

    Args:
        kernel: What calls its functions.
        units: The functions that were compiled by themselves, by name.
        program: The module.
    """

    def __init__(
        self, kernel: Generated, units: Mapping[str, Unit], program: ModuleProgram
    ) -> None:
        self._kernel = kernel
        self._units = units
        self._program = program

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Inputs that are contiguous and begin at a multiple of 64 bytes are read where they lie,
        others are copied.

        Raises:
            InvalidValueError: an input is missing, or of another shape or type.
        """
        convert = converter_to(inputs[0] if inputs else None)
        return tuple(convert(array) for array in self.run(inputs))

    def run(self, inputs: Sequence[Any]) -> tuple[Array, ...]:
        """As a call, with numpy arrays as outputs."""
        call, outputs = self._bound(inputs)
        call.run()
        return outputs

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write the schedules of the functions as a library of the Transform dialect.

        The module with which they work in any case is written beside it.

        Raises:
            InvalidValueError: a file cannot be written.
        """
        return write_library(Path(path), self._program, self._units)

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, after one that is not counted."""
        call, _ = self._bound(inputs)
        call.run()
        seconds = []
        for _ in range(repeats):
            begin = perf_counter()
            call.run()
            seconds.append(perf_counter() - begin)
        return tuple(seconds)

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each function in one inference, by its name.

        Each is timed by itself, on random numbers. Functions that cannot be are left out, as is
        what a function computes beside calling others.
        """
        return {
            task.name: task.occurrences * _seconds(self._units[task.name])
            for task in self._program.tasks
            if task.name in self._units
        }

    def _bound(self, inputs: Sequence[Any]) -> tuple[NativeBoundCall, tuple[Array, ...]]:
        given = aligned_inputs(self._program.inputs, inputs)
        outputs = tuple(aligned_empty(it.shape, it.dtype) for it in self._program.outputs)
        return bound_call(self._kernel, given, outputs), outputs


def _seconds(unit: Unit) -> float:
    """How long one call takes; the second one counts, for the first one maps memory."""
    inputs = [NetworkTensor(kind.element, kind.shape, kind.dtype) for kind in unit.function.inputs]
    given = [aligned_copy(array) for array in random_examples(inputs)]
    made = [aligned_empty(kind.shape, kind.dtype) for kind in unit.function.outputs]
    call = bound_call(unit.generated, given, made, entry=unit.entry)
    call.run()
    return call.time(1)
