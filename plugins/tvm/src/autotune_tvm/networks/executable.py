"""Networks that run: Relax's virtual machine on numpy arrays and torch tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import InvalidValueError
from autotune.networks import CompiledNetwork, NetworkTensor
from autotune.networks.arrays import aligned_inputs, converter_to
from autotune_tvm import runtime
from autotune_tvm.compiler import brief
from autotune_tvm.networks.graph import ENTRY
from autotune_tvm.networks.native_messages import without_messages
from autotune_tvm.networks.sources.source import flat_outputs

__all__ = ["RelaxNetwork"]

Array = NDArray[Any]

_WARM_SECONDS = 1.0
_PROFILED_SECONDS, _MOST_PROFILED = 0.3, 25


class RelaxNetwork(CompiledNetwork):
    """A compiled Relax module.

    Args:
        executable: What TVM built.
        inputs: Of the network.
        tasks: Names of its functions.
        threads: How many threads it uses.
        packed: How many operands of each function were packed when it was built.
        kernels: What runs the kernels that it is linked with; None where there are none.
    """

    def __init__(
        self,
        executable: Any,
        inputs: Sequence[NetworkTensor],
        tasks: Iterable[str],
        threads: int,
        packed: Mapping[str, int] = MappingProxyType({}),
        kernels: Any = None,
    ) -> None:
        self.packed = packed
        self._executable = executable
        self._inputs = tuple(inputs)
        self._tasks = tuple(tasks)
        self._threads = threads
        # To link it here, too, would be to write all weights into a library first.
        self._linked = list(executable.mod.imports)
        if kernels is not None:
            executable.mod.import_module(kernels)
        self._library = executable.mod
        self._machine = self._new_machine()

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once.

        Inputs that are contiguous and begin at a multiple of 64 bytes are read where they lie,
        others are copied. Outputs share their memory with nothing.

        Raises:
            InvalidValueError: an input is missing, or of another shape or type.
        """
        arguments = self._arguments(inputs)
        runtime.use_threads(self._threads)
        found = flat_outputs(self._machine[ENTRY](*arguments))
        convert = converter_to(inputs[0] if inputs else None)
        return tuple(convert(tensor) for tensor in found)

    def save(self, path: Path | str) -> tuple[str, ...]:
        """Write a shared library with the weights in it; ``tvm.runtime.load_module`` reads it.

        Raises:
            InvalidValueError: the file cannot be written.
        """
        imported = list(self._library.imports)
        try:
            _import_only(self._library, self._linked)
            with without_messages():
                self._executable.export_library(str(path))
        except Exception as error:  # the linker's failure is a RuntimeError, and others
            raise InvalidValueError(f"{str(path)!r} cannot be written: {brief(error)}") from error
        finally:
            _import_only(self._library, imported)
        return ()

    def time_calls(self, inputs: Sequence[Any], repeats: int) -> tuple[float, ...]:
        """Seconds of each of ``repeats`` calls, after one that is not counted."""
        arguments = self._arguments(inputs)
        runtime.use_threads(self._threads)
        function = self._machine[ENTRY]
        function(*arguments)
        seconds = []
        for _ in range(repeats):
            begin = perf_counter()
            function(*arguments)
            seconds.append(perf_counter() - begin)
        return tuple(seconds)

    def profile(self, inputs: Sequence[Any]) -> dict[str, float]:
        """Seconds of all calls of each task in one inference, by name of the task.

        Of several inferences the medians count: on a busy machine a task of microseconds is
        interrupted for milliseconds in some of them. The first one maps memory and is left out,
        which makes no difference to one that takes a second.
        """
        arguments = self._arguments(inputs)
        runtime.use_threads(self._threads)
        machine = self._new_machine()
        watch = _Watch()
        machine.set_instrument(watch)

        def inference() -> list[float]:
            watch.seconds.clear()
            machine[ENTRY](*arguments)
            return [watch.seconds[name] for name in self._tasks]

        found = [inference()]
        if sum(found[0]) < _WARM_SECONDS:
            found = [inference()]
            while len(found) < _MOST_PROFILED and sum(map(sum, found)) < _PROFILED_SECONDS:
                found.append(inference())
        return dict(zip(self._tasks, map(median, zip(*found, strict=True)), strict=True))

    def _new_machine(self) -> Any:
        tvm = runtime.load()
        return tvm.relax.VirtualMachine(self._library, tvm.cpu())

    def _arguments(self, inputs: Sequence[Any]) -> list[Any]:
        return [_as_tensor(array) for array in aligned_inputs(self._inputs, inputs)]


def _import_only(module: Any, imported: Iterable[Any]) -> None:
    module.clear_imports()
    for each in imported:
        module.import_module(each)


def _as_tensor(array: Array) -> Any:
    """An array as a tensor of TVM's, in place."""
    from_dlpack = runtime.load().runtime.from_dlpack
    if str(array.dtype) != "bfloat16":
        return from_dlpack(array)
    # numpy hands over its own types only.
    return from_dlpack(array.view(np.uint16))._create_view(array.shape, "bfloat16")


class _Watch:
    """Adds up the seconds of calls by the name of the function."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._begin = 0.0

    def __call__(
        self, function: Any, name: Any, before: bool, result: Any, *arguments: Any
    ) -> int:
        if before:
            self._begin = perf_counter()
        else:
            self.seconds[str(name)] += perf_counter() - self._begin
        return 0  # go on
