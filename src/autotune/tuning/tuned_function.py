"""A tuned program as a Python callable on numpy arrays."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT, Backend, Executable, aligned_empty
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Tensor, Workload
from autotune.plugins.parts import recorded_part
from autotune.store.records import Record
from autotune.tuning.foreign_programs import build_request, check_build

__all__ = ["TunedFunction", "compile_record"]

Array = NDArray[Any]


class TunedFunction:
    """A compiled program. Call it with the workload's inputs, in order or by name.

    Returns the output array, or a tuple of arrays when the workload has several outputs. Inputs
    are numpy arrays (or what ``numpy.asarray`` takes without changing the type) of exactly the
    workload's shapes and types. They are never changed; those that are contiguous and begin at a
    multiple of ``autotune.backends.ALIGNMENT`` bytes are read where they lie, and others copied.
    Several threads may call it at once.
    """

    def __init__(self, workload: Workload, executable: Executable) -> None:
        self.workload = workload
        self.executable = executable
        # Copies of inputs are kept by each thread: to touch new memory takes longer than to copy.
        self._local = threading.local()

    def __repr__(self) -> str:
        inputs = ", ".join(map(_signature, self.workload.inputs))
        tensors = self.workload.tensors
        outputs = ", ".join(_signature(tensors[name]) for name in self.workload.outputs)
        return f"<tuned {self.workload.name}({inputs}) -> {outputs}>"

    def __call__(
        self, *arrays: Array, out: Array | Sequence[Array] | None = None, **named: Array
    ) -> Array | tuple[Array, ...]:
        """Run once.

        Args:
            arrays: Inputs in the workload's order.
            out: Where to write the output, or the outputs in order: aligned arrays, such as an
                earlier call returned. New ones where it is absent.
            named: Inputs by name.

        Raises:
            InvalidValueError: an array is missing, unknown, of the wrong shape or type, or cannot
                be written to.
        """
        inputs = self._arguments(arrays, named)
        outputs = self._outputs(out)
        if any(np.may_share_memory(array, output) for array in inputs for output in outputs):
            raise InvalidValueError("an array of out shares memory with an input")
        given = [self._placed(*pair) for pair in zip(self.workload.inputs, inputs, strict=True)]
        self.executable.bind(given, outputs).run()
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _outputs(self, out: Array | Sequence[Array] | None) -> list[Array]:
        if out is not None:
            return [out] if isinstance(out, np.ndarray) else list(out)
        tensors = (self.workload.tensors[name] for name in self.workload.outputs)
        return [aligned_empty(tensor.shape, tensor.element.dtype) for tensor in tensors]

    def _placed(self, tensor: Tensor, array: Array) -> Array:
        """An input where programs can read it: where it is, or in this thread's copy."""
        if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
            return array
        copies: dict[str, Array] = self._local.__dict__.setdefault("copies", {})
        if tensor.name not in copies:
            copies[tensor.name] = aligned_empty(tensor.shape, tensor.element.dtype)
        np.copyto(copies[tensor.name], array)
        return copies[tensor.name]

    def _arguments(self, arrays: tuple[Array, ...], named: dict[str, Array]) -> list[Array]:
        inputs = self.workload.inputs
        expected = ", ".join(map(_signature, inputs))
        if len(arrays) > len(inputs):
            raise InvalidValueError(
                f"{self.workload.name} takes {len(inputs)} arrays ({expected}), got {len(arrays)}"
            )
        given = dict(zip((tensor.name for tensor in inputs), arrays, strict=False))
        for name, array in named.items():
            if name in given or name not in {tensor.name for tensor in inputs}:
                problem = "is given twice" if name in given else "is not an input"
                raise InvalidValueError(f"{name!r} {problem}; the inputs are {expected}")
            given[name] = array
        missing = [tensor.name for tensor in inputs if tensor.name not in given]
        if missing:
            raise InvalidValueError(
                f"{self.workload.name} lacks {', '.join(missing)}; the inputs are {expected}"
            )
        return [_checked(tensor, given[tensor.name]) for tensor in inputs]


def compile_record(
    record: Record, program: str | None = None, backend: str | None = None
) -> TunedFunction:
    """Compile a record's candidate in this process.

    A program that the record itself holds was perhaps written by somebody else: it is compiled in
    another process first, which may die of it, and here only if that went well.

    Args:
        record: A record, such as the best of a result or of a database query.
        program: The imported program that the schedule is replayed on, for a record that does not
            have it itself.
        backend: The record's backend, where no plugin registers it: an import string is followed
            only if it is given here, since a record is data.

    Raises:
        UnknownNameError: no plugin registers the backend that the record names.
        InvalidValueError: the record is of another backend than ``backend``.
        InvalidSchedule: the backend refuses the candidate.
        BuildFailed: the compiler rejects it.
        InvalidValueError: the compiler dies of the record's program, or does not end.
    """
    compiler: Backend = recorded_part("backend", record.key.backend, backend)
    # A compiler's runtime reads its thread count when it is first imported; what the user has
    # set is left alone.
    for name, value in compiler.worker_environment(record.key.threads).items():
        os.environ.setdefault(name, value)
    workload = record.candidate.sketch.workload
    if program is None and record.program is not None:
        check_build(record, backend)
        program = record.program
    return TunedFunction(workload, compiler.build(build_request(record, program)))


def _checked(tensor: Tensor, value: Array) -> Array:
    array = np.asarray(value)
    if array.shape != tensor.shape or array.dtype != tensor.element.dtype:
        raise InvalidValueError(
            f"input {tensor.name!r} must be {tensor.dtype} of shape {list(tensor.shape)}, "
            f"got {array.dtype.name} of shape {list(array.shape)}"
        )
    return array


def _signature(tensor: Tensor) -> str:
    return f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
