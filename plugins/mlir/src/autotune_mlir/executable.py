"""Compiled programs of functions, bound to arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.backends import (
    NativeBoundCall,
    NativeCall,
)
from autotune.sketches.intrinsics.tile_registers import REFUSED
from autotune_mlir.code_generation import Generated
from autotune_mlir.entry import ENTRY

__all__ = ["bound_call"]

Array = NDArray[Any]


def bound_call(
    generated: Generated,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    entry: str = ENTRY,
) -> NativeBoundCall:
    """A compiled program with its arguments.

    Args:
        generated: Its machine code.
        inputs: Arrays that it reads.
        outputs: Arrays that it writes.
        entry: What is called.
    """
    return NativeBoundCall(_call_of(generated, (*inputs, *outputs), entry), outputs)


def _call_of(generated: Generated, arrays: Sequence[Array], entry: str = ENTRY) -> NativeCall:
    """A run of a program on arrays."""
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    return NativeCall(
        address=generated.address(entry),
        arguments=(ctypes.addressof(pointers),),
        keeps=(generated, tuple(arrays), pointers),
        explain=(lambda: REFUSED) if generated.asks_for_tiles else None,
    )
