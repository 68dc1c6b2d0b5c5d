"""Compiled functions bound to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.backends.arrays import poison_array
from autotune.backends.backend import BoundCall
from autotune.backends.native_call import NativeCall, time_native_call

__all__ = ["NativeBoundCall"]

Array = NDArray[Any]


def _nothing() -> None:
    pass


class NativeBoundCall(BoundCall):
    """A program that is one C function, with its arguments.

    Calls raise ``NativeCallFailed`` where the program says that it failed.

    Args:
        call: Of the function on its arrays.
        outputs: Those of them that it writes, in the workload's order.
        copies: Those that it reads which hold packed inputs.
        prepare: Prepares the calling thread.
    """

    def __init__(
        self,
        call: NativeCall,
        outputs: Sequence[Array],
        copies: Sequence[Array] = (),
        prepare: Callable[[], object] = _nothing,
    ) -> None:
        self._call = call
        self._outputs = tuple(outputs)
        self._copies = tuple(copies)
        self._prepare = prepare

    def native(self) -> NativeCall:
        """See :meth:`BoundCall.native`."""
        self._prepare()
        return self._call

    def run(self) -> None:
        """Run once."""
        time_native_call(self.native(), 1)

    def time(self, number: int) -> float:
        """Seconds per call, averaged over ``number`` calls."""
        return time_native_call(self.native(), number)

    def outputs(self) -> list[Array]:
        """Copies of the outputs, in the workload's order."""
        return [output.copy() for output in self._outputs]

    def copies(self) -> list[Array]:
        """The packed constants that it reads."""
        return list(self._copies)

    def poison(self) -> None:
        """Fill the outputs with NaN, or with the smallest integer."""
        for output in self._outputs:
            poison_array(output)
