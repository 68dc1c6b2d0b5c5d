"""A tuned program as a Python callable on numpy arrays."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.backends import ALIGNMENT, Executable, aligned_empty, host_array
from autotune.errors import InvalidValueError
from autotune.ir.workloads import Tensor, Workload

__all__ = ["TunedFunction"]

Array = NDArray[Any]


class TunedFunction:
    """A compiled program. Call it with the workload's inputs, in order or by name.

    Returns the output array, or a tuple of arrays when the workload has several outputs. Inputs
    are numpy arrays (or what ``numpy.asarray`` takes without changing the type, or tensors of
    torch) of exactly the workload's shapes and types. They are never changed; those that are
    contiguous, in this machine's byte order and begin at a multiple of
    ``autotune.backends.ALIGNMENT`` bytes are read where they lie, and others copied.
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
        given = zip(self.workload.inputs, self._arguments(arrays, named), strict=True)
        inputs = [_checked(tensor, value) for tensor, value in given]
        outputs = self._outputs(out)
        if any(np.may_share_memory(array, output) for array in inputs for output in outputs):
            raise InvalidValueError("an array of out shares memory with an input")
        placed = [self._placed(*pair) for pair in zip(self.workload.inputs, inputs, strict=True)]
        self.executable.bind(placed, outputs).run()
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

    def _arguments(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Arguments for each input, in the workload's order."""
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
        return [given[tensor.name] for tensor in inputs]


def _checked(tensor: Tensor, value: Any) -> Array:
    array = host_array(value)
    if array.shape != tensor.shape or array.dtype != tensor.element.dtype:
        raise InvalidValueError(
            f"input {tensor.name!r} must be {tensor.dtype} of shape {list(tensor.shape)}, "
            f"got {array.dtype.name} of shape {list(array.shape)}"
        )
    return array


def _signature(tensor: Tensor) -> str:
    return f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
